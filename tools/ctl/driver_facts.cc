// The driver, asked by the calls that need no context.
#include <cuda.h>
#include <dlfcn.h>

#include <array>

#include "nodemgr/settings/cat.h"
#include "tools/ctl/doctor.h"

namespace plexrl::ctl {
namespace {

using nodemgr::cat;

template <typename Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

struct Driver {
  decltype(&cuInit) init;
  decltype(&cuDriverGetVersion) version;
  decltype(&cuDeviceGetCount) count;
  decltype(&cuDeviceGet) get;
  decltype(&cuDeviceGetName) name;
  decltype(&cuDeviceGetAttribute) attribute;
  CUresult (*memory)(std::size_t*, CUdevice);
  decltype(&cuGetErrorName) error_name;

  bool is_complete() const {
    return init && version && count && get && name && attribute && memory && error_name;
  }
  std::string describe(const char* call, CUresult result) const {
    const char* text = nullptr;
    if (error_name(result, &text) != CUDA_SUCCESS) text = nullptr;
    return cat(call, " answers ", text == nullptr ? "an unknown error" : text);
  }
};

DeviceFacts facts_of(const Driver& driver, CUdevice device) {
  DeviceFacts facts;
  std::array<char, 128> name{};
  if (driver.name(name.data(), static_cast<int>(name.size()) - 1, device) == CUDA_SUCCESS) {
    facts.name = name.data();
  }
  std::size_t bytes = 0;
  if (driver.memory(&bytes, device) == CUDA_SUCCESS) facts.memory_bytes = bytes;
  int value = 0;
  facts.has_vmm = driver.attribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                   device) == CUDA_SUCCESS &&
                  value != 0;
  if (driver.attribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device) == CUDA_SUCCESS) {
    facts.compute_mode = value;
  }
  return facts;
}

// By the names and types of the NVML API Reference; without NVML nothing is said about MIG.
bool any_mig(const std::string& nvml) {
  void* const library = ::dlopen(nvml.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  auto* const init = find<int()>(library, "nvmlInit_v2");
  auto* const shutdown = find<int()>(library, "nvmlShutdown");
  auto* const count = find<int(unsigned int*)>(library, "nvmlDeviceGetCount_v2");
  auto* const handle = find<int(unsigned int, void**)>(library, "nvmlDeviceGetHandleByIndex_v2");
  auto* const mode =
      find<int(void*, unsigned int*, unsigned int*)>(library, "nvmlDeviceGetMigMode");
  if (!init || !shutdown || !count || !handle || !mode || init() != 0) return false;
  unsigned int devices = 0;
  bool found = false;
  if (count(&devices) != 0) devices = 0;
  for (unsigned int i = 0; i < devices; ++i) {
    void* device = nullptr;
    unsigned int current = 0;
    unsigned int pending = 0;
    found |= handle(i, &device) == 0 && mode(device, &current, &pending) == 0 && current != 0;
  }
  shutdown();
  return found;
}

}  // namespace

DriverFacts ask_driver(const Places& places) {
  DriverFacts facts;
  if (places.driver.empty()) return facts;
  void* const library = ::dlopen(places.driver.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    facts.error = why == nullptr ? "can't be loaded" : why;
    return facts;
  }
  const Driver driver{find<decltype(cuInit)>(library, "cuInit"),
                      find<decltype(cuDriverGetVersion)>(library, "cuDriverGetVersion"),
                      find<decltype(cuDeviceGetCount)>(library, "cuDeviceGetCount"),
                      find<decltype(cuDeviceGet)>(library, "cuDeviceGet"),
                      find<decltype(cuDeviceGetName)>(library, "cuDeviceGetName"),
                      find<decltype(cuDeviceGetAttribute)>(library, "cuDeviceGetAttribute"),
                      find<CUresult(std::size_t*, CUdevice)>(library, "cuDeviceTotalMem_v2"),
                      find<decltype(cuGetErrorName)>(library, "cuGetErrorName")};
  if (!driver.is_complete()) {
    facts.error = "is no CUDA driver";
    return facts;
  }
  CUresult result = driver.init(0);
  if (result != CUDA_SUCCESS) {
    facts.error = driver.describe("cuInit", result);
    return facts;
  }
  int count = 0;
  driver.version(&facts.version);
  result = driver.count(&count);
  if (result != CUDA_SUCCESS) facts.error = driver.describe("cuDeviceGetCount", result);
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    if (driver.get(&device, i) == CUDA_SUCCESS) facts.devices.push_back(facts_of(driver, device));
  }
  facts.has_mig = any_mig(places.nvml);
  return facts;
}

}  // namespace plexrl::ctl
