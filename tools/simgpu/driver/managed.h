#pragma once

#include "tools/simgpu/driver/cuda_api.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "tools/simgpu/driver/address_space.h"
#include "tools/simgpu/driver/context.h"

/// Managed memory: frames of the device that was current, mapped for every device of the process
/// and, at the same address, for the host; or host memory where the device has no room at the call.
/// Nothing moves after that: the host and all devices reach it at any time, also at once, and what
/// a program says of where it wants pages is kept and told, no more.
///
/// Threads: any.
namespace plexrl::simgpu {

/// Zeroed memory, of device `device` if that has room. `owner` is the context that it goes with;
/// nullptr: the caller frees it. Errors: INVALID_VALUE for 0 bytes, OUT_OF_MEMORY.
CUresult allocate_managed(Context* owner, int device, std::uint64_t bytes, std::uint64_t* address);
/// Takes the memory of a managed range away; for free_device, which has removed the range.
void release_managed(const Range& range);

/// What is kept of a page (cuMemAdvise, cuMemPrefetchAsync). A location of type INVALID is none.
struct PageAdvice {
  bool is_read_mostly = false;
  CUmemLocation preferred{};
  CUmemLocation prefetched{};     ///< the last that was asked for
  std::uint32_t accessed_by = 0;  ///< bit n: the device of ordinal n
  bool is_accessed_by_host = false;
};

/// Whether [address, address + bytes) is managed memory, bytes > 0. Several allocations that follow
/// each other count as one range.
bool is_managed(std::uint64_t address, std::uint64_t bytes);
/// Calls `change` for the advice of the pages that the range touches. The range must be managed.
void change_advice(std::uint64_t address, std::uint64_t bytes, void (*change)(PageAdvice&, void*),
                   void* argument);

template <typename F>
void change_advice(std::uint64_t address, std::uint64_t bytes, F change) {
  change_advice(
      address, bytes, [](PageAdvice& page, void* f) { (*static_cast<F*>(f))(page); }, &change);
}

/// The managed variables of a module, or of a library, whose modules in all contexts share them.
class ManagedVariables {
 public:
  struct Variable {
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
  };
  ManagedVariables() = default;
  ~ManagedVariables();
  ManagedVariables(const ManagedVariables&) = delete;
  ManagedVariables& operator=(const ManagedVariables&) = delete;

  /// Finds the variable or gives it memory of `device`; *is_new tells which.
  CUresult place(const std::string& name, std::size_t bytes, int device, CUdeviceptr* address,
                 bool* is_new);
  /// False when no context has it yet.
  bool find(const std::string& name, Variable* variable) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Variable> variables_;
};

}  // namespace plexrl::simgpu
