#include <algorithm>
#include <bit>

#include "tools/simgpu/driver/machine.h"
#include "tools/simgpu/driver/machine_state.h"

/// Multicast objects: what is bound to them, by whom, on which device.

namespace plexrl::simgpu {
namespace {

/// Whether the bytes at `offset` and those of a bind meet.
bool meet(const MulticastBind& bind, std::uint64_t offset, std::uint64_t bytes) {
  return bind.bytes != 0 && offset < bind.offset + bind.bytes && bind.offset < offset + bytes;
}

}  // namespace

bool Machine::create_multicast(const MulticastProperties& properties, std::uint32_t* id) {
  const Lock lock(lock_);
  if (slot_ < 0) return false;
  MulticastObject* const first = std::begin(state_->multicasts);
  MulticastObject* const last = std::end(state_->multicasts);
  const auto free_object = [=] {
    return std::find_if(first, last, [](const MulticastObject& o) { return o.is_taken == 0; });
  };
  if (free_object() == last) collect();
  MulticastObject* const object = free_object();
  const std::uint32_t taken = free_id();
  if (object == last || taken == 0) return false;
  *object = {};
  object->is_taken = 1;
  object->team = properties.team;
  object->handle_types = properties.handle_types;
  object->bytes = properties.bytes;
  state_->next_allocation = std::max(state_->next_allocation, taken);
  Allocation& allocation = state_->allocations[taken];
  allocation = {};
  allocation.multicast = static_cast<std::uint32_t>(object - first) + 1;
  allocation.tag = state_->next_tag;
  state_->next_tag += 2;
  allocation.hold_by(slot_);
  local_holds_[taken] = 1;
  *id = taken;
  return true;
}

std::optional<Machine::MulticastProperties> Machine::multicast(std::uint32_t id) const {
  const std::uint32_t number = state_->allocations[id].multicast;
  if (number == 0) return std::nullopt;
  const MulticastObject& object = state_->multicasts[number - 1];
  return MulticastProperties{object.bytes, object.team, object.handle_types};
}

MulticastObject& Machine::multicast_object(std::uint32_t id) {
  return state_->multicasts[state_->allocations[id].multicast - 1];
}

bool Machine::add_to_multicast(std::uint32_t id, int device) {
  const Lock lock(lock_);
  MulticastObject& object = multicast_object(id);
  const std::uint32_t bit = 1u << device;
  if ((object.devices & bit) != 0 ||
      static_cast<unsigned>(std::popcount(object.devices)) == object.team) {
    return false;
  }
  object.devices |= bit;
  return true;
}

bool Machine::is_complete(std::uint32_t id) {
  const Lock lock(lock_);
  const MulticastObject& object = multicast_object(id);
  return static_cast<unsigned>(std::popcount(object.devices)) == object.team;
}

bool Machine::is_in_team(std::uint32_t id, int device) {
  const Lock lock(lock_);
  return (multicast_object(id).devices >> device & 1) != 0;
}

Machine::Bound Machine::bind_multicast(std::uint32_t id, std::uint64_t offset,
                                       std::uint32_t allocation, std::uint64_t memory_offset,
                                       std::uint64_t bytes) {
  const Lock lock(lock_);
  if (slot_ < 0) return Bound::kNoRoom;
  MulticastObject& object = multicast_object(id);
  const Allocation& memory = state_->allocations[allocation];
  MulticastBind* free = nullptr;
  for (MulticastBind& bind : object.binds) {
    const Allocation& other = state_->allocations[bind.allocation];
    if (bind.bytes != 0 && other.tag != bind.tag) bind = {};  // the memory of a process that died
    if (meet(bind, offset, bytes) && other.device == memory.device) return Bound::kTaken;
    if (bind.bytes == 0 && free == nullptr) free = &bind;
  }
  if (free == nullptr) return Bound::kNoRoom;
  *free = {bytes, offset, memory_offset, memory.tag, allocation, slot_};
  ++local_holds_[allocation];
  return Bound::kDone;
}

bool Machine::unbind_multicast(std::uint32_t id, int device, std::uint64_t offset,
                               std::uint64_t bytes) {
  const Lock lock(lock_);
  for (MulticastBind& bind : multicast_object(id).binds) {
    const auto of = static_cast<int>(state_->allocations[bind.allocation].device);
    if (bind.bytes != bytes || bind.offset != offset || bind.slot != slot_ || of != device)
      continue;
    const std::uint32_t allocation = bind.allocation;
    bind = {};
    drop_hold(allocation);
    return true;
  }
  return false;
}

/// What the process in `slot` has bound. The lock is held.
void Machine::drop_binds(MulticastObject& object, int slot) {
  for (MulticastBind& bind : object.binds) {
    if (bind.bytes == 0 || bind.slot != slot) continue;
    const std::uint32_t allocation = bind.allocation;
    bind = {};
    if (slot == slot_) drop_hold(allocation);
  }
}

std::size_t Machine::multicast_replicas(std::uint32_t id, std::uint64_t offset, std::byte** out) {
  const Lock lock(lock_);
  std::size_t count = 0;
  // One device after the other, so that what is combined is combined in the same order always.
  for (std::uint32_t device = 0; device < static_cast<std::uint32_t>(spec_.gpus); ++device) {
    for (const MulticastBind& bind : multicast_object(id).binds) {
      const Allocation& memory = state_->allocations[bind.allocation];
      if (!meet(bind, offset, 1) || memory.tag != bind.tag || memory.device != device) continue;
      const std::uint64_t at = bind.memory_offset + (offset - bind.offset);
      std::uint32_t frame = memory.first_frame;
      for (std::uint64_t skip = at / kFrameBytes; skip > 0; --skip)
        frame = state_->devices[device].frames[frame - 1].next;
      out[count++] = pools_[device] + (frame - 1) * kFrameBytes + at % kFrameBytes;
    }
  }
  return count;
}

}  // namespace plexrl::simgpu
