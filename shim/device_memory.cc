#include "shim/device_memory.h"

#include <algorithm>

#include "interpose/driver.h"
#include "shim/activity.h"
#include "shim/contexts.h"
#include "shim/driver_scope.h"
#include "shim/fault_points.h"
#include "shim/gate.h"

namespace plexrl::shim {

CUresult DeviceMemory::allocate(CUdevice device, CUcontext context, std::size_t bytes,
                                std::uint64_t* out) {
  if (bytes > Suballocator::kLargeBytes)
    return add_range(device, context, bytes, false, wire::MemoryKind::kAlloc, out);
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      const auto small = small_[context].allocate(bytes);
      if (small) {
        *out = small->address;
        return CUDA_SUCCESS;
      }
    }
    std::uint64_t block = 0;
    const CUresult result = add_range(device, context, Suballocator::kBlockBytes, true,
                                      wire::MemoryKind::kAlloc, &block);
    if (result != CUDA_SUCCESS) return result;
    const std::lock_guard lock(mutex_);
    small_[context].add_block(block);
  }
}

CUresult DeviceMemory::add_range(CUdevice device, CUcontext context, std::size_t bytes,
                                 bool is_shared_block, wire::MemoryKind kind, std::uint64_t* start,
                                 const CUmemAllocationProp* properties) {
  // A size near 2^64 would wrap when rounded up.
  if (bytes > std::size_t{1} << 47) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::size_t mapped = ranges_.mapped_size(bytes);
  if (!devices_.charge(device, mapped, false)) return CUDA_ERROR_OUT_OF_MEMORY;
  PLEXRL_FAULT_POINT("alloc.charged");
  Range* range = nullptr;
  const CUresult result =
      ranges_.reserve(device, context, bytes, is_shared_block, &range, kind, properties);
  if (result != CUDA_SUCCESS) {
    devices_.uncharge(device, mapped, false);
    return result;
  }
  const std::uint64_t address = range->start;
  // The range is in the table, so from here on the gate opens only when it is backed; if it is open
  // already, that is our work, and being inside keeps a drain from completing meanwhile.
  if (const auto inside = InsideGate::if_open(); inside && !pager_.back_now(range)) {
    gate.close();
    hooks_.memory_missing();
  }
  *start = address;
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::take_range(CUdevice device, std::size_t bytes, wire::MemoryKind kind,
                                  std::uint64_t* start, const CUmemAllocationProp* properties) {
  return add_range(device, nullptr, bytes, false, kind, start, properties);
}

std::optional<DeviceMemory::Allocation> DeviceMemory::find(std::uint64_t address) {
  const auto range = ranges_.describe(address);
  if (!range || range->kind != wire::MemoryKind::kAlloc) return std::nullopt;
  if (!range->is_shared_block) {
    return Allocation{
        range->start, range->bytes, range->device, range->context, range->identifier << 32,
        nullptr,      true};
  }
  const std::lock_guard lock(mutex_);
  const auto it = small_.find(range->context);
  if (it == small_.end()) return std::nullopt;
  const auto small = it->second.find(address);
  if (!small) return std::nullopt;
  return Allocation{small->address,
                    small->bytes,
                    range->device,
                    range->context,
                    range->identifier << 32 | small->identifier,
                    nullptr,
                    true};
}

std::optional<CUresult> DeviceMemory::free(std::uint64_t address) {
  const auto allocation = find(address);
  if (!allocation || allocation->start != address) return std::nullopt;
  bool deferred = false;
  const CUresult result = wait_for_outstanding(allocation->context, &deferred);
  if (deferred) {
    const std::lock_guard lock(mutex_);
    const auto is_in = [&](const std::vector<std::uint64_t>& freed) {
      return std::find(freed.begin(), freed.end(), address) != freed.end();
    };
    if (is_in(deferred_) || is_in(ready_)) {
      return CUDA_ERROR_INVALID_VALUE;  // freed twice
    }
    deferred_.push_back(address);
    return CUDA_SUCCESS;
  }
  if (result != CUDA_SUCCESS) return result;
  release_now(address);
  hooks_.freed();
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::wait_for_outstanding(CUcontext context, bool* deferred) {
  *deferred = false;
  const PushedContext pushed(context);
  if (!pushed.ok()) return CUDA_SUCCESS;
  if (hooks_.is_quiet()) return context_error();
  if (activity().is_capturing()) {
    // To wait would break the capture; the memory goes when it is over.
    *deferred = true;
    return CUDA_SUCCESS;
  }
  return driver.cuCtxSynchronize();
}

void DeviceMemory::release_now(std::uint64_t address) {
  const auto range = ranges_.describe(address);
  if (!range) return;
  if (!range->is_shared_block) return drop_range(range->start, range->device);
  std::optional<std::uint64_t> empty_block;
  {
    const std::lock_guard lock(mutex_);
    bool found = false;
    empty_block = small_[range->context].free(address, &found);
  }
  if (empty_block) drop_range(*empty_block, range->device);
}

void DeviceMemory::drop_range(std::uint64_t start, CUdevice device) {
  if (hooks_.still_shared(start)) return ranges_.hide(start);
  std::size_t freed = 0;
  std::size_t pinned = 0;
  auto range = ranges_.remove(start, &freed, &pinned);
  if (range) pager_.release(std::move(range));
  devices_.uncharge(device, freed - pinned, false);
  devices_.uncharge(device, pinned, true);
}

void DeviceMemory::context_ended(CUcontext context) {
  for (const std::uint64_t start : ranges_.starts_of(context)) {
    const auto range = ranges_.describe(start);
    if (range) drop_range(start, range->device);
  }
  const std::lock_guard lock(mutex_);
  small_.erase(context);
}

void DeviceMemory::release_deferred() {
  std::vector<std::uint64_t> ready;
  {
    const std::lock_guard lock(mutex_);
    ready.swap(ready_);
    ready_.swap(deferred_);
  }
  for (const std::uint64_t address : ready) release_now(address);
  if (!ready.empty()) hooks_.freed();
}

}  // namespace plexrl::shim
