#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "shim/devices.h"
#include "shim/pager.h"
#include "shim/range_table.h"
#include "shim/suballocator.h"

namespace plexrl::shim {

/// cuMemAlloc and cuMemFree, as the job sees them: large requests are ranges, small ones are parts
/// of shared blocks of their context.
///
/// An allocation needs no lease: it takes addresses and a charge. Its memory comes with the next
/// grant, or before the call returns when the gate is open. Where that finds no free HBM the gate
/// is closed until the agent has found some, so that no launch meets memory that isn't there
/// (invariant 6).
///
/// Threads: any. `mutex_` covers the suballocators and the deferred frees, not driver calls.
class DeviceMemory {
 public:
  /// What the environment of DeviceMemory decides; set once before use.
  struct Hooks {
    /// True while nothing of the job can be running on a GPU: frees need not wait.
    bool (*is_quiet)() noexcept;
    /// Memory that is wanted now is missing; the gate has been closed.
    void (*memory_missing)() noexcept;
    /// Something was freed.
    void (*freed)() noexcept;
    /// Other processes have the range that begins there: it stays, hidden from the job, until
    /// drop_range is called again.
    bool (*still_shared)(std::uint64_t range) noexcept;
  };

  DeviceMemory(RangeTable& ranges, Pager& pager, Devices& devices, Hooks hooks) noexcept
      : ranges_(ranges), pager_(pager), devices_(devices), hooks_(hooks) {}

  /// Errors: CUDA_ERROR_OUT_OF_MEMORY beyond the promise or the GPU; `*out` is then untouched.
  CUresult allocate(CUdevice device, CUcontext context, std::size_t bytes, std::uint64_t* out);

  /// Frees what begins at `address`; waits for outstanding work first, as the driver does. Returns
  /// none when nothing of ours begins there; else what the job gets (an error of earlier work).
  std::optional<CUresult> free(std::uint64_t address);

  struct Allocation {
    std::uint64_t start;
    std::size_t bytes;
    CUdevice device;
    CUcontext context;         ///< null: of no context
    std::uint64_t identifier;  ///< unique in this process, never reused
    CUmemoryPool pool = nullptr;
    bool is_ipc_capable = false;  ///< cuIpcGetMemHandle takes it
  };
  /// The allocation that `address` lies in.
  std::optional<Allocation> find(std::uint64_t address);

  // For what builds on ranges: pools and the job's own handles.

  /// A charged range of `kind`, backed at once where the gate is open, else with the next grant.
  /// Belongs to no context. Errors: as allocate.
  CUresult take_range(CUdevice device, std::size_t bytes, wire::MemoryKind kind,
                      std::uint64_t* start, const CUmemAllocationProp* properties = nullptr);
  /// Gives it back at once: nothing may use it any more.
  void drop_range(std::uint64_t start, CUdevice device);
  /// Access of devices beside its own, now and whenever it is backed again.
  CUresult set_access(std::uint64_t start, const std::vector<CUmemAccessDesc>& access) {
    return pager_.set_range_access(start, access);
  }
  /// What a range of `bytes` takes.
  std::size_t mapped_size(std::size_t bytes) const { return ranges_.mapped_size(bytes); }
  /// As cuMemFree does, unless nothing can be running. `*deferred`: a capture is in progress, which
  /// to wait would break.
  CUresult wait_for_outstanding(CUcontext context, bool* deferred);

  /// After `context` has been destroyed: its allocations went with it.
  void context_ended(CUcontext context);

  /// Nothing is outstanding and no capture is in progress: what had to wait for that is freed. What
  /// was freed since the call before stays until the next: it may have been used after the look
  /// that this call comes from.
  void release_deferred();

 private:
  CUresult add_range(CUdevice device, CUcontext context, std::size_t bytes, bool is_shared_block,
                     wire::MemoryKind kind, std::uint64_t* start,
                     const CUmemAllocationProp* properties = nullptr);
  void release_now(std::uint64_t address);

  RangeTable& ranges_;
  Pager& pager_;
  Devices& devices_;
  Hooks hooks_;
  std::mutex mutex_;
  std::map<CUcontext, Suballocator> small_;
  std::vector<std::uint64_t> deferred_;  ///< freed since the last release_deferred
  std::vector<std::uint64_t> ready_;     ///< … and those before it
};

}  // namespace plexrl::shim
