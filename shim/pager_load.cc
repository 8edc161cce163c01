#include <algorithm>

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
/// Most chunks of one run: created, mapped, given access to by one call, and copied together.
constexpr std::size_t kMostRunChunks = 8;
/// While so many runs are being copied no other is begun: two, so that the driver calls of the next
/// run hide behind copies, and one that is only about to end.
constexpr std::size_t kMostRuns = 3;

/// How many of the claim's first chunks are all on disk, or all not.
std::size_t count_alike(const RangeTable::Claim& claim) {
  const auto is_on_disk = [](ChunkState state) { return state == ChunkState::kDisk; };
  std::size_t count = 1;
  while (count < claim.count &&
         is_on_disk(claim.came_from[count]) == is_on_disk(claim.came_from[0])) {
    ++count;
  }
  return count;
}

/// How many of the claim's first chunks have no more than `most` bytes together.
std::size_t count_within(const RangeTable::Claim& claim, std::uint64_t most) {
  std::uint64_t sum = 0;
  std::size_t count = 0;
  while (count < claim.count) {
    sum += claim.range->chunks[claim.first + count].bytes;
    if (sum > most) break;
    ++count;
  }
  return count;
}

bool has_copies(const RangeTable::Claim& claim) {
  return std::find(claim.came_from.begin(), claim.came_from.end(), ChunkState::kHost) !=
         claim.came_from.end();
}

}  // namespace

Pager::Progress Pager::load_step(CUdevice device, LoadFigures* figures, Order order) {
  const std::lock_guard lock(mutex_);
  Lane& lane = lanes_[device];
  const RelaxedCapture relaxed;
  if (!open_lane(device, lane)) return back_without_context(device, figures);
  const PushedContext pushed(lane.context);
  const Progress progress = load_run(device, lane, ~std::uint64_t{0}, order, figures);
  // The lease may have to end before there is memory for the rest: nothing stays on its way.
  while (progress == Progress::kNoMemory && !lane.in_flight.empty()) {
    settle_oldest_load(lane, figures);
  }
  return progress;
}

Pager::Progress Pager::prefetch_step(CUdevice device, std::uint64_t most, LoadFigures* figures) {
  const std::lock_guard lock(mutex_);
  if (is_exiting()) return Progress::kDone;
  Lane& lane = lanes_[device];
  const RelaxedCapture relaxed;
  if (!open_lane(device, lane)) return Progress::kNoMemory;
  const PushedContext pushed(lane.context);
  Progress progress = load_run(device, lane, most, Order::kByAddress, figures);
  while (!lane.in_flight.empty()) {
    if (settle_oldest_load(lane, figures) != Progress::kMore) progress = Progress::kNoMemory;
  }
  return progress;
}

/// The job has no context that reaches the device: what has no bytes is backed all the same, for
/// who maps it elsewhere; what has some waits for a context.
Pager::Progress Pager::back_without_context(CUdevice device, LoadFigures* figures) {
  auto claim = ranges_.claim_missing(device, kMostRunChunks);
  if (!claim) return ranges_.totals(device).moving == 0 ? Progress::kDone : Progress::kNoMemory;
  const bool needs_bytes =
      std::any_of(claim->came_from.begin(), claim->came_from.end(),
                  [](ChunkState state) { return state != ChunkState::kUnbacked; });
  if (needs_bytes) {
    settle_back(*claim, 0);
    return Progress::kNoMemory;
  }
  const std::size_t wanted = claim->count;
  prepare(&*claim, figures);
  settle_all(*claim, ChunkState::kResident);
  return claim->count == wanted ? Progress::kMore : Progress::kNoMemory;
}

Pager::Progress Pager::load_run(CUdevice device, Lane& lane, std::uint64_t most, Order order,
                                LoadFigures* figures) {
  auto claim = order == Order::kBySlab ? ranges_.claim_missing_by_slab(device, kMostRunChunks)
                                       : ranges_.claim_missing(device, kMostRunChunks);
  if (claim) {
    const std::size_t allowed = count_within(*claim, most);
    if (allowed < claim->count) shorten(&*claim, allowed);
    if (allowed == 0) claim.reset();
  }
  if (!claim) {
    if (lane.in_flight.empty()) return Progress::kDone;
    return settle_oldest_load(lane, figures);
  }
  if (const std::size_t alike = count_alike(*claim); alike < claim->count) {
    shorten(&*claim, alike);
  }
  if (claim->came_from[0] == ChunkState::kDisk) {
    // The link is not kept waiting: what is on its way is done before the disk is.
    while (!lane.in_flight.empty()) settle_oldest_load(lane, figures);
    return load_spilled(lane, *std::move(claim), figures);
  }
  if (has_copies(*claim)) {
    if (lane.in_flight.empty()) lane.run_chunks = 1;
    if (claim->count > lane.run_chunks) shorten(&*claim, lane.run_chunks);
    // The next may be twice as long: while this one is copied, the calls for two are made.
    lane.run_chunks = std::min(2 * lane.run_chunks, kMostRunChunks);
  }
  const std::size_t wanted = claim->count;
  prepare(&*claim, figures);
  if (claim->count == 0) return Progress::kNoMemory;
  const bool complete = claim->count == wanted;
  Progress progress = copy_in(lane, *claim, figures);
  while (progress == Progress::kMore && lane.in_flight.size() >= kMostRuns) {
    progress = settle_oldest_load(lane, figures);
  }
  return complete ? progress : Progress::kNoMemory;
}

