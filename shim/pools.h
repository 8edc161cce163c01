#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "shim/device_memory.h"
#include "shim/devices.h"
#include "shim/pool_space.h"

namespace plexrl::shim {

/// Memory pools and what is allocated from them in stream order, from pageable memory of ours
/// (CUDA driver API reference, "Stream Ordered Memory Allocator").
///
/// A pool's handle is the driver's, of a pool of its own that stays empty: it checks arguments and
/// keeps the attributes that are not about memory. An allocation needs no lease and no place in its
/// stream: what it may be given is memory that nobody uses, or that was freed earlier in the same
/// stream. Only reuse across streams that do not wait for each other asks the stream to wait.
///
/// A free leaves an event behind, in the stream where it was asked for; when nothing of the process
/// is outstanding not even that.
///
/// A pool of another process of the job gives out nothing by itself: its segments are ranges that
/// were imported (sharing.h), its allocations those of the other process. A free here gives back
/// this process's hold only, when the work before it is over.
///
/// Threads: any. `mutex_` is not held in driver calls that may wait; event queries don't.
class Pools {
 public:
  using IsQuiet = bool (*)() noexcept;
  /// One use less of an imported range.
  using CloseImport = void (*)(std::uint64_t range) noexcept;

  Pools(DeviceMemory& memory, Devices& devices, IsQuiet is_quiet, CloseImport close_import) noexcept
      : memory_(memory), devices_(devices), is_quiet_(is_quiet), close_import_(close_import) {}

  /// Makes the driver's pool `handle` one of ours. `max_bytes` 0: no bound but the promise. `tag`
  /// names it to other processes; 0: they may not have it.
  void add(CUmemoryPool handle, CUdevice device, std::size_t max_bytes, std::uint64_t tag = 0);
  /// Whether `handle` is one of ours; a device's default pool becomes one when it is first seen.
  bool is_ours(CUmemoryPool handle);
  /// After the driver has destroyed it: what is allocated from it lives on until it is freed.
  void destroy(CUmemoryPool handle);

  // Pools between processes (pools_shared.cc).

  /// The tag and device of a pool that other processes may have; none: they may not.
  struct Shared {
    std::uint64_t tag;
    CUdevice device;
  };
  std::optional<Shared> shared(CUmemoryPool handle);
  /// The same of the pool that `address` was allocated from, and the range that it lies in.
  struct Export {
    std::uint64_t tag;
    std::uint64_t range;
    DeviceMemory::Allocation allocation;
  };
  std::optional<Export> export_of(std::uint64_t address);
  /// The driver's pool `handle` stands for the one of another process.
  void add_import(CUmemoryPool handle, CUdevice device, std::uint64_t tag);
  /// The tag of such a pool; none: it is of this process.
  std::optional<std::uint64_t> import_tag(CUmemoryPool handle);
  /// An allocation of the other process, in the imported `range` of `range_bytes`. Takes the
  /// caller's use of the range over; also when it fails. Errors: ALREADY_MAPPED while something of
  /// it is in use here, INVALID_VALUE where it is not inside of the range.
  CUresult import(CUmemoryPool handle, std::uint64_t range, std::size_t range_bytes,
                  std::size_t offset, std::size_t bytes);

  /// Memory for what `stream` gets next. Errors: CUDA_ERROR_OUT_OF_MEMORY beyond the promise or the
  /// pool's bound; the driver's when the stream can't be made to wait.
  CUresult allocate(CUmemoryPool handle, std::size_t bytes, const StreamKey& stream,
                    std::uint64_t* out);

  /// Frees in the order of `stream`. None: no allocation of a pool begins at `address`.
  std::optional<CUresult> free(std::uint64_t address, const StreamKey& stream);
  /// Frees for everybody, after all outstanding work of `context`, as cuMemFree does.
  std::optional<CUresult> free_now(std::uint64_t address, CUcontext context);

  /// The allocation that `address` lies in.
  std::optional<DeviceMemory::Allocation> find(std::uint64_t address);

