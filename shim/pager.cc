#include "shim/pager.h"

#include <algorithm>

#include "interpose/driver.h"
#include "shim/driver_scope.h"
#include "shim/log.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "pager";

bool device_has(CUdevice device, CUdevice_attribute attribute) noexcept {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

}  // namespace

bool is_sticky(CUresult result) noexcept {
  switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
      return true;
    default:
      return false;
  }
}

bool Pager::open_lane(CUdevice device, Lane& lane) {
  if (lane.stream != nullptr) return true;
  const auto context = contexts_.any_of(device);
  if (!context) return false;
  const PushedContext pushed(*context);
  if (!pushed.ok()) return false;
  const CUresult result = driver.cuStreamCreate(&lane.stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) {
    lane.stream = nullptr;
    PLEXRL_WARN(kFile, "no stream for copies device=%d result=%d, trying again", device,
                static_cast<int>(result));
    return false;
  }
  lane.context = *context;
  return true;
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

bool Pager::issue(Lane& lane, InFlight move) {
  move.event = take_event(lane);
  if (move.event == nullptr) return false;
  if (driver.cuEventRecord(move.event, lane.stream) != CUDA_SUCCESS) {
    lane.spare_events.push_back(move.event);
    return false;
  }
  lane.in_flight_bytes += move.bytes;
  lane.in_flight.push_back(std::move(move));
  return true;
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

bool Pager::unmap(const RangeTable::Claim& claim, std::size_t from, std::size_t count) {
  bool unmapped = true;
  for (std::size_t i = from; i < from + count; ++i) {
    Chunk& chunk = claim.range->chunks[claim.first + i];
    const CUresult result = driver.cuMemUnmap(claim.range->start + chunk.offset, chunk.bytes);
    if (result != CUDA_SUCCESS) {
      unmapped = false;
      PLEXRL_WARN(kFile, "unmap failed address=0x%llx result=%d",
                  static_cast<unsigned long long>(claim.range->start + chunk.offset),
                  static_cast<int>(result));
      continue;
    }
    driver.cuMemRelease(chunk.handle);
    chunk.handle = 0;
  }
  return unmapped;
}

CUmemAllocationProp Pager::properties(CUdevice device) {
  {
    const std::lock_guard lock(devices_mutex_);
    const auto it = properties_.find(device);
    if (it != properties_.end()) return it->second;
  }
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  // The handle type is fixed at creation: without it the memory could never be exported.
  if (device_has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  if (device_has(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)) {
    prop.allocFlags.gpuDirectRDMACapable = 1;
  }
  const std::lock_guard lock(devices_mutex_);
  return properties_.emplace(device, prop).first->second;
}

CUresult Pager::set_access(const Range& range, std::uint64_t start, std::size_t bytes) {
  const CUdevice device = range.device;
  std::vector<CUmemAccessDesc> access;
  const auto add = [&](CUdevice who) {
    access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, {who}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  };
  add(device);
  if (range.kind == wire::MemoryKind::kAlloc) {
    const std::lock_guard lock(devices_mutex_);
    const auto it = peers_.find(device);
    if (it != peers_.end()) std::for_each(it->second.begin(), it->second.end(), add);
  }
  access.insert(access.end(), range.access.begin(), range.access.end());
  return driver.cuMemSetAccess(start, bytes, access.data(), access.size());
}

void Pager::add_peer(CUdevice device, CUdevice peer) {
  if (device == peer) return;
  {
    const std::lock_guard lock(devices_mutex_);
    auto& peers = peers_[device];
    if (std::find(peers.begin(), peers.end(), peer) != peers.end()) return;
    peers.push_back(peer);
  }
  for (const std::uint64_t start : ranges_.starts_on(device)) {
    if (auto claim = ranges_.claim_all(start)) {
      apply_access(*claim);
      settle_back(*claim, 0);
    }
  }
}

CUresult Pager::set_range_access(std::uint64_t start, const std::vector<CUmemAccessDesc>& access) {
  auto claim = ranges_.claim_all(start);
  if (!claim) return CUDA_ERROR_INVALID_VALUE;
  claim->range->access = access;
  const CUresult result = apply_access(*claim);
  settle_back(*claim, 0);
  return result;
}

/// For what is mapped; the rest gets its access when it is.
CUresult Pager::apply_access(const RangeTable::Claim& claim) {
  const RelaxedCapture relaxed;
  CUresult result = CUDA_SUCCESS;
  const auto& chunks = claim.range->chunks;
  for (std::size_t i = 0; i < claim.count; ++i) {
    if (claim.came_from[i] != ChunkState::kResident) continue;
    const std::size_t first = i;
    std::size_t bytes = 0;
    for (; i < claim.count && claim.came_from[i] == ChunkState::kResident; ++i) {
      bytes += chunks[i].bytes;
    }
    const CUresult set = set_access(*claim.range, claim.range->start + chunks[first].offset, bytes);
    if (set != CUDA_SUCCESS) result = set;
  }
  return result;
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
  for (Chunk& chunk : range->chunks) {
    if (chunk.state == ChunkState::kResident) {
      const CUresult unmapped = driver.cuMemUnmap(range->start + chunk.offset, chunk.bytes);
      const CUresult released = driver.cuMemRelease(chunk.handle);
      if (unmapped != CUDA_SUCCESS || released != CUDA_SUCCESS) {
        PLEXRL_INFO(kFile, "release address=0x%llx unmap=%d release=%d, ignoring",
                    static_cast<unsigned long long>(range->start + chunk.offset),
                    static_cast<int>(unmapped), static_cast<int>(released));
      }
    }
    store_.put(chunk.host);
    chunk.host = {};
  }
  ranges_.return_addresses(*range);
}

std::unique_lock<std::mutex> Pager::leave_context(CUcontext context) {
  std::unique_lock lock(mutex_);
  for (auto& [device, lane] : lanes_) {
    if (lane.context != context || lane.stream == nullptr) continue;
    const RelaxedCapture relaxed;
    const PushedContext pushed(context);
    LoadFigures figures;
    while (!lane.in_flight.empty()) settle_oldest_load(lane, &figures);
    for (CUevent event : lane.spare_events) driver.cuEventDestroy_v2(event);
    lane.spare_events.clear();
    driver.cuStreamDestroy_v2(lane.stream);
    lane.stream = nullptr;
    lane.context = nullptr;
    store_.forget_context(context);
  }
  return lock;
}

}  // namespace plexrl::shim
