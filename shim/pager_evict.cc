#include <ctime>
#include <mutex>
#include <utility>

#include "interpose/driver.h"
#include "shim/boottime.h"
#include "shim/driver_scope.h"
#include "shim/fault_points.h"
#include "shim/log.h"
#include "shim/pager.h"
#include "shim/stream_end.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "pager";
/// Copies in flight before the oldest is waited for, unmapped and released.
constexpr std::size_t kWindowBytes = std::size_t{128} << 20;
/// Hashes under way before the oldest is waited for: enough to keep the device busy.
constexpr std::size_t kMostHashes = 4;
/// Hashing pays where it takes at most this share of the time that copying takes.
constexpr double kHashShare = 0.5;
/// Where it did not pay it is tried again after so many evictions.
constexpr unsigned kTryAgain = 16;

}  // namespace

Pager::EvictFigures Pager::evict(CUdevice device, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  EvictFigures figures;
  Lane& lane = lanes_[device];
  const RelaxedCapture relaxed;
  if (is_exiting() || !open_lane(device, lane)) {
    figures.failed = true;
    return figures;
  }
  const PushedContext pushed(lane.context);
  LoadFigures interrupted;
  while (!lane.in_flight.empty()) settle_oldest_load(lane, &interrupted);
  lane.has_no_host = lane.has_no_disk = false;
  bool hashes = may_hash(lane);
  lane.evictions_without_hash = hashes ? 0 : lane.evictions_without_hash + 1;
  bool is_measured = false;
  for (const RangeTable::Claim& claim : ranges_.claim_victims(device, bytes)) {
    if (is_exiting()) {
      figures.failed = true;
      settle(claim, claim.first, ChunkState::kResident);
      continue;
    }
    // The kernel is loaded while the first chunk is copied; if it can't be, once is enough.
    if (hashes && !lane.in_flight.empty()) hashes = lane.hasher.open();
    const std::uint64_t start = boottime_ns();
    start_eviction(lane, claim, hashes, &figures);
    if (!lane.hashed.empty() && !is_measured) {
      is_measured = true;
      settle_oldest_hash(lane, start, &figures);
    }
    while (lane.hashed.size() > kMostHashes) settle_oldest_hash(lane, 0, &figures);
    while (lane.in_flight_bytes > kWindowBytes) settle_oldest_eviction(lane, &figures);
  }
  while (!lane.hashed.empty()) {
    settle_oldest_hash(lane, 0, &figures);
    while (lane.in_flight_bytes > kWindowBytes) settle_oldest_eviction(lane, &figures);
  }
  while (!lane.in_flight.empty()) settle_oldest_eviction(lane, &figures);
  while (!lane.spill_moves.empty()) settle_oldest_piece(lane, &figures);
  return figures;
}

void Pager::begin_exit() noexcept {
  const std::uint64_t now = boottime_ns();
  exit_ns_.store(now, std::memory_order_release);
  // Not for ever: this may be a signal handler of a thread that was at work here itself.
  constexpr timespec kNap{0, 1'000'000};
  while (!std::unique_lock(mutex_, std::try_to_lock) && boottime_ns() - now < kExitNs) {
    ::nanosleep(&kNap, nullptr);
  }
}

bool Pager::is_exiting() const noexcept {
  const std::uint64_t since = exit_ns_.load(std::memory_order_acquire);
  return since != 0 && boottime_ns() - since < kExitNs;
}

bool Pager::may_hash(Lane& lane) const {
  if (hashing_ != Hashing::kWhereItPays) return hashing_ == Hashing::kAlways;
  if (lane.hash_pace == 0 || lane.best_pace[kOut] == 0) return true;
  if (lane.hash_pace <= kHashShare * lane.best_pace[kOut]) return true;
  return lane.evictions_without_hash >= kTryAgain;
}

void Pager::start_eviction(Lane& lane, const RangeTable::Claim& claim, bool may_hash,
                           EvictFigures* figures) {
  const Chunk& chunk = claim.range->chunks[claim.first];
  // What is shared may have been written while only other processes' gates were open.
  if (!chunk.written && claim.range->export_id == 0) {
    return end_eviction(claim, Saved::kUntouched, CUDA_SUCCESS, figures);
  }
  std::optional<std::size_t> slot;
  // The link is given something to do before the kernel is loaded, and before the first hash.
  const bool copies_at_once = lane.in_flight.empty() && lane.hashed.empty() && !chunk.has_digest;
  if (may_hash && (!copies_at_once || lane.hasher.is_open()) && lane.hasher.open()) {
    slot = lane.hasher.start(claim.start(), chunk.bytes);
  }
  if (!slot || copies_at_once) {
    return copy_out(lane, {claim, nullptr, chunk.bytes, slot, {}}, figures);
  }
  lane.hashed.push_back({claim, *slot});
}

