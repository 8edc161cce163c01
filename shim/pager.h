#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "interpose/cuda_api.h"
#include "shim/contexts.h"
#include "shim/host_store.h"
#include "shim/range_table.h"
#include "shim/spill_store.h"

namespace plexrl::shim {

/// Moves chunks between HBM and host slabs, and the disk where there is no host memory: out, then
/// in.
///
/// Copies run in non-blocking streams of ours, one each way, in a context of the job that lives on
/// that device; the pager never creates a context. Where the job has none there (pools and handles
/// need none), one of a device that can access its memory as a peer lends its own, and gets that
/// access; where there is no such device either, nobody can have written what is not backed yet.
/// While one run of chunks is being copied the next is created and mapped (loading), or the last
/// one unmapped (evicting), so that the link never waits for the driver. One cuMemSetAccess covers
/// a run of neighbouring chunks; runs begin with a chunk and grow, so that the first copy is not
/// waited for either.
///
/// Only what must travels. Chunks that no gate has been open for since their content was known are
/// dropped. The others are hashed on the device while earlier ones are copied (chunk_hasher.h):
/// what consists of one repeated word leaves no copy and is filled again, and what has the digest
/// of the host copy that was kept when it was loaded leaves nothing new. Hash, comparison and unmap
/// are within one call of `evict`, during which all gates are closed and everything is at rest.
/// Copies are kept as long as the host has room, given up oldest first, and read-only in this
/// process. Where hashing takes more than half the time of copying, it is left out.
///
/// A chunk that finds no host memory goes to disk (spill_store.h) and leaves no copy there when it
/// is loaded. What the disk does not take stays in HBM, to be tried again. What can't be read back
/// is lost: it stays unmapped, so calls of the job that use it fail. Shared memory stays off the
/// disk: other chunks that are in host memory go there in its place.
///
/// Callers: the agent calls evict and load_step, only while this process's gate is closed and
/// drained; job threads call back_now (inside the gate, so that no drain completes meanwhile),
/// release, and the context functions. `mutex_` serialises the agent's moves with the end of a
/// context, which therefore waits for at most the moves in flight; nothing that waits for a lease
/// ever holds it.
///
/// Errors: OUT_OF_MEMORY and everything else that may pass is told as kNoMemory, to be tried again;
/// the chunk is then where it was. A context with a sticky error can't be copied from or to: its
/// chunks are given up, and the job learns of the error from its own next call.
class Pager {
 public:
  /// `spill`: null: there is no disk.
  Pager(RangeTable& ranges, HostStore& store, Contexts& contexts,
        SpillStore* spill = nullptr) noexcept
      : ranges_(ranges), store_(store), contexts_(contexts), spill_(spill) {}
  Pager(const Pager&) = delete;
  Pager& operator=(const Pager&) = delete;

  enum class Progress { kDone, kMore, kNoMemory };
  enum class Hashing { kWhereItPays, kAlways, kNever };

  /// Nanoseconds and bytes of a load, from its first step on.
  struct LoadFigures {
    std::uint64_t moved_bytes = 0;
    std::uint64_t zero_bytes = 0;      ///< backed without a copy
    std::uint64_t repeated_bytes = 0;  ///< filled
    std::uint64_t create_ns = 0;
    std::uint64_t map_ns = 0;      ///< cuMemMap and cuMemSetAccess
    std::uint64_t copy_ns = 0;     ///< waiting for copies
    std::uint64_t link_ns = 0;     ///< that the bytes moved take at the best rate seen
    std::uint64_t disk_bytes = 0;  ///< of the moved ones, those from disk
    std::uint64_t disk_ns = 0;     ///< waiting for the manager to read them
  };

  struct EvictFigures {
    std::uint64_t freed_bytes = 0;
    std::uint64_t moved_bytes = 0;
    std::uint64_t untouched_bytes = 0;
    std::uint64_t repeated_bytes = 0;
    std::uint64_t unchanged_bytes = 0;
    std::uint64_t copy_ns = 0;
    std::uint64_t hash_ns = 0;  ///< waiting for hashes
    std::uint64_t unmap_ns = 0;
    std::uint64_t link_ns = 0;     ///< as in LoadFigures
    std::uint64_t disk_bytes = 0;  ///< of the moved ones, those to disk
    std::uint64_t disk_ns = 0;     ///< waiting for the manager to write them
    bool failed = false;           ///< some chunk had to stay
  };

  /// Tests; before use.
  void set_hashing(Hashing hashing) noexcept { hashing_ = hashing; }

  enum class Order {
    kByAddress,
    kBySlab  ///< host slabs become empty one by one: others wait for them
  };

