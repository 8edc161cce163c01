#include <algorithm>
#include <set>
#include <utility>

#include "interpose/driver.h"
#include "shim/driver_scope.h"
#include "shim/log.h"
#include "shim/pager.h"

/// Access of one device to memory of another, as contexts enable and disable it.

namespace plexrl::shim {

void Pager::add_peer(const Contexts::Known& owner, const Contexts::Known& peer) {
  if (owner.device == peer.device) return;
  {
    const std::lock_guard lock(devices_mutex_);
    bool devices_have_it = false;
    for (const PeerAccess& one : peers_) {
      if (one.owner.context == owner.context && one.peer.context == peer.context) return;
      devices_have_it =
          devices_have_it || (one.owner.device == owner.device && one.peer.device == peer.device);
    }
    peers_.push_back({owner, peer});
    if (devices_have_it) return;
  }
  apply_access_on(owner.device);
}

void Pager::remove_peer(const Contexts::Known& owner, const Contexts::Known& peer) {
  remove_peers([&](const PeerAccess& one) {
    return one.owner.context == owner.context && one.peer.context == peer.context;
  });
}

void Pager::remove_peers_of(CUcontext ended) {
  remove_peers([&](const PeerAccess& one) {
    return one.owner.context == ended || one.peer.context == ended;
  });
}

template <typename Is>
void Pager::remove_peers(Is is_gone) {
  std::set<std::pair<CUdevice, CUdevice>> devices;
  {
    const std::lock_guard lock(devices_mutex_);
    std::erase_if(peers_, [&](const PeerAccess& one) {
      const bool gone = is_gone(one);
      if (gone) devices.emplace(one.owner.device, one.peer.device);
      return gone;
    });
  }
  for (const auto& [owner, peer] : devices) {
    for (const std::uint64_t start : ranges_.starts_on(owner)) {
      if (auto claim = ranges_.claim_all(start)) {
        take_access(*claim, peer);
        settle_back(*claim, 0);
      }
    }
  }
}

/// Whether `device`, which isn't the range's own, is to have access to it.
bool Pager::may_access(const Range& range, CUdevice device) {
  for (const CUmemAccessDesc& one : range.access) {
    if (one.location.type == CU_MEM_LOCATION_TYPE_DEVICE && one.location.id == device) return true;
  }
  const std::lock_guard lock(devices_mutex_);
  const auto lender = lenders_.find(range.device);
  if (lender != lenders_.end() && lender->second == device) return true;
  return std::any_of(peers_.begin(), peers_.end(), [&](const PeerAccess& one) {
    return one.owner.device == range.device && one.peer.device == device;
  });
}

/// What is mapped of the claimed range is no longer the peer's to reach, unless it has got access
/// again since or has it otherwise. What is mapped later doesn't name the peer (set_access).
void Pager::take_access(const RangeTable::Claim& claim, CUdevice peer) {
  const Range& range = *claim.range;
  if (range.kind != wire::MemoryKind::kAlloc || may_access(range, peer)) return;
  const CUmemAccessDesc none = {{CU_MEM_LOCATION_TYPE_DEVICE, {peer}},
                                CU_MEM_ACCESS_FLAGS_PROT_NONE};
  const RelaxedCapture relaxed;
  for (std::size_t i = 0; i < claim.count; ++i) {
    if (claim.came_from[i] != ChunkState::kResident) continue;
    const Chunk& chunk = range.chunks[claim.first + i];
    const std::uint64_t start = range.start + chunk.offset;
    const CUresult result = driver.cuMemSetAccess(start, chunk.bytes, &none, 1);
    if (result != CUDA_SUCCESS) {
      PLEXRL_WARN("pager", "can't take access address=0x%llx from device=%d result=%d",
                  static_cast<unsigned long long>(start), peer, static_cast<int>(result));
    }
  }
}

void Pager::apply_access_on(CUdevice device) {
  for (const std::uint64_t start : ranges_.starts_on(device)) {
    if (auto claim = ranges_.claim_all(start)) {
      apply_access(*claim);
      settle_back(*claim, 0);
    }
  }
}

}  // namespace plexrl::shim
