#pragma once

#include "tools/simgpu/driver/cuda_api.h"

#include <cstdint>
#include <list>
#include <map>
#include <mutex>

#include "tools/simgpu/driver/stream.h"

namespace plexrl::simgpu {

/// A CUmemoryPool is the address of one: memory of one device that is allocated and freed in stream
/// order ("Stream Ordered Memory Allocator", CUDA programming guide).
///
/// All bookkeeping happens at the call, so that a program may run far ahead of its device. What is
/// freed waits as `pending` with the end of its free: the same stream may have it again at once,
/// because its order protects the bytes; another stream after that end.
///
/// A pool with a tag can be shared with other processes. There an imported pool has the same tag,
/// allocates nothing, and maps the segments of what is imported into it; a free there gives back
/// that process's hold only.
///
/// Threads: any. No lock is held while a stream is asked for something.
class MemoryPool {
 public:
  /// `max_bytes` 0: as much as the device has. `tag` 0: not to be shared.
  MemoryPool(int device, std::uint64_t max_bytes, std::uint64_t tag = 0, bool is_imported = false);

  /// Memory for the work that `stream` gets next. Errors: INVALID_VALUE for 0 bytes, OUT_OF_MEMORY.
  CUresult allocate(std::uint64_t bytes, Stream* stream, std::uint64_t* address);
  /// Takes the allocation at `address` out of use; give_back must follow. False: none is there.
  bool take(std::uint64_t address);
  /// After take: the memory may be had again, by another stream than `stream` after `end` (nullptr:
  /// now).
  void give_back(std::uint64_t address, const Stream* stream, CompletionPtr end);
  /// After take: the allocation stays as it was.
  void keep(std::uint64_t address);

  /// An allocation as other processes know it: a part of one of the machine's allocations.
  struct Part {
    std::uint32_t allocation;
    std::uint64_t allocation_tag;
    std::uint64_t offset, bytes;  ///< in it; as asked for
  };
  /// False: no allocation of this pool is there.
  bool locate(std::uint64_t address, Part* part);
  /// Into an imported pool. Errors: INVALID_VALUE when there is no such memory (any more),
  /// ALREADY_MAPPED, OUT_OF_MEMORY without address space.
  CUresult import(const Part& part, std::uint64_t* address);
  std::uint64_t tag() const { return tag_; }
  bool is_imported() const { return is_imported_; }

  /// Gives whole unused segments back to the device while more than `keep_bytes` are reserved.
  void trim(std::uint64_t keep_bytes);
  /// As every synchronisation does: trims to the release threshold.
  void trim_to_threshold();

  CUresult set_attribute(CUmemPool_attribute attribute, const void* value);
  CUresult get_attribute(CUmemPool_attribute attribute, void* value);
  void set_access(int device, CUmemAccess_flags flags);
  CUmemAccess_flags access(int device);
  int device() const { return device_; }
  bool is_unused();

 private:
  struct Segment {
    std::uint64_t bytes;
    std::uint32_t allocation;
    std::map<std::uint64_t, std::uint64_t> holes;  // address -> bytes
  };
  struct Pending {
    std::uint64_t address, bytes, stream;
    CompletionPtr end;
  };
  // All of these need mutex_.
  void settle();
  void add_hole(std::uint64_t address, std::uint64_t bytes);
  std::uint64_t from_holes(std::uint64_t bytes);
  std::uint64_t from_pending(std::uint64_t bytes, const Stream* stream, CompletionPtr* end);
  bool grow(std::uint64_t bytes);
  CUresult add_segment(std::uint32_t allocation);
  void hand_out(std::uint64_t address, std::uint64_t size, std::uint64_t bytes);
  void trim_locked(std::uint64_t keep_bytes);
  void drop(std::map<std::uint64_t, Segment>::iterator segment);

  const int device_;
  const std::uint64_t max_bytes_;
  const std::uint64_t tag_;
  const bool is_imported_;
  std::mutex mutex_;
  std::map<std::uint64_t, Segment> segments_;      // by base
  std::map<std::uint64_t, std::uint64_t> living_;  // address -> rounded bytes
  std::list<Pending> pending_;
  unsigned readable_ = 0, writable_ = 0;  ///< bit n: device n may
  int switches_[3] = {1, 1, 1};           ///< the three reuse attributes
  std::uint64_t threshold_ = 0;
  std::uint64_t reserved_ = 0, reserved_high_ = 0;
  std::uint64_t used_ = 0, used_high_ = 0;
};

/// nullptr: no living pool of this process.
MemoryPool* find_pool(CUmemoryPool handle);
/// Makes a pool known by its handle.
CUmemoryPool keep_pool(MemoryPool* pool);
/// Trims every pool of the device to its threshold; called where a thread has synchronised.
void trim_pools(int device);
/// Frees pool memory at once, for cuMemFree. False: `address` is no allocation of a pool.
bool free_pool_memory(std::uint64_t address);

}  // namespace plexrl::simgpu
