#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "nodemgr/gpu_probe.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

// The part of NVML that is used, as the NVML API Reference documents it; the library is loaded at
// run time and no header of it is needed.
using Device = void*;
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlInsufficientSize = 7;

struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlProcess {
  unsigned int pid;
  unsigned long long used_bytes;
  unsigned int gpu_instance, compute_instance;
};
constexpr unsigned long long kNotAvailable = ~0ull;

struct Functions {
  int (*init)();
  int (*shutdown)();
  int (*count)(unsigned int*);
  int (*handle)(unsigned int, Device*);
  int (*name)(Device, char*, unsigned int);
  int (*uuid)(Device, char*, unsigned int);
  int (*memory)(Device, NvmlMemory*);
  int (*processes)(Device, unsigned int*, NvmlProcess*);  ///< may be absent
  int (*minor)(Device, unsigned int*);                    ///< may be absent
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

class NvmlProbe final : public GpuProbe {
 public:
  explicit NvmlProbe(Functions functions) : nvml_(functions) {}
  ~NvmlProbe() override { nvml_.shutdown(); }

  std::vector<GpuInfo> gpus() override {
    std::vector<GpuInfo> found;
    devices_.clear();
    unsigned int count = 0;
    if (nvml_.count(&count) != kNvmlSuccess) return found;
    for (unsigned int i = 0; i < count && i < wire::kMaxGpus; ++i) {
      Device device = nullptr;
      std::array<char, 96> text{};
      NvmlMemory memory{};
      GpuInfo gpu;
      if (nvml_.handle(i, &device) != kNvmlSuccess) continue;
      if (nvml_.name(device, text.data(), text.size()) == kNvmlSuccess) gpu.name = text.data();
      text.fill(0);
      if (nvml_.uuid(device, text.data(), text.size()) != kNvmlSuccess) continue;
      gpu.uuid_text = text.data();
      std::optional<wire::GpuUuid> uuid = parse_uuid(gpu.uuid_text);
      if (!uuid || nvml_.memory(device, &memory) != kNvmlSuccess) continue;
      gpu.uuid = *uuid;
      gpu.total_bytes = memory.total;
      gpu.simulated = gpu.name.starts_with("PlexRL Simulated");
      unsigned int minor = 0;
      if (nvml_.minor != nullptr && nvml_.minor(device, &minor) == kNvmlSuccess) gpu.minor = minor;
      devices_.push_back(device);
      found.push_back(std::move(gpu));
    }
    return found;
  }

  std::optional<GpuUse> use(int index) override {
    if (index < 0 || static_cast<std::size_t>(index) >= devices_.size()) return std::nullopt;
    Device device = devices_[static_cast<std::size_t>(index)];
    NvmlMemory memory{};
    if (nvml_.memory(device, &memory) != kNvmlSuccess) return std::nullopt;
    GpuUse use;
    use.used_bytes = memory.used;
    if (nvml_.processes == nullptr) return use;
    std::vector<NvmlProcess> processes(64);
    auto count = static_cast<unsigned int>(processes.size());
    int result = nvml_.processes(device, &count, processes.data());
    if (result == kNvmlInsufficientSize) {
      processes.resize(count + 16);
      count = static_cast<unsigned int>(processes.size());
      result = nvml_.processes(device, &count, processes.data());
    }
    if (result != kNvmlSuccess || count > processes.size()) return use;
    use.knows_processes = true;
    for (unsigned int i = 0; i < count; ++i) {
      unsigned long long bytes = processes[i].used_bytes;
      use.processes.push_back({processes[i].pid, bytes == kNotAvailable ? 0 : bytes});
    }
    return use;
  }

 private:
  Functions nvml_;
  std::vector<Device> devices_;
};

std::string library_path() {
  const char* simulated = std::getenv("PLEXRL_SIMGPU");
  if (simulated == nullptr) return "libnvidia-ml.so.1";
  std::error_code error;
  std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  for (std::filesystem::path folder = program.parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    std::filesystem::path library = folder / "lib/plexrl/simgpu/libnvidia-ml.so.1";
    if (std::filesystem::exists(library, error)) return library;
  }
  return "lib/plexrl/simgpu/libnvidia-ml.so.1";
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuProbe>> open_nvml() {
  std::string path = library_path();
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::NotFoundError(cat("no GPU driver: ", ::dlerror()));
  Functions nvml{};
  if (!find(library, "nvmlInit_v2", nvml.init) || !find(library, "nvmlShutdown", nvml.shutdown) ||
      !find(library, "nvmlDeviceGetCount_v2", nvml.count) ||
      !find(library, "nvmlDeviceGetHandleByIndex_v2", nvml.handle) ||
      !find(library, "nvmlDeviceGetName", nvml.name) ||
      !find(library, "nvmlDeviceGetUUID", nvml.uuid) ||
      !find(library, "nvmlDeviceGetMemoryInfo", nvml.memory)) {
    return failed(path, " lacks a function that every NVML has: ", ::dlerror());
  }
  find(library, "nvmlDeviceGetComputeRunningProcesses_v3", nvml.processes);
  find(library, "nvmlDeviceGetMinorNumber", nvml.minor);
  if (int code = nvml.init(); code != kNvmlSuccess) {
    return absl::NotFoundError(cat("no GPU: NVML (", path, ") does not start, error ", code));
  }
  return std::make_unique<NvmlProbe>(nvml);
}

std::optional<wire::GpuUuid> parse_uuid(const std::string& text) {
  if (!text.starts_with("GPU-")) return std::nullopt;
  wire::GpuUuid uuid{};
  std::size_t digits = 0;
  for (char c : text.substr(4)) {
    int value = 0;
    if (c == '-') continue;
    if (c >= '0' && c <= '9') {
      value = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      value = c - 'a' + 10;
    } else if (c >= 'A' && c <= 'F') {
      value = c - 'A' + 10;
    } else {
      return std::nullopt;
    }
    if (digits >= 32) return std::nullopt;
    auto& byte = uuid.bytes[digits / 2];
    byte = static_cast<std::uint8_t>(byte << 4 | value);
    ++digits;
  }
  if (digits != 32) return std::nullopt;
  return uuid;
}

}  // namespace plexrl::nodemgr
