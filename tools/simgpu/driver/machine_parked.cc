// What a checkpointed process has on the devices, in its host memory.

#include <cstring>
#include <map>

#include "tools/simgpu/driver/machine.h"
#include "tools/simgpu/driver/machine_state.h"

namespace plexrl::simgpu {

/// Whether another process has what this one holds, or could import it. The lock is held.
bool Machine::shares_memory() const {
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

bool Machine::park(std::vector<Parked>* parked) {
  parked->clear();
  {
    const Lock lock(lock_);
    if (slot_ < 0 || shares_memory()) return false;
    for (std::uint32_t id = 1; id <= state_->next_allocation; ++id) {
      if (local_holds_[id] == 0) continue;
      state_->allocations[id].is_parked = 1;  // from now on nobody imports it
      parked->push_back({id, device_of(id), {}, {}});
    }
  }
  for (Parked& one : *parked) {  // outside the lock: the frames are ours
    one.frames = frames(one.id);
    one.content.resize(bytes_of(one.id));
    std::byte* to = one.content.data();
    for (const std::byte* frame : one.frames) {
      std::memcpy(to, frame, kFrameBytes);
      to += kFrameBytes;
    }
  }
  const Lock lock(lock_);
  for (const Parked& one : *parked) give_frames(state_->allocations[one.id]);
  return true;
}

bool Machine::unpark(const std::vector<Parked>& parked, std::map<std::byte*, std::byte*>* moved) {
  {
    const Lock lock(lock_);
    if (slot_ < 0) return false;
    reap();
    std::map<std::uint32_t, std::uint32_t> wanted;
    for (const Parked& one : parked) {
      const Allocation& allocation = state_->allocations[one.id];
      wanted[allocation.device] += allocation.frame_count;
    }
    for (const auto& [device, count] : wanted) {
      if (state_->devices[device].free_frames < count) return false;
    }
    for (const Parked& one : parked) take_frames(one.id, state_->allocations[one.id]);
  }
  for (const Parked& one : parked) {
    const std::vector<std::byte*> there = frames(one.id);
    const std::byte* from = one.content.data();
    for (std::size_t i = 0; i < there.size(); ++i, from += kFrameBytes) {
      std::memcpy(there[i], from, kFrameBytes);
      (*moved)[one.frames[i]] = there[i];
    }
  }
  const Lock lock(lock_);  // with its bytes, others may have it again
  for (const Parked& one : parked) state_->allocations[one.id].is_parked = 0;
  return true;
}

}  // namespace plexrl::simgpu
