// NVML of the simulated GPU, reached as programs reach it: by dlopen and dlsym.

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/unit/simgpu/machine_fixture.h"
#include "tools/simgpu/nvml/nvml_api.h"

namespace plexrl::simgpu {
namespace {

constexpr std::uint64_t kMiB = 1ull << 20;

class NvmlTest : public MachineTest {
 protected:
  // It stays until the process ends, so that a leak can be told from what it keeps.
  NvmlTest() : library_(dlopen(PLEXRL_SIMGPU_DIR "/libnvidia-ml.so.1", RTLD_NOW | RTLD_NODELETE)) {
    EXPECT_NE(library_, nullptr) << dlerror();
    spec_.gpus = 2;
    setenv("PLEXRL_SIMGPU", ("name=" + name_ + ",gpus=2,memory=64MiB,free_delay=0,vmm=0").c_str(),
           1);
  }
  ~NvmlTest() override {
    while (call("nvmlShutdown") == NVML_SUCCESS) {
    }
    dlclose(library_);
    unsetenv("PLEXRL_SIMGPU");
  }

  template <typename... Arguments>
  nvmlReturn_t call(const char* name, Arguments... arguments) {
    auto* const function = reinterpret_cast<nvmlReturn_t (*)(Arguments...)>(dlsym(library_, name));
    EXPECT_NE(function, nullptr) << name;
    return function == nullptr ? NVML_ERROR_UNKNOWN : function(arguments...);
  }
  nvmlDevice_t device(unsigned index) {
    nvmlDevice_t handle = nullptr;
    EXPECT_EQ(call("nvmlDeviceGetHandleByIndex_v2", index, &handle), NVML_SUCCESS);
    return handle;
  }

