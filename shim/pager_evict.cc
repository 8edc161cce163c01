#include "interpose/driver.h"
#include "shim/boottime.h"
#include "shim/driver_scope.h"
#include "shim/fault_points.h"
#include "shim/log.h"
#include "shim/pager.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "pager";
/// Copies in flight before the oldest is waited for, unmapped and released.
constexpr std::size_t kWindowBytes = std::size_t{128} << 20;

}  // namespace

Pager::EvictFigures Pager::evict(CUdevice device, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  EvictFigures figures;
  Lane& lane = lanes_[device];
  const RelaxedCapture relaxed;
  if (!open_lane(device, lane)) {
    figures.failed = true;
    return figures;
  }
  const PushedContext pushed(lane.context);
  LoadFigures interrupted;
  while (!lane.in_flight.empty()) settle_oldest_load(lane, &interrupted);
  for (const RangeTable::Claim& claim : ranges_.claim_victims(device, bytes)) {
    start_eviction(lane, claim, &figures);
    while (lane.in_flight_bytes > kWindowBytes) settle_oldest_eviction(lane, &figures);
  }
  while (!lane.in_flight.empty()) settle_oldest_eviction(lane, &figures);
  return figures;
}

void Pager::start_eviction(Lane& lane, const RangeTable::Claim& claim, EvictFigures* figures) {
  Chunk& chunk = claim.range->chunks[claim.first];
  if (!chunk.written) return end_eviction(claim, CUDA_SUCCESS, figures);
  if (!chunk.host) {
    if (const auto span = store_.take(chunk.bytes, lane.context)) chunk.host = *span;
  }
  if (!chunk.host) {
    PLEXRL_WARN(kFile, "no host memory for a chunk of %zu bytes, it stays in HBM", chunk.bytes);
    figures->failed = true;
    return settle(claim, claim.first, ChunkState::kResident);
  }
  store_.ensure_registered(chunk.host, lane.context);
  CUresult result = CUDA_SUCCESS;
  {
    const AddElapsed copy(&figures->copy_ns);
    result = driver.cuMemcpyDtoHAsync_v2(chunk.host.address, claim.range->start + chunk.offset,
                                         chunk.bytes, lane.out);
  }
  if (result == CUDA_SUCCESS && issue(lane, lane.out, {claim, nullptr, chunk.bytes})) return;
  const CUresult finished = driver.cuStreamSynchronize(lane.out);
  end_eviction(claim, result == CUDA_SUCCESS ? finished : result, figures);
}

void Pager::settle_oldest_eviction(Lane& lane, EvictFigures* figures) {
  const InFlight move = std::move(lane.in_flight.front());
  lane.in_flight.pop_front();
  lane.in_flight_bytes -= move.bytes;
  CUresult result = CUDA_SUCCESS;
  {
    const AddElapsed copy(&figures->copy_ns);
    result = driver.cuEventSynchronize(move.event);
  }
  lane.spare_events.push_back(move.event);
  end_eviction(move.claim, result, figures);
}

void Pager::end_eviction(const RangeTable::Claim& claim, CUresult copied, EvictFigures* figures) {
  PLEXRL_FAULT_POINT("evict.copied");
  Chunk& chunk = claim.range->chunks[claim.first];
  const std::size_t bytes = chunk.bytes;
  const bool lost = is_sticky(copied);
  bool leaves = copied == CUDA_SUCCESS || lost;
  if (leaves) {
    const AddElapsed elapsed(&figures->unmap_ns);
    leaves = unmap(claim, 0, 1);
  }
  const bool keeps_copy = leaves && !lost && static_cast<bool>(chunk.host);
  if (!keeps_copy) {
    store_.put(chunk.host);
    chunk.host = {};
  }
  PLEXRL_FAULT_POINT("evict.unmapped");
  if (!leaves) {
    PLEXRL_WARN(kFile, "a chunk of %zu bytes could not leave result=%d, it stays in HBM", bytes,
                static_cast<int>(copied));
    figures->failed = true;
    return settle(claim, claim.first, ChunkState::kResident);
  }
  if (lost) {
    PLEXRL_ERROR(kFile, "context failed result=%d, giving up %zu bytes", static_cast<int>(copied),
                 bytes);
    chunk.written = false;
  }
  if (claim.range->export_id != 0 && on_parked_) {
    on_parked_(claim.range->export_id, claim.first, chunk.host);
  }
  figures->freed_bytes += bytes;
  (keeps_copy ? figures->moved_bytes : figures->untouched_bytes) += bytes;
  settle(claim, claim.first, keeps_copy ? ChunkState::kHost : ChunkState::kUnbacked);
}

}  // namespace plexrl::shim