  /// Loads the next run of missing chunks of `device`; kDone when none is missing or in flight,
  /// kNoMemory with none in flight either.
  Progress load_step(CUdevice device, LoadFigures* figures, Order order = Order::kByAddress);

  /// Loads a run of missing chunks of `device`, at most `most` bytes, and waits for it: nothing is
  /// in flight between two steps. kDone when none is missing, or none so small, or exit() has
  /// begun.
  Progress prefetch_step(CUdevice device, std::uint64_t most, LoadFigures* figures);

  /// Waits for the copies of a load that is not gone on with: the lease is about to end.
  void finish_loads(LoadFigures* figures);

  /// Moves out at least `bytes`, or all there is.
  EvictFigures evict(CUdevice device, std::uint64_t bytes);

  /// Others need host memory: gives up kept copies, oldest first, until so many bytes of slabs have
  /// gone back to the manager, or nothing is left that is not needed. Returns how many. Agent.
  std::size_t give_back_host(std::size_t bytes);

  /// There is no manager for good: chunks on disk are lost when they are loaded. Agent.
  void leave_disk() noexcept {
    if (spill_ != nullptr) spill_->turn_off();
  }

  /// Backs the unbacked chunks of `range` now, without copies. False: no memory; what is unbacked
  /// stays so.
  bool back_now(const Range* range);

  /// Unmaps and releases a range that RangeTable::remove or settle handed out, and its host copy.
  void release(std::unique_ptr<Range> range);

  /// Access of devices beside its own to the range that begins at `start`, now and whenever it is
  /// backed again. Waits for moves in flight. Errors: the driver's; INVALID_VALUE without a range.
  CUresult set_range_access(std::uint64_t start, const std::vector<CUmemAccessDesc>& access);

  // The job maps, unmaps or gives access to the range that begins at `range` at addresses of its
  // own. What is in HBM changes at once, the rest when it is backed. All wait for moves in flight.
  // Errors: the driver's, and nothing has changed then; INVALID_VALUE without such a range.
  CUresult add_alias(std::uint64_t range, std::uint64_t start);
  CUresult remove_alias(std::uint64_t range, std::uint64_t start);
  CUresult set_alias_access(std::uint64_t range, std::uint64_t start,
                            const std::vector<CUmemAccessDesc>& access);

  /// Calls `use` for each chunk of the range that begins at `range`: offset, bytes, driver's
  /// handle. Errors: the first of `use`; NOT_READY where a chunk is not in HBM, and for the agent,
  /// which may not wait for its own moves, while some are in flight. Chunks that are lost are
  /// passed over and noted in `lost`, by number; where that is null they are not in HBM like
  /// others.
  CUresult with_chunks(
      std::uint64_t range,
      const std::function<CUresult(std::size_t, std::size_t, CUmemGenericAllocationHandle)>& use,
      bool may_wait = true, std::vector<std::size_t>* lost = nullptr);

  // Memory of another process (sharing.h), chunk by chunk; the claim is of one chunk. Agent only.
  /// Maps what `fd` stands for as the chunk. False: the chunk is as it was.
  bool map_imported(const RangeTable::Claim& claim, int fd);
  /// The chunk is lost: nobody has it any more.
  void give_up(const RangeTable::Claim& claim) { settle(claim, claim.first, ChunkState::kLost); }
  /// Unmaps chunks of an imported range and lets their handles go. Nothing of this process may be
  /// running.
  void unmap_imported(std::uint64_t range, std::size_t first, std::size_t count);
  /// What an imported range has in HBM stays, `parked` (by chunk) has the bytes of the rest; from
  /// now on this process owns it. Chunks that it never had, and whose owner never said where they
  /// are, are lost: what was parked of them may be older than what the owner died with. Returns
  /// which.
  std::vector<std::size_t> adopt(std::uint64_t range,
                                 const std::map<std::size_t, HostSpan>& parked);

  /// Told of each evicted chunk of a range with an export_id: where its bytes are, empty if it has
  /// none. Set before use.
  using OnParked = std::function<void(std::uint64_t export_id, std::size_t chunk, const HostSpan&)>;
  void set_on_parked(OnParked on_parked) { on_parked_ = std::move(on_parked); }

  /// Before `context` may end: takes the pager's stream and registrations off it. The pager stays
  /// out of every context until the returned lock is let go.
  [[nodiscard]] std::unique_lock<std::mutex> leave_context(CUcontext context);

