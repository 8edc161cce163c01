#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "shim/range.h"
#include "shim/va_arena.h"

namespace plexrl::shim {

/// All device memory that this process has from us, and which of its chunks are where.
///
/// Addresses come from arenas reserved once with cuMemAddressReserve and never given back to the
/// driver (it takes an address as a hint only, so giving back and asking again would be a race with
/// the job); they stay valid until `remove` (invariant 1). Sizes are bytes.
///
/// Moving a chunk is done in three steps by one thread: claim (the chunk becomes kMoving), driver
/// calls without any lock, settle. Freeing a range never waits for a mover: the range is doomed,
/// and the mover gets it from its last settle to release.
///
/// Threads: any; every function takes `mutex_`, which is never held in a driver call.
class RangeTable {
 public:
  /// `least_granularity`: of chunks, whatever the device allows.
  explicit RangeTable(std::size_t least_granularity = std::size_t{2} << 20) noexcept
      : granularity_(least_granularity) {}

  /// Of one device, in bytes.
  struct Totals {
    std::uint64_t resident = 0;
    std::uint64_t host = 0;
    std::uint64_t disk = 0;
    std::uint64_t unbacked = 0;
    std::uint64_t moving = 0;
    std::uint64_t pinned = 0;  ///< of the resident and the moving ones
    std::uint64_t lost = 0;
  };

  /// Neighbouring chunks of one range, claimed by the caller.
  struct Claim {
    Range* range = nullptr;
    std::size_t first = 0;
    std::size_t count = 0;
    std::vector<ChunkState> came_from;  ///< the state of each before the claim
    std::uint64_t start() const { return range->start + range->chunks[first].offset; }
    std::size_t bytes() const;
  };

  /// What is known of the range around an address.
  struct Description {
    std::uint64_t start;
    std::size_t bytes;
    CUdevice device;
    CUcontext context;
    std::uint64_t identifier;
    bool is_shared_block;
    wire::MemoryKind kind;
  };

  /// Sizes of chunks from now on: `chunk_bytes` for large ranges, a multiple of `granularity`.
  void set_geometry(std::size_t chunk_bytes, std::size_t granularity);
  /// What the job may export is one chunk from now on, however large: one descriptor of the
  /// driver's names one chunk.
  void set_whole_exports(bool whole);
  std::size_t mapped_size(std::size_t bytes) const;

  /// Reserves addresses for `bytes`, unbacked. The result lives until `remove`. `context` is null
  /// for what belongs to a device and outlives every context. Errors: the driver's,
  /// CUDA_ERROR_OUT_OF_MEMORY when no addresses are left.
  CUresult reserve(CUdevice device, CUcontext context, std::size_t bytes, bool is_shared_block,
                   Range** out, wire::MemoryKind kind = wire::MemoryKind::kAlloc,
                   const CUmemAllocationProp* properties = nullptr);

  /// The same for memory of another process, in chunks as its owner has them: `access` beside the
  /// device's own. Never charged.
  CUresult reserve_import(CUdevice device, std::size_t bytes, std::size_t chunk_bytes,
                          const std::vector<CUmemAccessDesc>& access, Range** out);

  /// How the range that begins at `start` is cut; none without one.
  struct Layout {
    CUdevice device;
    std::size_t bytes;
    std::size_t chunk_bytes;
    std::size_t chunks;
  };
  std::optional<Layout> layout(std::uint64_t start) const;
  void set_export(std::uint64_t start, std::uint64_t id);
  /// From now on `describe` does not know the range.
  void hide(std::uint64_t start);

  std::optional<Description> describe(std::uint64_t address) const;
  /// Whether the address is one of those that were reserved for ranges, in use or not. The job
  /// knows only its allocations there.
  bool reserves(std::uint64_t address) const;
  /// False: certainly not. Two loads, no lock.
  bool may_reserve(std::uint64_t address) const noexcept {
    return address >= lowest_.load(std::memory_order_relaxed) &&
           address < highest_.load(std::memory_order_relaxed);
  }
  std::vector<std::uint64_t> starts_of(CUcontext context) const;
  std::vector<std::uint64_t> starts_on(CUdevice device) const;

  /// Takes the range that begins at `start` out. `*freed_bytes` is its charge, `*pinned_bytes` what
  /// of it was pinned. Returns it for release by the caller; null when no range begins there, or
  /// while claims are out (it is doomed then).
  std::unique_ptr<Range> remove(std::uint64_t start, std::size_t* freed_bytes,
                                std::size_t* pinned_bytes = nullptr);

  /// After a removed range is unmapped: its addresses may be used again.
  void return_addresses(const Range& range);

  /// The next run of chunks on `device` that are not in HBM, at most `max_chunks`; none when all
  /// are resident or being moved. `only` restricts it to one range.
  std::optional<Claim> claim_missing(CUdevice device, std::size_t max_chunks,
                                     const Range* only = nullptr);
  /// The same, slab by slab: first those whose bytes are in the host slab that has the fewest.
  std::optional<Claim> claim_missing_by_slab(CUdevice device, std::size_t max_chunks);
  /// Resident chunks of `device`, of at least `bytes` in all or all there are; each a claim of one
  /// chunk. Before the next launch all of them are needed again, so those come first that may leave
  /// for nothing: known content, then a kept copy with its digest; among equals the least recently
  /// used.
  std::vector<Claim> claim_victims(CUdevice device, std::uint64_t bytes);
  /// Takes the oldest host copy of a resident chunk away, which belongs to the caller then; empty:
  /// there is none. Those of shared memory stay (sharing.h).
  HostSpan take_oldest_copy();
  /// The chunk that has been in host memory for longest, but none of shared memory.
  std::optional<Claim> claim_oldest_in_host();