  /// Attributes about memory and reuse; none: the driver keeps that one.
  std::optional<CUresult> set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                        const void* value);
  std::optional<CUresult> get_attribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                        void* value);
  void trim(CUmemoryPool handle, std::size_t keep_bytes);
  /// As each synchronisation of the job does: every pool of `device` down to its threshold. False:
  /// there was nothing to give back.
  bool trim_to_thresholds(CUdevice device);
  void trim_to_threshold(CUmemoryPool handle);
  /// The same for who needs the memory or asks for figures: what other threads are giving back is
  /// waited for, too. Not the agent, for which those threads may wait.
  bool make_room(CUdevice device);
  /// Whether make_room may find something; asks no driver.
  bool has_unused(CUdevice device);

  /// Access of other devices, for what the pool has and will have.
  CUresult set_access(CUmemoryPool handle, const CUmemAccessDesc* access, std::size_t count);

  /// Nothing is outstanding and no capture is in progress.
  void all_finished();
  /// The job's process has come to rest: memory that nobody uses need not be moved.
  void at_rest();
  /// `stream` is about to be destroyed: nothing follows it any more.
  void stream_ends(CUstream stream);
  /// Around the end of a context: its events are left alone meanwhile.
  void context_ends(CUcontext context);
  void context_ended(CUcontext context, bool survives);

 private:
  struct Pool {
    CUmemoryPool handle;
    CUdevice device;
    std::size_t max_bytes;
    std::uint64_t number;
    std::uint64_t tag = 0;  ///< 0: not shared
    bool is_import = false;
    bool is_leaving = false;
    PoolSpace space;
    std::size_t threshold = 0;
    int reuse[3] = {1, 1, 1};  ///< follow events, opportunistic, internal dependencies
    std::vector<CUmemAccessDesc> access;
  };
  enum ReuseFlag { kFollowEvents, kOpportunistic, kInternalDependencies };

  Pool* find_pool(CUmemoryPool handle);
  Pool* pool_of(std::uint64_t address);
  void settle(Pool& pool);
  bool query(FreeMark& mark);
  FreeMarkPtr new_mark(const StreamKey& stream);
  FreeMarkPtr make_mark(const StreamKey& stream, CUresult* result);
  CUevent take_event(CUcontext context);
  void give_back(FreeMark* mark) noexcept;
  CUresult wait_in_stream(const StreamKey& stream, const FreeMarkPtr& after);
  void wait_for_marks(CUdevice device);
  CUresult grow(CUmemoryPool handle, std::size_t bytes);
  /// Segments that were taken out of their pools, to be given back. Outlives the lock.
  struct Unused {
    explicit Unused(Pools& its_pools) noexcept : pools(its_pools) {}
    ~Unused();
    Unused(const Unused&) = delete;
    Unused& operator=(const Unused&) = delete;
    struct Segment {
      std::uint64_t start;
      CUdevice device;
      bool is_import;
    };
    Pools& pools;
    std::vector<Segment> segments;
  };
  void trim_locked(Pool& pool, std::size_t keep_bytes, Unused* unused);
  /// Gives them back. Without a lock.
  void drop(const Unused& unused);
  void drop_freed(std::uint64_t address);
  void sweep_leaving();
  std::uint64_t identifier_of(const Pool& pool, const PoolSpace::Allocation& allocation) const;

  DeviceMemory& memory_;
  Devices& devices_;
  const IsQuiet is_quiet_;
  const CloseImport close_import_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::map<std::uint64_t, Pool*> segments_;  ///< by start
  std::uint64_t next_number_ = 1;
  std::size_t dropping_ = 0;  ///< segments in an Unused
  std::condition_variable dropped_;
  std::mutex events_mutex_;  ///< of what follows; may be taken under `mutex_`
  std::vector<std::pair<CUcontext, CUevent>> spare_events_;
};

}  // namespace plexrl::shim