  void* library_;
};

TEST_F(NvmlTest, NothingWorksBeforeInitAndAfterTheLastShutdown) {
  unsigned count = 0;
  EXPECT_EQ(call("nvmlDeviceGetCount_v2", &count), NVML_ERROR_UNINITIALIZED);
  EXPECT_EQ(call("nvmlDeviceGetTemperature"), NVML_ERROR_UNINITIALIZED);
  ASSERT_EQ(call("nvmlInit_v2"), NVML_SUCCESS);
  ASSERT_EQ(call("nvmlInit"), NVML_SUCCESS);
  ASSERT_EQ(call("nvmlShutdown"), NVML_SUCCESS);
  EXPECT_EQ(call("nvmlDeviceGetCount_v2", &count), NVML_SUCCESS) << "one use is left";
  EXPECT_EQ(count, 2u);
  ASSERT_EQ(call("nvmlShutdown"), NVML_SUCCESS);
  EXPECT_EQ(call("nvmlShutdown"), NVML_ERROR_UNINITIALIZED);
}

TEST_F(NvmlTest, ADeviceIsFoundByIndexUuidAndBus) {
  ASSERT_EQ(call("nvmlInit_v2"), NVML_SUCCESS);
  const nvmlDevice_t second = device(1);
  char uuid[80] = "";
  ASSERT_EQ(call("nvmlDeviceGetUUID", second, uuid, 80u), NVML_SUCCESS);
  EXPECT_EQ(uuid, uuid_text(device_uuid(name_, 1)));
  nvmlPciInfo_t pci{};
  ASSERT_EQ(call("nvmlDeviceGetPciInfo_v3", second, &pci), NVML_SUCCESS);
  EXPECT_STREQ(pci.busId, "00000000:02:00.0");
  EXPECT_STREQ(pci.busIdLegacy, "0000:02:00.0");
  nvmlDevice_t found = nullptr;
  EXPECT_EQ(call("nvmlDeviceGetHandleByUUID", static_cast<const char*>(uuid), &found),
            NVML_SUCCESS);
  EXPECT_EQ(found, second);
  found = nullptr;
  EXPECT_EQ(call("nvmlDeviceGetHandleByPciBusId_v2", "0000:02:00.0", &found), NVML_SUCCESS);
  EXPECT_EQ(found, second);
  unsigned minor = 9;
  EXPECT_EQ(call("nvmlDeviceGetMinorNumber", second, &minor), NVML_SUCCESS);
  EXPECT_EQ(minor, 1u);
  EXPECT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 2u, &found), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(call("nvmlDeviceGetHandleByUUID", "GPU-nonsense", &found), NVML_ERROR_NOT_FOUND);
}

TEST_F(NvmlTest, TheOldFormOfPciInfoWritesNoMoreThanItsOwnStructure) {
  ASSERT_EQ(call("nvmlInit_v2"), NVML_SUCCESS);
  struct {
    nvmlPciInfo_v1_t pci;
    unsigned after;
  } place{{}, 0xabcdu};
  ASSERT_EQ(call("nvmlDeviceGetPciInfo", device(0), &place.pci), NVML_SUCCESS);
  EXPECT_STREQ(place.pci.busId, "0000:01:00.0");
  EXPECT_EQ(place.after, 0xabcdu);
}

TEST_F(NvmlTest, StringsThatDoNotFitAreNotWritten) {
  ASSERT_EQ(call("nvmlInit_v2"), NVML_SUCCESS);
  char name[64] = "untouched";
  EXPECT_EQ(call("nvmlDeviceGetName", device(0), name, 5u), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_STREQ(name, "untouched");
  EXPECT_EQ(call("nvmlDeviceGetName", device(0), name, 64u), NVML_SUCCESS);
  EXPECT_STREQ(name, "PlexRL Simulated GPU");
  EXPECT_EQ(call("nvmlDeviceGetName", device(0), static_cast<char*>(nullptr), 64u),
            NVML_ERROR_INVALID_ARGUMENT);
}

TEST_F(NvmlTest, MemoryFollowsTheMachineAsProcessesComeAndGo) {
  ASSERT_EQ(call("nvmlInit_v2"), NVML_SUCCESS);
  const nvmlDevice_t first = device(0);
  nvmlMemory_t memory{};
  ASSERT_EQ(call("nvmlDeviceGetMemoryInfo", first, &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.total, 64 * kMiB);
  EXPECT_EQ(memory.free, 64 * kMiB) << "nobody has the machine";
  EXPECT_FALSE(std::filesystem::exists(state_folder(spec_))) << "looking makes nothing";
  for (int round = 0; round < 2; ++round) {  // the second time it is another machine of that name
    auto machine = open();
    std::uint32_t id = 0;
    ASSERT_TRUE(machine->allocate(0, 20 * kMiB, &id));
    ASSERT_EQ(call("nvmlDeviceGetMemoryInfo", first, &memory), NVML_SUCCESS);
    EXPECT_EQ(memory.used, 20 * kMiB);
    EXPECT_EQ(memory.free, 44 * kMiB);
    ASSERT_EQ(call("nvmlDeviceGetMemoryInfo", device(1), &memory), NVML_SUCCESS);
    EXPECT_EQ(memory.used, 0u);
    machine.reset();
    ASSERT_EQ(call("nvmlDeviceGetMemoryInfo", first, &memory), NVML_SUCCESS);
    EXPECT_EQ(memory.used, 0u);
  }
}

TEST_F(NvmlTest, TheVersionedMemoryStructureMustSayItsVersion) {
  ASSERT_EQ(call("nvmlInit_v2"), NVML_SUCCESS);
  nvmlMemory_v2_t memory{};
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo_v2", device(0), &memory),
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  memory.version = nvml_struct_version(sizeof memory, 2);
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo_v2", device(0), &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.total, memory.free + memory.used);
}

TEST_F(NvmlTest, ComputeProcessesAreThoseThatHoldMemory) {
  const auto machine = open();
  std::uint32_t id = 0;
  ASSERT_TRUE(machine->allocate(0, 6 * kMiB, &id));
  ASSERT_EQ(call("nvmlInit_v2"), NVML_SUCCESS);
  unsigned count = 0;
  EXPECT_EQ(call("nvmlDeviceGetComputeRunningProcesses_v3", device(0), &count,
                 static_cast<nvmlProcessInfo_v2_t*>(nullptr)),
            NVML_ERROR_INSUFFICIENT_SIZE);
  ASSERT_EQ(count, 1u);
  nvmlProcessInfo_v2_t entry{};
  ASSERT_EQ(call("nvmlDeviceGetComputeRunningProcesses_v3", device(0), &count, &entry),
            NVML_SUCCESS);
  EXPECT_EQ(entry.pid, static_cast<unsigned>(getpid()));
  EXPECT_EQ(entry.usedGpuMemory, 6 * kMiB);
  nvmlProcessInfo_v1_t old[2] = {};
  count = 2;
  ASSERT_EQ(call("nvmlDeviceGetComputeRunningProcesses", device(0), &count, &old[0]), NVML_SUCCESS);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(old[0].usedGpuMemory, 6 * kMiB);
  EXPECT_EQ(old[1].pid, 0u);
  count = 4;
  EXPECT_EQ(call("nvmlDeviceGetGraphicsRunningProcesses_v3", device(0), &count, &entry),
            NVML_SUCCESS);
  EXPECT_EQ(count, 0u);
}

TEST_F(NvmlTest, WhatTheDeviceLacksExistsAndIsNotSupported) {
  ASSERT_EQ(call("nvmlInit_v2"), NVML_SUCCESS);
  unsigned value = 5;
  EXPECT_EQ(call("nvmlDeviceGetTemperature", device(0), 0u, &value), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(call("nvmlDeviceGetPowerUsage", device(0), &value), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(call("nvmlDeviceGetMigMode", device(0), &value, &value), NVML_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(value, 5u);
}

TEST_F(NvmlTest, UtilisationIsTheShareOfModelledWork) {
  const auto machine = open();
  ASSERT_EQ(call("nvmlInit_v2"), NVML_SUCCESS);
  nvmlUtilization_t utilisation{};
  machine->counters(0).busy_ns.fetch_add(3'600'000'000'000);  // more than can have passed
  do {
    ASSERT_EQ(call("nvmlDeviceGetUtilizationRates", device(0), &utilisation), NVML_SUCCESS);
    usleep(20'000);
  } while (utilisation.gpu == 0);  // until a sample period is over
  EXPECT_EQ(utilisation.gpu, 100u);
  ASSERT_EQ(call("nvmlDeviceGetUtilizationRates", device(1), &utilisation), NVML_SUCCESS);
  EXPECT_EQ(utilisation.gpu, 0u);
}

TEST_F(NvmlTest, ABadSpecAndADisagreeingOneAreErrorsOfInit) {
  setenv("PLEXRL_SIMGPU", "nmae=x", 1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(call("nvmlInit_v2"), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("'name'"), std::string::npos);
  const auto machine = open();
  setenv("PLEXRL_SIMGPU", ("name=" + name_ + ",memory=128MiB").c_str(), 1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(call("nvmlInit_v2"), NVML_ERROR_UNKNOWN);
  EXPECT_NE(testing::internal::GetCapturedStderr().find(name_), std::string::npos);
}

TEST_F(NvmlTest, VersionsAndErrorsHaveTexts) {
  ASSERT_EQ(call("nvmlInit_v2"), NVML_SUCCESS);
  char version[80] = "";
  EXPECT_EQ(call("nvmlSystemGetDriverVersion", version, 80u), NVML_SUCCESS);
  EXPECT_NE(std::strchr(version, '.'), nullptr);
  int cuda = 0;
  EXPECT_EQ(call("nvmlSystemGetCudaDriverVersion_v2", &cuda), NVML_SUCCESS);
  EXPECT_GE(cuda, 13000);
  auto* const text =
      reinterpret_cast<const char* (*)(nvmlReturn_t)>(dlsym(library_, "nvmlErrorString"));
  ASSERT_NE(text, nullptr);
  EXPECT_STREQ(text(NVML_ERROR_NOT_SUPPORTED), "Not Supported");
  char process[256] = "";
  EXPECT_EQ(call("nvmlSystemGetProcessName", static_cast<unsigned>(getpid()), process, 256u),
            NVML_SUCCESS);
  EXPECT_NE(std::strstr(process, "nvml_test"), nullptr);
}

}  // namespace
}  // namespace plexrl::simgpu