void Pager::settle_oldest_hash(Lane& lane, std::uint64_t measured_from, EvictFigures* figures) {
  const Hashed hashed = std::move(lane.hashed.front());
  lane.hashed.pop_front();
  Chunk& chunk = hashed.claim.range->chunks[hashed.claim.first];
  ChunkHasher::Result found;
  CUresult result = CUDA_SUCCESS;
  {
    const AddElapsed hash(&figures->hash_ns);
    result = lane.hasher.wait(hashed.slot, &found);
  }
  if (measured_from != 0) {
    lane.hash_pace =
        static_cast<double>(boottime_ns() - measured_from) / static_cast<double>(chunk.bytes);
  }
  if (is_sticky(result)) return end_eviction(hashed.claim, Saved::kNothing, result, figures);
  if (result != CUDA_SUCCESS) {
    return copy_out(lane, {hashed.claim, nullptr, chunk.bytes, {}, {}}, figures);
  }
  if (chunk.host && chunk.has_digest && chunk.digest == found.digest) {
    return end_eviction(hashed.claim, Saved::kUnchanged, CUDA_SUCCESS, figures);
  }
  // What is shared has to be somewhere, for the case that we die.
  if (found.is_repeated && hashed.claim.range->export_id == 0) {
    chunk.word = found.word;
    return end_eviction(hashed.claim, Saved::kRepeated, CUDA_SUCCESS, figures);
  }
  copy_out(lane, {hashed.claim, nullptr, chunk.bytes, {}, found.digest}, figures);
}

bool Pager::find_host_memory(Lane& lane, const RangeTable::Claim& claim, EvictFigures* figures) {
  Chunk& chunk = claim.range->chunks[claim.first];
  if (chunk.host && !store_.make_writable(&chunk.host)) {
    store_.put(chunk.host);
    chunk.host = {};
  }
  if (!chunk.host) {
    auto span = store_.take_free(chunk.bytes);
    if (!span && !lane.has_no_host) {
      // The manager may have to wait for what others free when they load: what we have copied makes
      // room for them.
      while (!lane.in_flight.empty()) settle_oldest_eviction(lane, figures);
      span = store_.take(chunk.bytes, lane.context);
      lane.has_no_host = !span;
    }
    while (!span) {
      const HostSpan oldest = ranges_.take_oldest_copy();
      if (!oldest) break;
      store_.put(oldest);
      span = store_.take_free(chunk.bytes);
    }
    while (!span && claim.range->export_id != 0 && spill_from_host(lane, figures)) {
      span = store_.take_free(chunk.bytes);
    }
    if (span) chunk.host = *span;
  }
  if (chunk.host) store_.ensure_registered(chunk.host, lane.context);
  return static_cast<bool>(chunk.host);
}

std::size_t Pager::give_back_host(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::size_t given = store_.give_back_free(bytes);
  while (given < bytes) {
    const HostSpan oldest = ranges_.take_oldest_copy();
    if (!oldest) break;
    store_.put(oldest);
    given += store_.give_back_free(bytes - given);
  }
  return given;
}

void Pager::copy_out(Lane& lane, InFlight move, EvictFigures* figures) {
  Chunk& chunk = move.claim.range->chunks[move.claim.first];
  chunk.has_digest = false;  // the copy it is of is about to be overwritten
  CUresult result = CUDA_SUCCESS;
  if (!find_host_memory(lane, move.claim, figures)) {
    if (may_spill(lane, move.claim)) {
      ChunkHasher::Result unused;
      if (move.hash) lane.hasher.wait(*move.hash, &unused);
      return spill_out(lane, move.claim, figures);
    }
    PLEXRL_LOG_AT(kFile, figures->failed ? LogLevel::kDebug : LogLevel::kWarning,
                  "no host memory for a chunk of %zu bytes, it stays in HBM", chunk.bytes);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  } else {
    const AddElapsed copy(&figures->copy_ns);
    result =
        driver.cuMemcpyDtoHAsync_v2(chunk.host.address, move.claim.start(), chunk.bytes, lane.out);
  }
  if (result == CUDA_SUCCESS && issue(lane, lane.out, move)) return;
  const CUresult finished = wait_for(lane.out);
  if (result == CUDA_SUCCESS) result = finished;
  ChunkHasher::Result found;
  if (move.hash && lane.hasher.wait(*move.hash, &found) == CUDA_SUCCESS) move.digest = found.digest;
  chunk.has_digest = move.digest.has_value();
  if (move.digest) chunk.digest = *move.digest;
  end_eviction(move.claim, Saved::kNothing, result, figures);
}