  /// Every chunk of the range that begins at `start`, whatever its state: what is mapped where can
  /// be changed meanwhile. Waits for the moves in flight; with `may_wait` false, which it is for
  /// whoever makes them, none while there are some. None: no range begins there.
  std::optional<Claim> claim_all(std::uint64_t start, bool may_wait = true);

  /// Chunk `index` of the range that begins at `start`, if it has no memory.
  std::optional<Claim> claim_one(std::uint64_t start, std::size_t index);
  /// First and number of the next run of chunks without memory, at most `most`.
  std::optional<std::pair<std::size_t, std::size_t>> unbacked_run(std::uint64_t start,
                                                                  std::size_t most) const;
  // Memory that others than this process's gated calls read or write. The caller is inside an open
  // gate, so that the chunks are in HBM.
  struct Pinned {
    std::uint64_t range;  ///< its identifier
    std::uint64_t fresh;  ///< sum of the chunks that were not pinned before
  };
  /// Keeps the chunks behind the bytes in HBM until as many `unpin` or the range's end. None: they
  /// are not all chunks of one own range.
  std::optional<Pinned> pin(std::uint64_t address, std::size_t bytes, const PinReason& reason);
  /// Ends a pin of the range of that identifier. Returns the sum of the chunks that are not pinned
  /// any more: none where the range has ended, whatever is at its address now.
  std::uint64_t unpin(std::uint64_t address, std::size_t bytes, std::uint64_t range,
                      const PinReason& reason);
  bool is_pinned(std::uint64_t address) const;
  /// Of the pinned ranges of `device`, each once.
  std::vector<const char*> pin_reasons(CUdevice device) const;

  /// An imported range, all of it claimed, becomes our own.
  void adopt(const Claim& claim);
  /// Whether every chunk that other processes own is mapped here.
  bool has_all_imports() const;
  /// While it is unsure whether an imported range is mapped as its owner has it, no gate opens.
  void set_unsure(std::uint64_t start, bool is_unsure);
  bool is_unsure(std::uint64_t start) const;
  /// What is not mapped of an imported range is lost. Returns how many bytes are. Waits for the
  /// moves in flight.
  std::size_t give_up(std::uint64_t start);
  /// The owner of the imported chunk has said what became of it.
  void note_known(std::uint64_t start, std::size_t index);
  /// What was known of the chunks that are not mapped is old.
  void forget_known(std::uint64_t start);
  /// What is not mapped of them never will be, and nothing waits for it any more. (False: tests.)
  void give_up_imports(bool given_up = true);

  /// Ends a claim on one chunk. Returns the range if it was doomed and this was the last claim.
  [[nodiscard]] std::unique_ptr<Range> settle(const Claim& claim, std::size_t index,
                                              ChunkState state);

  /// Runs `then` under the lock if no chunk of any device is missing or moving; says whether it
  /// did. So no allocation can slip in between the check and the opening of the gate.
  template <typename Then>
  bool when_complete(Then then) {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, totals] : totals_) {
      const bool is_missing =
          key.second == wire::MemoryKind::kIpc
              ? lacks_imports(totals)
              : totals.unbacked + totals.host + totals.disk + totals.moving != 0;
      if (is_missing) return false;
    }
    then();
    return true;
  }

  /// The gate opens: what is resident may be written from now on.
  void note_gate_open();
  void note_use(std::uint64_t address);

  /// Of what this process owns: imports are not in it.
  Totals totals(CUdevice device) const;
  /// By kind, in the order of MemoryKind; what is pinned as what it is shown as.
  std::array<Totals, wire::kMemoryKinds> shown_totals(CUdevice device) const;
  std::uint64_t charged_bytes(CUdevice device) const;

 private:
  Totals& totals_of(const Range& range) { return totals_[{range.device, range.kind}]; }
  static std::uint64_t& bucket(Totals& totals, ChunkState state);
  void move(Range& range, Chunk& chunk, ChunkState to);
  CUresult grow(std::size_t bytes);
  CUresult place(std::unique_ptr<Range> range, std::size_t chunk_bytes, Range** out);
  bool lacks_imports(const Totals& totals) const;
  template <typename Wanted>
  std::optional<Claim> claim_first(CUdevice device, std::size_t max_chunks, Wanted is_wanted);
  Range* at(std::uint64_t start) const;
  Range* around(std::uint64_t address) const;

  mutable std::mutex mutex_;
  std::condition_variable settled_;  ///< a range has no claims any more
  std::size_t chunk_bytes_ = std::size_t{32} << 20;
  std::size_t granularity_;
  bool has_whole_exports_ = false;
  bool imports_given_up_ = false;
  std::size_t unsure_ = 0;  ///< ranges
  VaArena arena_;
  std::map<std::uint64_t, std::size_t> reserved_;  ///< of it: start -> bytes
  /// All of them lie between; written under the lock, before an address of theirs is given out.
  std::atomic<std::uint64_t> lowest_{~std::uint64_t{0}}, highest_{0};
  std::map<std::uint64_t, std::unique_ptr<Range>> ranges_;
  std::vector<std::unique_ptr<Range>> doomed_;
  std::map<std::pair<CUdevice, wire::MemoryKind>, Totals> totals_;
  std::uint64_t next_identifier_ = 1;
  std::uint64_t clock_ = 0;
};

/// That of this process; never destroyed.
RangeTable& ranges();

}  // namespace plexrl::shim
