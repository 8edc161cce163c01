#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "interpose/cuda_api.h"
#include "shim/disk_link.h"
#include "shim/disk_place.h"
#include "shim/scoped_fd.h"
#include "shim/va_arena.h"

namespace plexrl::shim {

/// Where evicted chunks go that find no host memory: places in this process's spill file, and the
/// staging slab that they go through, a piece in each of its slots.
///
///     HBM --copy--> slot 0 | slot 1 --the manager writes--> file        and back
///
/// A slot belongs to the pager until `begin`, to the manager until `finish`. When the manager has
/// gone before it answered, it may still be at work in the slab, if only the connection was lost:
/// the slab is then let go of for good, and the next `open` asks for another one.
///
/// Threads: the agent; `put` any, `forget_context` who ends a context, with the pager's lock.
class SpillStore {
 public:
  static constexpr std::size_t kSlots = wire::kDiskSlots;

  explicit SpillStore(DiskLink* link) noexcept : link_(link) {}
  SpillStore(const SpillStore&) = delete;
  SpillStore& operator=(const SpillStore&) = delete;

  /// Of a slot. Before the first `open`.
  void set_piece_bytes(std::size_t bytes) noexcept { piece_bytes_ = bytes; }
  /// The disk tier may be used at all.
  bool is_on() const { return !is_off_ && link_->is_on(); }
  /// There is no manager for good: what is on disk can't be had any more.
  void turn_off() noexcept { is_off_ = true; }
  /// File and staging slab are there, this registered in the current context where possible.
  bool open(CUcontext current);

  /// A place for a chunk. None: the file has no more addresses.
  std::optional<DiskPlace> take(std::size_t bytes);
  /// Nothing is needed of it any more.
  void put(const DiskPlace& place);

  std::byte* slot(std::size_t index) const noexcept { return address_ + index * piece_bytes_; }
  /// Piece `piece` of the chunk goes from the slot to the file, or comes from there. False: there
  /// is no manager, or no slab any more.
  bool begin(DiskLink::Way way, std::size_t slot, const DiskPlace& place, std::size_t piece);
  /// Waits for it. None: the manager has gone, and the slab with it.
  std::optional<wire::DiskMoved> finish(std::size_t slot);

  /// For a manager that does not know which places are free: calls `visit(offset, bytes)` for those
  /// that once were not.
  void each_free(const std::function<void(std::uint64_t, std::uint64_t)>& visit) const;

  // As in HostStore.
  void forget_context(CUcontext context);
  void end_registrations();
  void allow_registering();
  /// Of the manager's host memory.
  std::size_t held_bytes() const noexcept { return address_ == nullptr ? 0 : slab_bytes(); }

 private:
  std::size_t slab_bytes() const noexcept { return kSlots * piece_bytes_; }
  bool open_slab();
  void let_go();
  void register_slab(CUcontext current);
  void unregister();
  void pay_discards();

  DiskLink* link_;
  bool is_off_ = false;
  std::size_t piece_bytes_ = std::size_t{32} << 20;
  ScopedFd memory_;
  std::byte* address_ = nullptr;
  std::array<DiskLink::Ticket, kSlots> tickets_{};
  std::mutex registering_;
  CUcontext registered_in_ = nullptr;
  bool refused_ = false;
  bool may_register_ = true;

  struct Extent {
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  mutable std::mutex mutex_;  ///< of what follows
  VaArena free_;
  std::uint64_t end_ = 0;              ///< of what was ever taken
  bool has_places_ = false;            ///< free_ has been filled
  std::vector<Extent> owed_discards_;  ///< not free before the manager has been told
};

}  // namespace plexrl::shim
