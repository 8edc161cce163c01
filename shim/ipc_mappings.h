#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "shim/device_memory.h"
#include "shim/sharing.h"

namespace plexrl::shim {

/// The pointers that cuIpcOpenMemHandle has given out for memory of this job. A handle that is
/// opened again gives the same pointer; each open needs its close. Threads: any.
class IpcMappings {
 public:
  explicit IpcMappings(Sharing& sharing) noexcept : sharing_(sharing) {}

  /// Errors: those of Sharing::import; INVALID_CONTEXT for this process's own memory, INVALID_VALUE
  /// where the handle says more than there is.
  CUresult open(const Capability& capability, CUcontext context, CUdevice device,
                std::uint64_t* out);
  /// None: `address` was not given out here.
  std::optional<CUresult> close(std::uint64_t address);
  bool is_open(std::uint64_t address);
  /// The memory that `address` lies in.
  std::optional<DeviceMemory::Allocation> find(std::uint64_t address);
  /// After `context` has ended: what was opened in it is closed.
  void context_ended(CUcontext context);

 private:
  struct Opened {
    std::uint64_t range;
    std::size_t bytes;
    CUdevice device;
    CUcontext context;
    std::uint64_t uses;
    std::uint64_t identifier;
  };

  Sharing& sharing_;
  std::mutex mutex_;
  std::map<std::uint64_t, Opened> opened_;  ///< by pointer
  std::uint64_t next_identifier_ = 1;
};

}  // namespace plexrl::shim
