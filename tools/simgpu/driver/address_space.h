#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "tools/simgpu/driver/machine.h"
#include "tools/simgpu/ptx/executor.h"

namespace plexrl::simgpu {

/// What a range of addresses is, for pointer queries and for frees.
struct Range {
  enum class Kind {
    kDevice,
    kVmmReservation,
    kPool,
    kManaged,
    kArray,  ///< of a CUDA array: no pointer of the program's
    kIpc,
    kHost,
    kHostRegistered
  };
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;  ///< as asked for
  Kind kind = Kind::kDevice;
  int device = 0;
  void* context = nullptr;       ///< Context* that made it; nullptr for VMM and pools
  std::uint32_t allocation = 0;  ///< the machine's id, 0 when a part of a shared block
  std::uint64_t id = 0;          ///< CU_POINTER_ATTRIBUTE_BUFFER_ID
  unsigned host_flags = 0;
  void* pool = nullptr;
};

/// The device addresses of this process: one arena for all devices, accessible to the host only
/// where managed memory is, and a page table a device. Host memory that devices may use (pinned,
/// registered) is in the same table of ranges.
///
/// Threads: any. Translation (`AddressSpace::pages`) takes no lock; `find` and `host_range` take a
/// shared one.
class Addresses {
 public:
  static constexpr std::uint64_t kArenaBytes = 1ull << 40;

  /// False when the process has no room for the arena (a limit on address space).
  bool initialise(int devices);

  /// A free stretch of the arena, aligned to `alignment` (at least kFrameBytes); at `hint` if that
  /// is free. 0: none.
  std::uint64_t reserve(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t hint);
  void unreserve(std::uint64_t base, std::uint64_t bytes);
  bool is_reserved(std::uint64_t base, std::uint64_t bytes) const;

  /// Makes [base, …) mean `frames` for `device`, or nothing when `frames` is empty.
  void map(int device, std::uint64_t base, const std::vector<std::byte*>& frames);
  void unmap(int device, std::uint64_t base, std::uint64_t bytes);
  /// Takes back what the host has at these addresses (Machine::map_for_host).
  static void hide_from_host(std::uint64_t base, std::uint64_t bytes);
  /// Gives device `to` what device `from` has at these addresses.
  void share(int from, int to, std::uint64_t base, std::uint64_t bytes);

  /// Where a device's addresses mean a frame that is a key of `moved`, they mean its value from now
  /// on.
  void move_frames(int device, const std::map<std::byte*, std::byte*>& moved);

  void add(const Range& range);
  bool remove(std::uint64_t base, Range* removed);
  /// The range that holds `address`.
  std::optional<Range> find(std::uint64_t address) const;
  std::vector<Range> ranges_of(const void* context) const;
  bool has(Range::Kind kind) const;

  const ptx::AddressSpace* view(int device) const {
    return &views_[static_cast<std::size_t>(device)];
  }
  bool in_arena(std::uint64_t address) const { return address - arena_ < kArenaBytes; }
  /// Host address of `address` for `device` and how many bytes follow it there; nullptr when it
  /// means nothing.
  std::byte* translate(int device, std::uint64_t address, std::uint64_t* contiguous) const;
  std::uint64_t next_id() { return ++ids_; }

 private:
  static std::byte* host_range(void* self, std::uint64_t address, std::size_t bytes);

  std::uint64_t arena_ = 0;
  std::vector<std::atomic<std::byte*>*> tables_;
  std::vector<ptx::AddressSpace> views_;
  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> free_;  // base -> bytes, never touching
  std::map<std::uint64_t, Range>
      ranges_;  // by base; nested ones (parts of reservations) are not kept
  std::atomic<std::uint64_t> ids_{0};
};

}  // namespace plexrl::simgpu
