#include "tools/simgpu/driver/graph_memory.h"

#include <atomic>
#include <map>
#include <vector>

#include "tools/simgpu/driver/device_memory.h"
#include "tools/simgpu/driver/driver.h"

namespace plexrl::simgpu {
namespace {

std::mutex all_mutex;  // taken before a GraphMemory's own
std::atomic<std::uint64_t> peaks[kMaxDevices];

std::map<CUdeviceptr, std::weak_ptr<GraphMemory>>& all() {
  static auto* const instance = new std::map<CUdeviceptr, std::weak_ptr<GraphMemory>>;
  return *instance;
}

}  // namespace

CUresult GraphMemory::create(Context* context, const CUDA_MEM_ALLOC_NODE_PARAMS& parameters,
                             std::shared_ptr<GraphMemory>* made) {
  if (parameters.bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<GraphMemory> memory(new GraphMemory(context, parameters));
  memory->address_ = driver()->addresses.reserve(memory->reserved_bytes(), kFrameBytes, 0);
  if (memory->address_ == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  memory->parameters_.dptr = memory->address_;
  memory->parameters_.accessDescs = nullptr;
  memory->parameters_.accessDescCount = 0;
  const std::lock_guard lock(all_mutex);
  all()[memory->address_] = memory;
  *made = std::move(memory);
  return CUDA_SUCCESS;
}

GraphMemory::~GraphMemory() {
  if (address_ == 0) return;
  const std::lock_guard lock(all_mutex);
  all().erase(address_);
  // Memory that the program hasn't freed yet is now its own; its free gives the addresses back.
  const bool was_freed_outside = range_id_ != 0;
  if (!is_allocated_locked() && !was_freed_outside) {
    driver()->addresses.unreserve(address_, reserved_bytes());
  }
}

std::uint64_t GraphMemory::reserved_bytes() const {
  return (parameters_.bytesize + kFrameBytes - 1) / kFrameBytes * kFrameBytes;
}

bool GraphMemory::is_allocated_locked() const {
  const auto range = driver()->addresses.find(address_);
  return range_id_ != 0 && range.has_value() && range->id == range_id_;
}

bool GraphMemory::is_allocated() const {
  const std::lock_guard lock(mutex_);
  return is_allocated_locked();
}

CUresult GraphMemory::allocate() {
  {
    const std::lock_guard lock(mutex_);
    if (is_allocated_locked()) return CUDA_SUCCESS;
    if (const CUresult result = back(); result != CUDA_SUCCESS) return result;
  }
  const std::uint64_t used = used_bytes(context_->device);
  std::atomic<std::uint64_t>& peak = peaks[context_->device];
  std::uint64_t before = peak.load();
  while (used > before && !peak.compare_exchange_weak(before, used)) {
  }
  return CUDA_SUCCESS;
}

CUresult GraphMemory::back() {
  Driver* const d = driver();
  if (range_id_ != 0) {
    // The program freed it, and its addresses with it.
    const std::uint64_t again = d->addresses.reserve(reserved_bytes(), kFrameBytes, address_);
    if (again != address_) {
      if (again != 0) d->addresses.unreserve(again, reserved_bytes());
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range_id_ = 0;
  }
  Range range;
  range.base = address_;
  range.bytes = parameters_.bytesize;
  range.device = context_->device;
  range.context = context_;
  range.id = d->addresses.next_id();
  if (!d->machine->allocate(context_->device, reserved_bytes(), &range.allocation)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const auto frames = d->machine->frames(range.allocation);
  // Peers that are not enabled can't be told apart here; a graph's memory is visible to all.
  for (const int device : d->visible) d->addresses.map(device, address_, frames);
  d->addresses.add(range);
  range_id_ = range.id;
  return CUDA_SUCCESS;
}

CUresult GraphMemory::free() {
  const std::lock_guard lock(mutex_);
  if (!is_allocated_locked()) return CUDA_ERROR_INVALID_VALUE;
  Driver* const d = driver();
  Range range;
  d->addresses.remove(address_, &range);
  for (const int device : d->visible) d->addresses.unmap(device, address_, reserved_bytes());
  d->machine->release(range.allocation);
  range_id_ = 0;
  return CUDA_SUCCESS;
}

std::shared_ptr<GraphMemory> GraphMemory::find(CUdeviceptr address) {
  const std::lock_guard lock(all_mutex);
  const auto found = all().find(address);
  return found == all().end() ? nullptr : found->second.lock();
}

bool GraphMemory::covers(CUdeviceptr address, std::size_t bytes) {
  std::shared_ptr<GraphMemory> memory;  // released after the lock
  const std::lock_guard lock(all_mutex);
  auto found = all().upper_bound(address);
  if (found == all().begin()) return false;
  memory = (--found)->second.lock();
  return memory != nullptr && address - found->first <= memory->parameters_.bytesize &&
         bytes <= memory->parameters_.bytesize - (address - found->first);
}

std::uint64_t GraphMemory::used_bytes(int device) {
  std::vector<std::shared_ptr<GraphMemory>> living;  // released after the lock
  const std::lock_guard lock(all_mutex);
  std::uint64_t bytes = 0;
  for (const auto& [address, entry] : all()) {
    std::shared_ptr<GraphMemory> memory = entry.lock();
    if (memory == nullptr) continue;
    if (memory->context_->device == device && memory->is_allocated()) {
      bytes += memory->reserved_bytes();
    }
    living.push_back(std::move(memory));
  }
  return bytes;
}

std::uint64_t GraphMemory::peak_bytes(int device) { return peaks[device].load(); }

void GraphMemory::reset_peak(int device) { peaks[device].store(used_bytes(device)); }

}  // namespace plexrl::simgpu