void Pager::settle_oldest_eviction(Lane& lane, EvictFigures* figures) {
  InFlight move = std::move(lane.in_flight.front());
  lane.in_flight.pop_front();
  lane.in_flight_bytes -= move.bytes;
  CUresult result = CUDA_SUCCESS;
  {
    const AddElapsed copy(&figures->copy_ns);
    result = wait_for(move.event, lane.out);
  }
  lane.spare_events.push_back(move.event);
  figures->link_ns += end_burst(lane, kOut);
  ChunkHasher::Result found;
  if (move.hash && lane.hasher.wait(*move.hash, &found) == CUDA_SUCCESS) move.digest = found.digest;
  Chunk& chunk = move.claim.range->chunks[move.claim.first];
  chunk.has_digest = move.digest.has_value();
  if (move.digest) chunk.digest = *move.digest;
  end_eviction(move.claim, Saved::kNothing, result, figures);
}

void Pager::end_eviction(const RangeTable::Claim& claim, Saved saved, CUresult result,
                         EvictFigures* figures) {
  PLEXRL_FAULT_POINT("evict.copied");
  Chunk& chunk = claim.range->chunks[claim.first];
  const std::size_t bytes = chunk.bytes;
  const bool is_closed = result == CUDA_ERROR_DEINITIALIZED;  // no call can make it leave
  const bool lost = is_sticky(result) && !is_closed;
  if (result != CUDA_SUCCESS || saved == Saved::kRepeated) {
    store_.put(chunk.host);  // nothing, or nothing that is needed
    chunk.host = {};
    chunk.has_digest = false;
  }
  if (result == CUDA_SUCCESS) {
    // From here on the content is known, whether the chunk leaves or not.
    if (saved != Saved::kUntouched) chunk.is_repeated = saved == Saved::kRepeated;
    chunk.written = false;
  }
  if (chunk.host && !store_.make_read_only(&chunk.host)) chunk.has_digest = false;
  bool leaves = result == CUDA_SUCCESS || lost;
  if (leaves) {
    const AddElapsed elapsed(&figures->unmap_ns);
    const CUresult unmapped = unmap(claim, 0, 1);
    leaves = unmapped == CUDA_SUCCESS;
    if (!leaves) result = unmapped;
  }
  PLEXRL_FAULT_POINT("evict.unmapped");
  if (!leaves) {
    const LogLevel level =
        figures->failed ? LogLevel::kDebug : LogLevel::kWarning;  // once is enough
    PLEXRL_LOG_AT(kFile, failure_level(result, level),
                  "a chunk of %zu bytes could not leave result=%d, it stays in HBM", bytes,
                  static_cast<int>(result));
    figures->failed = true;
    if (chunk.host && !chunk.host.is_read_only) chunk.written = true;
    if (chunk.disk) {
      chunk.written = true;
      spill_->put(std::exchange(chunk.disk, {}));
    }
    return settle(claim, claim.first, ChunkState::kResident);
  }
  if (lost) {
    say_given_up(result, bytes);
    chunk.written = chunk.is_repeated = false;
  }
  if (claim.range->export_id != 0 && on_parked_) {
    on_parked_(claim.range->export_id, claim.first, chunk.host);
  }
  figures->freed_bytes += bytes;
  switch (saved) {
    case Saved::kNothing:
      if (chunk.disk) {
        figures->disk_bytes += bytes;  // counted as moved when it was copied
      } else {
        (chunk.host ? figures->moved_bytes : figures->untouched_bytes) += bytes;
      }
      break;
    case Saved::kUntouched:
      figures->untouched_bytes += bytes;
      break;
    case Saved::kUnchanged:
      figures->unchanged_bytes += bytes;
      break;
    case Saved::kRepeated:
      figures->repeated_bytes += bytes;
      break;
  }
  settle(claim, claim.first,
         chunk.disk          ? ChunkState::kDisk
         : chunk.host        ? ChunkState::kHost
         : chunk.is_repeated ? ChunkState::kRepeated
                             : ChunkState::kUnbacked);
}

}  // namespace plexrl::shim
