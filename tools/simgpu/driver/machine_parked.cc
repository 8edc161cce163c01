// What a checkpointed process has on the devices, in its host memory.

#include <cstring>
#include <map>

#include "tools/simgpu/driver/machine.h"
#include "tools/simgpu/driver/machine_state.h"

namespace plexrl::simgpu {

bool Machine::shares_memory() {
  const Lock lock(lock_);
  if (slot_ < 0) return false;
  for (std::uint32_t id = 1; id <= state_->next_allocation; ++id) {
    const Allocation& allocation = state_->allocations[id];
    if (local_holds_[id] == 0 || allocation.tag == 0) continue;
    if (allocation.was_exported != 0 || allocation.multicast != 0) return true;
    for (int slot = 0; slot < kMaxProcesses; ++slot) {
      if (slot != slot_ && (allocation.holders[slot / 64] >> (slot % 64) & 1) != 0) return true;
    }
  }
  return false;
}

std::vector<Machine::Parked> Machine::park() {
  std::vector<std::uint32_t> ids;
  {
    const Lock lock(lock_);
    for (std::uint32_t id = 1; id <= state_->next_allocation; ++id) {
      if (slot_ >= 0 && local_holds_[id] != 0) ids.push_back(id);
    }
  }
  std::vector<Parked> parked;
  for (const std::uint32_t id : ids) {  // outside the lock: the frames are ours
    Parked one{id, device_of(id), frames(id), std::vector<std::byte>(bytes_of(id))};
    std::byte* to = one.content.data();
    for (const std::byte* frame : one.frames) {
      std::memcpy(to, frame, kFrameBytes);
      to += kFrameBytes;
    }
    parked.push_back(std::move(one));
  }
  const Lock lock(lock_);
  for (const std::uint32_t id : ids) {
    give_frames(state_->allocations[id]);
    state_->allocations[id].is_parked = 1;
  }
  return parked;
}

bool Machine::unpark(std::vector<Parked>* parked) {
  {
    const Lock lock(lock_);
    if (slot_ < 0) return false;
    reap();
    std::map<std::uint32_t, std::uint32_t> wanted;
    for (const Parked& one : *parked) {
      const Allocation& allocation = state_->allocations[one.id];
      wanted[allocation.device] += allocation.frame_count;
    }
    for (const auto& [device, count] : wanted) {
      if (state_->devices[device].free_frames < count) return false;
    }
    for (const Parked& one : *parked) {
      Allocation& allocation = state_->allocations[one.id];
      take_frames(one.id, allocation);
      allocation.is_parked = 0;
    }
  }
  for (Parked& one : *parked) {
    one.frames = frames(one.id);
    const std::byte* from = one.content.data();
    for (std::byte* frame : one.frames) {
      std::memcpy(frame, from, kFrameBytes);
      from += kFrameBytes;
    }
  }
  return true;
}

}  // namespace plexrl::simgpu