  /// exit() has begun, which may close the driver at any moment: an eviction that is under way ends
  /// early, and for kExitNs from now on the next ones fail at once. By then the process has ended,
  /// and everything has left with it, or is one that takes long to end. Waits for copies in flight.
  void begin_exit() noexcept;
  static constexpr std::uint64_t kExitNs = 2'000'000'000;

  /// `peer` may also access the memory of `owner`'s device (cuCtxEnablePeerAccess): what is mapped
  /// now, and later.
  void add_peer(const Contexts::Known& owner, const Contexts::Known& peer);
  /// Undoes it. The driver gives and takes access to what is mapped by device, not by context: it
  /// stays while other contexts of the two devices have it.
  void remove_peer(const Contexts::Known& owner, const Contexts::Known& peer);
  /// The context has ended, and with it what it was allowed and has allowed.
  void remove_peers_of(CUcontext ended);

 private:
  struct InFlight {
    RangeTable::Claim claim;
    CUevent event = nullptr;
    std::size_t bytes = 0;                      ///< over the link
    std::optional<std::size_t> hash;            ///< slot of the hasher: under way beside the copy
    std::optional<ChunkHasher::Digest> digest;  ///< of what is copied
  };
  /// A chunk of an eviction that is being hashed before anything else happens to it.
  struct Hashed {
    RangeTable::Claim claim;
    std::size_t slot;
  };
  /// A chunk on its way to disk.
  struct Spilling {
    RangeTable::Claim claim;
    DiskPlace place;
    std::size_t unanswered = 0;  ///< pieces that the manager writes
    bool is_begun = false;       ///< all of it
    CUresult result = CUDA_SUCCESS;
  };
  struct SpillMove {
    Spilling* of;
    std::size_t piece;
    std::size_t slot;
  };
  /// Copies one way from an idle link until it is idle again.
  struct Burst {
    std::uint64_t start_ns = 0;
    std::size_t bytes = 0;
  };
  struct Lane {
    CUcontext context = nullptr;  ///< null: not open
    CUstream out = nullptr;
    CUstream in = nullptr;
    std::vector<CUevent> spare_events;
    std::deque<InFlight> in_flight;  ///< all of one direction
    std::size_t in_flight_bytes = 0;
    std::size_t run_chunks = 1;  ///< of the next load
    Burst burst;
    double best_pace[2] = {};  ///< ns a byte, by way, of the fastest burst; 0: none yet
    ChunkHasher hasher;
    std::deque<Hashed> hashed;
    double hash_pace = 0;  ///< ns a byte; 0: not known
    unsigned evictions_without_hash = 0;
    bool has_no_host = false;      ///< in this eviction: the manager had none
    bool has_no_disk = false;      ///< likewise
    std::list<Spilling> spilling;  ///< in the order in which they began
    std::deque<SpillMove> spill_moves;
  };
  enum Way { kOut, kIn };

  /// In which context to copy for `device`, and whose that is; none: no context reaches it.
  std::optional<Contexts::Known> context_for(CUdevice device);
  void lend(CUdevice device, CUdevice lender);
  bool open_lane(CUdevice device, Lane& lane);
  void close_lane(Lane& lane);
  CUevent take_event(Lane& lane);
  bool issue(Lane& lane, CUstream stream, InFlight move);

  // Loading.
  Progress load_run(CUdevice device, Lane& lane, std::uint64_t most, Order order,
                    LoadFigures* figures);
  Progress back_without_context(CUdevice device, LoadFigures* figures);
  /// Creates and maps chunks of the claim until one fails, gives access to them all, shortens the
  /// claim to those that are ready and settles the others as they were.
  void prepare(RangeTable::Claim* claim, LoadFigures* figures);
  Progress copy_in(Lane& lane, const RangeTable::Claim& claim, LoadFigures* figures);
  Progress settle_oldest_load(Lane& lane, LoadFigures* figures);
  Progress end_load(const RangeTable::Claim& claim, CUresult copied);
  void say_given_up(CUresult result, std::size_t bytes);

  /// After a copy has ended. The link is idle: returns the time that the burst takes at the best
  /// pace. Else 0.
  static std::uint64_t end_burst(Lane& lane, Way way);

  // Evicting. A claim is one chunk.
  enum class Saved { kNothing, kUntouched, kUnchanged, kRepeated };
  bool is_exiting() const noexcept;
  bool may_hash(Lane& lane) const;
  void start_eviction(Lane& lane, const RangeTable::Claim& claim, bool may_hash,
                      EvictFigures* figures);
  /// `measured_from`: when it was begun, alone; 0: it was not.
  void settle_oldest_hash(Lane& lane, std::uint64_t measured_from, EvictFigures* figures);
  void copy_out(Lane& lane, InFlight move, EvictFigures* figures);
  bool find_host_memory(Lane& lane, const RangeTable::Claim& claim, EvictFigures* figures);
  void settle_oldest_eviction(Lane& lane, EvictFigures* figures);
  void end_eviction(const RangeTable::Claim& claim, Saved saved, CUresult result,
                    EvictFigures* figures);

