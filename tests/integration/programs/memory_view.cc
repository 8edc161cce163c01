// cuMemGetInfo: what this program takes is what is missing, and neighbours that come and go don't
// show. Beside a neighbour, cuDeviceTotalMem and NVML say the same. (Alone they need not: a driver
// keeps some memory for itself, and NVML counts it.)
#include <dlfcn.h>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

struct View {
  std::size_t free;
  std::size_t total;
  bool operator==(const View&) const = default;
};

View view() {
  View v;
  CHECK(cuMemGetInfo(&v.free, &v.total));
  return v;
}

/// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx": NVML knows all GPUs, whatever CUDA_VISIBLE_DEVICES
/// is.
std::string uuid_text(CUdevice device) {
  CUuuid uuid;
  CHECK(cuDeviceGetUuid(&uuid, device));
  std::string text = "GPU";
  char digits[4];
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += digits;
  }
  return text;
}

/// NVML as programs use it: found at run time, no header needed.
class Nvml {
 public:
  explicit Nvml(CUdevice device) : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
    auto* init = find<int (*)()>("nvmlInit_v2");
    auto* handle = find<int (*)(const char*, void**)>("nvmlDeviceGetHandleByUUID");
    memory_ = find<int (*)(void*, Memory*)>("nvmlDeviceGetMemoryInfo");
    memory_v2_ = find<int (*)(void*, MemoryV2*)>("nvmlDeviceGetMemoryInfo_v2");
    if (init() != 0 || handle(uuid_text(device).c_str(), &device_) != 0)
      fail("NVML does not start");
  }

  bool agrees(const View& v) const {
    Memory one{};
    MemoryV2 two{};
    two.version = sizeof two | 2u << 24;
    if (memory_(device_, &one) != 0 || memory_v2_(device_, &two) != 0) fail("NVML: memory info");
    const bool first = one.total == v.total && one.free == v.free && one.used == v.total - v.free;
    return first && two.total == one.total && two.free == one.free && two.used == one.used;
  }

 private:
  struct Memory {
    unsigned long long total, free, used;
  };
  struct MemoryV2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
  };

  [[noreturn]] static void fail(const char* what) {
    std::fprintf(stderr, "memory_view: %s\n", what);
    std::_Exit(1);
  }
  template <typename Function>
  Function find(const char* name) const {
    void* found = library_ == nullptr ? nullptr : dlsym(library_, name);
    if (found == nullptr) fail(name);
    return reinterpret_cast<Function>(found);
  }

  void* library_;
  void* device_ = nullptr;
  int (*memory_)(void*, Memory*);
  int (*memory_v2_)(void*, MemoryV2*);
};

bool all_agree(const Nvml& nvml, CUdevice device) {
  if (std::getenv("PLEXRL_TEST_PEER") == nullptr) return true;
  const View v = view();
  std::size_t total = 0;
  CHECK(cuDeviceTotalMem(&total, device));
  return total == v.total && nvml.agrees(v);
}

}  // namespace

int main() {
  Program program;
  const Nvml nvml(program.device());
  const View before = view();
  bool agree = all_agree(nvml, program.device());
  const std::size_t bytes = 16 << 20;
  const CUdeviceptr data = allocate(bytes);
  CHECK(cuMemsetD8(data, 1, bytes));
  const View with = view();
  std::printf("taken: %zu\n", before.free - with.free);
  bool constant = true;
  for (int round = 0; round < 4; ++round) {
    program.pause();
    constant = constant && view() == with;
    agree = agree && all_agree(nvml, program.device());
    CHECK(cuMemsetD8(data, 2, bytes));
    constant = constant && view() == with;
    agree = agree && all_agree(nvml, program.device());
  }
  std::printf("constant: %s\n", constant ? "yes" : "no");
  CHECK(cuMemFree(data));
  agree = agree && all_agree(nvml, program.device());
  std::printf("given back: %s\n", view() == before ? "yes" : "no");
  // What a pool has no use for any more is free, whoever is asked first.
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int round = 0; round < 2; ++round) {
    CUdeviceptr pooled;
    CHECK(cuMemAllocAsync(&pooled, bytes, stream));
    CHECK(cuMemsetD8Async(pooled, 3, bytes, stream));
    agree = agree && all_agree(nvml, program.device());
    CHECK(cuMemFreeAsync(pooled, stream));
    CHECK(cuStreamSynchronize(stream));
    if (std::getenv("PLEXRL_TEST_PEER") != nullptr) agree = agree && nvml.agrees(before);
    std::printf("given back by a pool: %s\n", view() == before ? "yes" : "no");
  }
  CHECK(cuStreamDestroy(stream));
  std::printf("all answer alike: %s\n", agree ? "yes" : "no");
}