void Pager::finish_loads(LoadFigures* figures) {
  const std::lock_guard lock(mutex_);
  for (auto& [device, lane] : lanes_) {
    if (lane.in_flight.empty()) continue;
    const RelaxedCapture relaxed;
    const PushedContext pushed(lane.context);
    while (!lane.in_flight.empty()) settle_oldest_load(lane, figures);
  }
}

void Pager::prepare(RangeTable::Claim* claim, LoadFigures* figures) {
  Range& range = *claim->range;
  CUresult result = CUDA_SUCCESS;
  std::size_t ready = 0;
  for (; ready < claim->count && result == CUDA_SUCCESS; ++ready) {
    result = map_chunk(range, range.chunks[claim->first + ready], figures);
  }
  if (result != CUDA_SUCCESS) --ready;
  PLEXRL_FAULT_POINT("load.mapped");
  if (ready != 0) {
    const AddElapsed map(&figures->map_ns);
    const CUresult access = give_access(range, claim->first, ready);
    if (access != CUDA_SUCCESS) {
      result = access;
      unmap(*claim, 0, ready);
      ready = 0;
    }
  }
  if (ready == claim->count) return;
  PLEXRL_LOG_AT(kFile, result == CUDA_ERROR_OUT_OF_MEMORY ? LogLevel::kDebug : LogLevel::kWarning,
                "can't back chunks address=0x%llx result=%d, trying again",
                static_cast<unsigned long long>(claim->start()), static_cast<int>(result));
  shorten(claim, ready);
}

Pager::Progress Pager::copy_in(Lane& lane, const RangeTable::Claim& claim, LoadFigures* figures) {
  InFlight move{claim, nullptr, 0, {}, {}};
  bool has_work = false;
  CUresult result = CUDA_SUCCESS;
  for (std::size_t i = 0; i < claim.count && result == CUDA_SUCCESS; ++i) {
    const Chunk& chunk = claim.range->chunks[claim.first + i];
    if (claim.came_from[i] == ChunkState::kRepeated) {
      figures->repeated_bytes += chunk.bytes;
      has_work = true;
      result = driver.cuMemsetD32Async(claim.range->start + chunk.offset, chunk.word,
                                       chunk.bytes / sizeof chunk.word, lane.in);
      continue;
    }
    if (claim.came_from[i] != ChunkState::kHost) {
      figures->zero_bytes += chunk.bytes;
      continue;
    }
    figures->moved_bytes += chunk.bytes;
    move.bytes += chunk.bytes;
    has_work = true;
#ifndef PLEXRL_MUTANT_RESTORE  // test builds only: the suite must notice memory that isn't restored
    store_.ensure_registered(chunk.host, lane.context);
    const AddElapsed copy(&figures->copy_ns);
    result = driver.cuMemcpyHtoDAsync_v2(claim.range->start + chunk.offset, chunk.host.address,
                                         chunk.bytes, lane.in);
#endif
  }
  if (result == CUDA_SUCCESS && !has_work) {
    settle_all(claim, ChunkState::kResident);
    return Progress::kMore;
  }
  if (result == CUDA_SUCCESS && issue(lane, lane.in, move)) return Progress::kMore;
  const CUresult finished = wait_for(lane.in);
  if (result == CUDA_SUCCESS) result = finished;
  return end_load(claim, result);
}

Pager::Progress Pager::settle_oldest_load(Lane& lane, LoadFigures* figures) {
  const InFlight move = std::move(lane.in_flight.front());
  lane.in_flight.pop_front();
  lane.in_flight_bytes -= move.bytes;
  CUresult result = CUDA_SUCCESS;
  {
    const AddElapsed copy(&figures->copy_ns);
    result = wait_for(move.event, lane.in);
  }
  lane.spare_events.push_back(move.event);
  figures->link_ns += end_burst(lane, kIn);
  return end_load(move.claim, result);
}

Pager::Progress Pager::end_load(const RangeTable::Claim& claim, CUresult result) {
  PLEXRL_FAULT_POINT("load.copied");
  if (result != CUDA_SUCCESS && !is_sticky(result)) {
    PLEXRL_WARN(kFile, "copy in failed address=0x%llx result=%d, trying again",
                static_cast<unsigned long long>(claim.start()), static_cast<int>(result));
    unmap(claim, 0, claim.count);
    settle_back(claim, 0);
    return Progress::kNoMemory;
  }
  if (result != CUDA_SUCCESS) {
    say_given_up(result, claim.bytes());
  }
  for (std::size_t i = claim.first; i < claim.first + claim.count; ++i) {
    Chunk& chunk = claim.range->chunks[i];
    if (result != CUDA_SUCCESS) chunk.written = true;  // it holds who knows what
    // A copy that could be changed unnoticed is not kept. But the copy of what is shared stays
    // until it is evicted again: if we die before others have it mapped they get it from there.
    if (claim.range->export_id != 0 || chunk.host.is_read_only) continue;
    if (chunk.host) chunk.written = true;
    chunk.has_digest = false;
    store_.put(chunk.host);
    chunk.host = {};
  }
  settle_all(claim, ChunkState::kResident);
  return Progress::kMore;
}

}  // namespace plexrl::shim
