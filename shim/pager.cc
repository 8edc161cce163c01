#include "shim/pager.h"

#include <algorithm>
#include <utility>

#include "interpose/driver.h"
#include "shim/boottime.h"
#include "shim/driver_scope.h"
#include "shim/log.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "pager";

}  // namespace

std::optional<Contexts::Known> Pager::context_for(CUdevice device) {
  if (const auto own = contexts_.any_of(device)) return Contexts::Known{*own, device};
  for (const Contexts::Known& known : contexts_.all()) {
    int can = 0;
    if (driver.cuDeviceCanAccessPeer(&can, known.device, device) == CUDA_SUCCESS && can != 0) {
      return known;
    }
  }
  return std::nullopt;
}

/// From now on `lender`'s contexts can reach all of the job's memory on `device`.
void Pager::lend(CUdevice device, CUdevice lender) {
  {
    const std::lock_guard lock(devices_mutex_);
    const auto it = lenders_.find(device);
    if (lender == device || (it != lenders_.end() && it->second == lender)) return;
    lenders_[device] = lender;
  }
  apply_access_on(device);
}

bool Pager::open_lane(CUdevice device, Lane& lane) {
  if (lane.context != nullptr) return true;
  const auto found = context_for(device);
  if (!found) return false;
  const CUcontext context = found->context;
  const PushedContext pushed(context);
  if (!pushed.ok()) return false;
  for (CUstream* const stream : {&lane.out, &lane.in}) {
    const CUresult result = driver.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) continue;
    *stream = nullptr;
    PLEXRL_WARN(kFile, "no stream for copies device=%d result=%d, trying again", device,
                static_cast<int>(result));
    close_lane(lane);
    return false;
  }
  lane.context = context;
  lend(device, found->device);
  return true;
}

void Pager::close_lane(Lane& lane) {
  lane.hasher.close();
  lane.hash_pace = 0;
  for (CUevent event : lane.spare_events) driver.cuEventDestroy_v2(event);
  lane.spare_events.clear();
  for (CUstream* const stream : {&lane.out, &lane.in}) {
    if (*stream != nullptr) driver.cuStreamDestroy_v2(*stream);
    *stream = nullptr;
  }
  lane.context = nullptr;
}

CUevent Pager::take_event(Lane& lane) {
  CUevent event = nullptr;
  if (!lane.spare_events.empty()) {
    event = lane.spare_events.back();
    lane.spare_events.pop_back();
  } else if (driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC) !=
             CUDA_SUCCESS) {
    return nullptr;
  }
  return event;
}

bool Pager::issue(Lane& lane, CUstream stream, InFlight move) {
  move.event = take_event(lane);
  if (move.event == nullptr) return false;
  if (driver.cuEventRecord(move.event, stream) != CUDA_SUCCESS) {
    lane.spare_events.push_back(move.event);
    return false;
  }
  if (lane.in_flight.empty()) lane.burst = {boottime_ns(), 0};
  lane.burst.bytes += move.bytes;
  lane.in_flight_bytes += move.bytes;
  lane.in_flight.push_back(std::move(move));
  return true;
}

std::uint64_t Pager::end_burst(Lane& lane, Way way) {
  if (!lane.in_flight.empty() || lane.burst.bytes == 0) return 0;
  const auto bytes = static_cast<double>(lane.burst.bytes);
  const double pace = static_cast<double>(boottime_ns() - lane.burst.start_ns) / bytes;
  double& best = lane.best_pace[way];
  if (best == 0 || pace < best) best = pace;
  lane.burst.bytes = 0;
  return static_cast<std::uint64_t>(best * bytes);
}

void Pager::settle(const RangeTable::Claim& claim, std::size_t index, ChunkState state) {
  auto doomed = ranges_.settle(claim, index, state);
  if (doomed) release(std::move(doomed));
}

void Pager::settle_all(const RangeTable::Claim& claim, ChunkState state) {
  for (std::size_t i = 0; i < claim.count; ++i) settle(claim, claim.first + i, state);
}

void Pager::settle_back(const RangeTable::Claim& claim, std::size_t from) {
  for (std::size_t i = from; i < claim.count; ++i) {
    settle(claim, claim.first + i, claim.came_from[i]);
  }
}

void Pager::shorten(RangeTable::Claim* claim, std::size_t count) {
  settle_back(*claim, count);
  claim->count = count;
}

bool Pager::back_now(const Range* range) {
  const RelaxedCapture relaxed;
  LoadFigures figures;
  while (auto claim = ranges_.claim_missing(range->device, range->chunks.size(), range)) {
    const std::size_t wanted = claim->count;
    prepare(&*claim, &figures);
    const bool complete = claim->count == wanted;
    for (std::size_t i = 0; i < claim->count; ++i) {
      claim->range->chunks[claim->first + i].written = true;  // the gate is open
    }
    settle_all(*claim, ChunkState::kResident);
    if (!complete) return false;
  }
  return true;
}

void Pager::release(std::unique_ptr<Range> range) {
  const RelaxedCapture relaxed;
  bool is_unmapped = true;
  for (Chunk& chunk : range->chunks) {
    if (chunk.handle != 0) {
      CUresult unmapped = unmap_chunk(*range, chunk);
      // Nobody comes back for it, so it is tried twice.
      if (unmapped != CUDA_SUCCESS) unmapped = unmap_chunk(*range, chunk);
      if (unmapped != CUDA_SUCCESS) {
        is_unmapped = false;
        PLEXRL_INFO(kFile, "release address=0x%llx result=%d, ignoring",
                    static_cast<unsigned long long>(range->start + chunk.offset),
                    static_cast<int>(unmapped));
        driver.cuMemRelease(chunk.handle);
      }
    }
    store_.put(chunk.host);
    chunk.host = {};
    if (chunk.disk) spill_->put(std::exchange(chunk.disk, {}));
  }
  // What is still mapped would be in the way of whoever got the addresses next.
  if (is_unmapped) ranges_.return_addresses(*range);
}

/// The context is dead and so are its bytes; the job learns it from its own next call. One line,
/// however many chunks it has.
void Pager::say_given_up(CUresult result, std::size_t bytes) {
  const bool is_first = !std::exchange(said_given_up_, true);
  PLEXRL_LOG_AT(kFile, is_first ? failure_level(result, LogLevel::kError) : LogLevel::kDebug,
                "a context has failed result=%d, giving up what it has in HBM bytes=%zu",
                static_cast<int>(result), bytes);
}

std::unique_lock<std::mutex> Pager::leave_context(CUcontext context) {
  std::unique_lock lock(mutex_);
  said_given_up_ = false;
  for (auto& [device, lane] : lanes_) {
    if (lane.context != context) continue;
    const RelaxedCapture relaxed;
    const PushedContext pushed(context);
    LoadFigures figures;
    while (!lane.in_flight.empty()) settle_oldest_load(lane, &figures);
    close_lane(lane);
    store_.forget_context(context);
    if (spill_ != nullptr) spill_->forget_context(context);
  }
  return lock;
}

}  // namespace plexrl::shim
