#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "shim/wire.h"

namespace plexrl::nodemgr {

struct GpuInfo {
  wire::GpuUuid uuid{};
  std::string uuid_text;  ///< "GPU-…"
  std::string name;
  std::uint64_t total_bytes = 0;
  bool simulated = false;
  std::optional<unsigned> minor;  ///< of its device file, /dev/nvidiaN
};

struct GpuUse {
  std::uint64_t used_bytes = 0;
  struct Process {
    std::int64_t pid = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<Process> processes;
  bool knows_processes = false;
};

/// What the driver says about the node's GPUs. Uses no device memory and makes no CUDA call.
class GpuProbe {
 public:
  virtual ~GpuProbe() = default;
  /// In the driver's order, which is the manager's index.
  virtual std::vector<GpuInfo> gpus() = 0;
  /// Empty when the driver does not say.
  virtual std::optional<GpuUse> use(int index) = 0;
};

/// NVML, found at run time: libnvidia-ml.so.1, or with PLEXRL_SIMGPU set the simulated one beside
/// this program. Error when there is none, or no GPU.
[[nodiscard]] absl::StatusOr<std::unique_ptr<GpuProbe>> open_nvml();

/// "GPU-xxxxxxxx-xxxx-…" as bytes; empty when it is not that.
std::optional<wire::GpuUuid> parse_uuid(const std::string& text);

}  // namespace plexrl::nodemgr
