#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "interpose/cuda_api.h"
#include "shim/va_arena.h"

namespace plexrl::shim {

/// A stream as stream order means it: two allocations on equal streams come one after the other.
/// `thread` is 0 but for a thread's own default stream, which has one handle in all threads.
struct StreamKey {
  CUstream stream = nullptr;  ///< never 0: CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, or a handle
  CUcontext context = nullptr;
  std::uint64_t thread = 0;
  friend bool operator==(const StreamKey&, const StreamKey&) = default;
};

/// The place in a stream's order where something was freed. Over when the work before it is.
struct FreeMark {
  StreamKey where;
  CUevent event = nullptr;  ///< null: over when nothing of the process is outstanding
  bool is_over = false;
  bool is_frozen = false;      ///< its context is about to end: the event must not be touched
  bool follows = true;         ///< false: the stream is gone, nothing that comes follows it
  bool seen_finished = false;  ///< without an event: nothing was outstanding once since
};
using FreeMarkPtr = std::shared_ptr<FreeMark>;

/// The addresses of one memory pool: segments, what lives in them, what was freed and when it may
/// be used again.
///
/// Freed memory is at once free for later work of the same stream, whose order protects the bytes,
/// and for everybody once its mark is over. Pure bookkeeping: knows neither the driver nor charges.
/// Sizes are bytes. Threads: the caller locks.
class PoolSpace {
 public:
  /// Every address is a multiple of it, as of the bare driver's pools.
  static constexpr std::size_t kAlignment = 512;

  struct Allocation {
    std::uint64_t start;
    std::size_t bytes;  ///< as asked for
    std::uint64_t identifier;
  };

  static std::size_t rounded(std::size_t bytes) noexcept;

  void add_segment(std::uint64_t start, std::size_t bytes);

  /// A place for `bytes` in what is free for everybody; none when a segment must be added.
  std::optional<std::uint64_t> take_free(std::size_t bytes);
  /// … in what was freed in stream order before what `stream` gets next.
  std::optional<std::uint64_t> take_following(std::size_t bytes, const StreamKey& stream);
  /// … in what was freed anywhere; work that uses it must come after `*after`.
  std::optional<std::uint64_t> take_after(std::size_t bytes, FreeMarkPtr* after);

  /// Exactly at `address`, in what lives nowhere, whether or not what was freed there is over: for
  /// memory whose order others see to. False: something lives there, or it is in no segment.
  bool take_at(std::uint64_t address, std::size_t bytes);

  /// The allocation that holds `address`, which may be inside it.
  std::optional<Allocation> find(std::uint64_t address) const;

  /// Frees the allocation that begins at `address`; `mark` null: free for everybody at once.
  /// False: none begins there.
  bool free(std::uint64_t address, FreeMarkPtr mark);

  /// Puts what has been marked over among what is free for everybody.
  void settle();
  /// Marks of what is not free yet.
  std::vector<FreeMarkPtr> marks() const;

  /// Takes out unused segments while more than `keep_bytes` are reserved. Returns their starts.
  std::vector<std::uint64_t> trim(std::size_t keep_bytes);
  /// Whether it would find some if all marks were over.
  bool has_unused(std::size_t keep_bytes) const;

  std::size_t reserved_bytes() const noexcept { return reserved_; }
  std::size_t reserved_high() const noexcept { return reserved_high_; }
  std::size_t used_bytes() const noexcept { return used_; }
  std::size_t used_high() const noexcept { return used_high_; }
  void reset_reserved_high() noexcept { reserved_high_ = reserved_; }
  void reset_used_high() noexcept { used_high_ = used_; }
  bool is_unused() const noexcept { return living_.empty() && pending_.empty(); }

 private:
  struct Segment {
    std::size_t bytes;
    VaArena free_space;
  };
  struct Pending {
    std::uint64_t address;
    std::size_t bytes;
    FreeMarkPtr mark;
  };
  std::uint64_t take_piece(std::list<Pending>::iterator from, std::size_t size);
  std::uint64_t note(std::uint64_t address, std::size_t bytes);

  std::map<std::uint64_t, Segment> segments_;   ///< by start
  std::map<std::uint64_t, Allocation> living_;  ///< by start
  std::list<Pending> pending_;
  std::size_t reserved_ = 0, reserved_high_ = 0;
  std::size_t used_ = 0, used_high_ = 0;
  std::uint64_t next_identifier_ = 1;
};

}  // namespace plexrl::shim