  // The disk (pager_disk.cc).
  bool may_spill(const Lane& lane, const RangeTable::Claim& claim) const;
  void spill_out(Lane& lane, const RangeTable::Claim& claim, EvictFigures* figures);
  static std::optional<std::size_t> free_slot(const Lane& lane);
  CUresult write_piece(Lane& lane, const Spilling& its, std::size_t piece, std::size_t slot,
                       EvictFigures* figures);
  void settle_oldest_piece(Lane& lane, EvictFigures* figures);
  void end_spilled(Lane& lane, EvictFigures* figures);
  bool spill_from_host(Lane& lane, EvictFigures* figures);
  bool write_from_host(Lane& lane, const Chunk& chunk, DiskPlace* place, EvictFigures* figures);
  enum class Fetched { kDone, kNotNow, kLost };
  struct Fetch {
    std::size_t chunk;  ///< of the claim
    std::size_t piece;
  };
  /// All chunks of the claim are on disk.
  Progress load_spilled(Lane& lane, RangeTable::Claim claim, LoadFigures* figures);
  void fetch_all(Lane& lane, const RangeTable::Claim& claim, std::vector<Fetched>* fetched,
                 LoadFigures* figures);
  template <typename Begin>
  Fetched fetch(Lane& lane, const RangeTable::Claim& claim, const Fetch& its, std::size_t slot,
                Begin begin, std::size_t index, LoadFigures* figures);
  void end_fetch(const RangeTable::Claim& claim, std::size_t index, Fetched fetched);

  // Mappings: at the range's own addresses and at every alias (pager_map.cc).
  /// Creates the chunk's memory and maps it everywhere. Leaves nothing behind on an error.
  CUresult map_chunk(Range& range, Chunk& chunk, LoadFigures* figures);
  /// Maps the chunk's handle everywhere; on an error nowhere.
  CUresult map_handle(const Range& range, const Chunk& chunk);
  /// Unmaps it everywhere and releases it; on an error it is mapped as before.
  CUresult unmap_chunk(Range& range, Chunk& chunk);
  /// Access to chunks [first, first + count), which are mapped, as each mapping has it.
  CUresult give_access(const Range& range, std::size_t first, std::size_t count);
  /// Unmaps and releases chunks of a claim, counted from its first. The first failure.
  CUresult unmap(const RangeTable::Claim& claim, std::size_t from, std::size_t count);
  // After the last chunk of a claim is settled its range may be gone.
  void settle(const RangeTable::Claim& claim, std::size_t index, ChunkState state);
  void settle_all(const RangeTable::Claim& claim, ChunkState state);
  void settle_back(const RangeTable::Claim& claim, std::size_t from);
  /// Settles what comes after the first `count` chunks as it was.
  void shorten(RangeTable::Claim* claim, std::size_t count);
  CUmemAllocationProp properties(const Range& range);
  CUmemAllocationProp usual_properties(CUdevice device);
  CUresult set_access(const Range& range, std::uint64_t start, std::size_t bytes);
  CUresult apply_access(const RangeTable::Claim& claim);
  void apply_access_on(CUdevice device);
  struct PeerAccess {
    Contexts::Known owner;
    Contexts::Known peer;
  };
  template <typename Is>
  void remove_peers(Is is_gone);
  void take_access(const RangeTable::Claim& claim, CUdevice peer);
  bool may_access(const Range& range, CUdevice device);

  RangeTable& ranges_;
  HostStore& store_;
  Contexts& contexts_;
  SpillStore* spill_;
  std::mutex mutex_;
  bool said_given_up_ = false;             ///< since a context last ended
  std::atomic<std::uint64_t> exit_ns_{0};  ///< when exit() began; 0: it has not
  std::map<CUdevice, Lane> lanes_;
  OnParked on_parked_;
  Hashing hashing_ = Hashing::kWhereItPays;
  std::mutex devices_mutex_;  ///< of the maps below; never held in a driver call
  std::vector<PeerAccess> peers_;
  std::map<CUdevice, CUdevice> lenders_;  ///< device → whose context copies for it, not its own
  std::map<CUdevice, CUmemAllocationProp> properties_;
};

}  // namespace plexrl::shim
