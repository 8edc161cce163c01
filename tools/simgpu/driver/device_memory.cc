#include "tools/simgpu/driver/device_memory.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "tools/simgpu/driver/array.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/external.h"
#include "tools/simgpu/driver/graph_memory.h"
#include "tools/simgpu/driver/managed.h"

namespace plexrl::simgpu {
namespace {

std::uint64_t frames_bytes(std::uint64_t bytes) {
  return (bytes + kFrameBytes - 1) / kFrameBytes * kFrameBytes;
}

/// The machine's allocation of each frame that small blocks share, by the frame's address.
std::mutex small_frames_mutex;
auto& small_frames = *new std::map<std::uint64_t, std::uint32_t>;

}  // namespace

std::uint64_t map_allocation(int device, std::uint32_t allocation) {
  Driver* const d = driver();
  const std::vector<std::byte*> frames = d->machine->frames(allocation);
  const std::uint64_t address = d->addresses.reserve(frames.size() * kFrameBytes, kFrameBytes, 0);
  if (address == 0) return 0;
  d->addresses.map(device, address, frames);
  const std::lock_guard lock(d->mutex);
  for (const Context* context : d->contexts) {
    if (context->device != device && (context->peers.load() >> device & 1) != 0) {
      d->addresses.map(context->device, address, frames);
    }
  }
  return address;
}

void unmap_allocation(int device, std::uint64_t address, std::uint64_t bytes) {
  Driver* const d = driver();
  d->addresses.unmap(device, address, bytes);
  for (int other : d->visible) d->addresses.unmap(other, address, bytes);
  d->addresses.unreserve(address, bytes);
}

std::unique_ptr<SmallBlocks> make_small_blocks(int device) {
  return std::make_unique<SmallBlocks>(
      [device]() -> std::uint64_t {
        std::uint32_t id = 0;
        if (!driver()->machine->allocate(device, kFrameBytes, &id)) return 0;
        const std::uint64_t address = map_allocation(device, id);
        if (address == 0) {
          driver()->machine->release(id);
          return 0;
        }
        const std::lock_guard lock(small_frames_mutex);
        small_frames[address] = id;
        return address;
      },
      [device](std::uint64_t address) {
        unmap_allocation(device, address, kFrameBytes);
        const std::lock_guard lock(small_frames_mutex);
        driver()->machine->release(small_frames[address]);
        small_frames.erase(address);
      });
}

bool find_allocation(std::uint64_t address, std::uint32_t* id, std::uint64_t* offset) {
  const auto range = driver()->addresses.find(address);
  if (!range || range->kind != Range::Kind::kDevice) return false;
  if (range->allocation != 0) {
    *id = range->allocation;
    *offset = 0;
    return true;
  }
  const std::uint64_t frame = range->base / kFrameBytes * kFrameBytes;
  const std::lock_guard lock(small_frames_mutex);
  const auto found = small_frames.find(frame);
  if (found == small_frames.end()) return false;
  *id = found->second;
  *offset = range->base - frame;
  return true;
}

CUresult allocate_device(Context* context, std::uint64_t bytes, std::uint64_t* address,
                         Range::Kind kind) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Driver* const d = driver();
  Range range;
  range.bytes = bytes;
  range.kind = kind;
  range.device = context->device;
  range.context = context;
  range.id = d->addresses.next_id();
  if (bytes <= SmallBlocks::kLargest) {
    const std::lock_guard lock(context->mutex);
    range.base = context->blocks->allocate(bytes);
    if (range.base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  } else {
    if (!d->machine->allocate(context->device, bytes, &range.allocation))
      return CUDA_ERROR_OUT_OF_MEMORY;
    range.base = map_allocation(context->device, range.allocation);
    if (range.base == 0) {
      d->machine->release(range.allocation);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  d->addresses.add(range);
  *address = range.base;
  return CUDA_SUCCESS;
}

CUresult free_device(std::uint64_t address) {
  Driver* const d = driver();
  const auto found = d->addresses.find(address);
  if (!found || found->base != address) return CUDA_ERROR_INVALID_VALUE;
  if (found->kind == Range::Kind::kIpc && free_external(address)) return CUDA_SUCCESS;
  if (found->kind != Range::Kind::kDevice && found->kind != Range::Kind::kManaged &&
      found->kind != Range::Kind::kArray) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Range range;
  if (!d->addresses.remove(address, &range)) return CUDA_ERROR_INVALID_VALUE;
  if (range.kind == Range::Kind::kManaged) {
    release_managed(range);
  } else if (range.allocation == 0) {
    auto* const owner = static_cast<Context*>(range.context);
    const std::lock_guard lock(owner->mutex);
    owner->blocks->free(address);
  } else {
    unmap_allocation(range.device, address, frames_bytes(range.bytes));
    d->machine->release(range.allocation);
    if (const auto memory = GraphMemory::find(address)) memory->set_left(false);
  }
  return CUDA_SUCCESS;
}

void unmap_import(const Range& range) {
  Driver* const d = driver();
  if (!d->addresses.remove(range.base, nullptr)) return;
  const std::uint64_t base = range.base / kFrameBytes * kFrameBytes;
  unmap_allocation(range.device, base, d->machine->bytes_of(range.allocation));
  d->machine->release(range.allocation);
}

void free_context_memory(Context* context) {
  destroy_arrays(context);
  for (const Range& range : driver()->addresses.ranges_of(context)) {
    if (range.kind == Range::Kind::kDevice || range.kind == Range::Kind::kManaged) {
      free_device(range.base);
    } else if (range.kind == Range::Kind::kIpc) {
      unmap_import(range);
    }
  }
}

int device_of_address(const Context* context, std::uint64_t address) {
  if (!driver()->addresses.in_arena(address)) return context->device;
  const auto range = driver()->addresses.find(address);
  if (!range) return context->device;
  if (range->kind != Range::Kind::kVmmReservation) return range->device;
  // A reservation belongs to no device; what is mapped there may be any device's memory.
  std::uint64_t contiguous = 0;
  const auto is_mapped = [&](int device) {
    return driver()->addresses.translate(device, address, &contiguous) != nullptr;
  };
  if (is_mapped(context->device)) return context->device;
  const auto& visible = driver()->visible;
  const auto found = std::find_if(visible.begin(), visible.end(), is_mapped);
  return found == visible.end() ? context->device : *found;
}

}  // namespace plexrl::simgpu
