#include "tools/simgpu/driver/managed.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "tools/simgpu/driver/device_memory.h"
#include "tools/simgpu/driver/driver.h"

namespace plexrl::simgpu {
namespace {

constexpr std::uint64_t kPage = 4096;  // of the CPU: the unit of advice

std::uint64_t frames_bytes(std::uint64_t bytes) {
  return (bytes + kFrameBytes - 1) / kFrameBytes * kFrameBytes;
}

/// The advice of one allocation: each entry holds from its offset to the next.
using Pieces = std::map<std::uint64_t, PageAdvice>;

struct AdviceTable {
  std::mutex mutex;
  std::map<std::uint64_t, Pieces> allocations;  // by base
};

AdviceTable& table() {
  static AdviceTable* const instance = new AdviceTable;
  return *instance;
}

/// Makes a piece begin at `offset`.
void split(Pieces& pieces, std::uint64_t offset) {
  const auto before = std::prev(pieces.upper_bound(offset));
  if (before->first != offset) pieces.emplace(offset, before->second);
}

/// Frames of the range's device. False: it has not so many.
bool place_on_device(Range* range) {
  Driver* const d = driver();
  if (!d->machine->allocate(range->device, range->bytes, &range->allocation)) return false;
  range->base = map_allocation(range->device, range->allocation);
  if (range->base == 0) {
    d->machine->release(range->allocation);
    range->allocation = 0;
    return false;
  }
  if (d->machine->map_for_host(range->allocation, reinterpret_cast<void*>(range->base)))
    return true;
  Addresses::hide_from_host(range->base, frames_bytes(range->bytes));
  unmap_allocation(range->device, range->base, frames_bytes(range->bytes));
  d->machine->release(range->allocation);
  range->allocation = 0;
  return false;
}

/// Host memory, which the device then uses in place.
bool place_on_host(Range* range) {
  Addresses& addresses = driver()->addresses;
  const std::uint64_t bytes = frames_bytes(range->bytes);
  range->base = addresses.reserve(bytes, kFrameBytes, 0);
  if (range->base == 0) return false;
  auto* const memory = reinterpret_cast<std::byte*>(range->base);
  if (mmap(memory, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
      MAP_FAILED) {
    addresses.unreserve(range->base, bytes);
    return false;
  }
  madvise(memory, bytes, MADV_DONTFORK);  // as the device's
  std::vector<std::byte*> frames;
  for (std::uint64_t offset = 0; offset < bytes; offset += kFrameBytes)
    frames.push_back(memory + offset);
  addresses.map(range->device, range->base, frames);
  return true;
}

}  // namespace

CUresult allocate_managed(Context* owner, int device, std::uint64_t bytes, std::uint64_t* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Driver* const d = driver();
  Range range;
  range.bytes = bytes;
  range.kind = Range::Kind::kManaged;
  range.device = device;
  range.context = owner;
  range.id = d->addresses.next_id();
  if (!place_on_device(&range) && !place_on_host(&range)) return CUDA_ERROR_OUT_OF_MEMORY;
  for (const int other : d->visible) {
    if (other != device) d->addresses.share(device, other, range.base, range.bytes);
  }
  {
    const std::lock_guard lock(table().mutex);
    table().allocations[range.base][0] = {};
  }
  d->addresses.add(range);
  *address = range.base;
  return CUDA_SUCCESS;
}

void release_managed(const Range& range) {
  {
    const std::lock_guard lock(table().mutex);
    table().allocations.erase(range.base);
  }
  const std::uint64_t bytes = frames_bytes(range.bytes);
  Addresses::hide_from_host(range.base, bytes);
  unmap_allocation(range.device, range.base, bytes);
  if (range.allocation != 0) driver()->machine->release(range.allocation);
}

bool is_managed(std::uint64_t address, std::uint64_t bytes) {
  if (bytes == 0 || address + bytes < address) return false;
  const std::uint64_t end = address + bytes;
  while (address < end) {
    const auto range = driver()->addresses.find(address);
    if (!range || range->kind != Range::Kind::kManaged) return false;
    address = range->base + range->bytes;
  }
  return true;
}

void change_advice(std::uint64_t address, std::uint64_t bytes, void (*change)(PageAdvice&, void*),
                   void* argument) {
  const std::uint64_t end = address + bytes;
  const std::lock_guard lock(table().mutex);
  while (address < end) {
    const auto range = driver()->addresses.find(address);
    if (!range) return;  // freed meanwhile
    const auto found = table().allocations.find(range->base);
    if (found == table().allocations.end()) return;
    Pieces& pieces = found->second;
    const std::uint64_t from = (address - range->base) / kPage * kPage;
    const std::uint64_t last = std::min(end - range->base, range->bytes);
    const std::uint64_t to = (last + kPage - 1) / kPage * kPage;
    split(pieces, from);
    if (to < range->bytes) split(pieces, to);
    for (auto piece = pieces.find(from); piece != pieces.end() && piece->first < to; ++piece) {
      change(piece->second, argument);
    }
    address = range->base + range->bytes;
  }
}

ManagedVariables::~ManagedVariables() {
  for (const auto& [name, variable] : variables_) free_device(variable.address);
}

CUresult ManagedVariables::place(const std::string& name, std::size_t bytes, int device,
                                 CUdeviceptr* address, bool* is_new) {
  const std::lock_guard lock(mutex_);
  const auto found = variables_.find(name);
  *is_new = found == variables_.end();
  if (*is_new) {
    std::uint64_t made = 0;
    const std::size_t least = std::max<std::size_t>(bytes, 1);
    const CUresult result = allocate_managed(nullptr, device, least, &made);
    if (result != CUDA_SUCCESS) return result;
    variables_[name] = {made, bytes};
    *address = made;
  } else {
    *address = found->second.address;
  }
  return CUDA_SUCCESS;
}

bool ManagedVariables::find(const std::string& name, Variable* variable) const {
  const std::lock_guard lock(mutex_);
  const auto found = variables_.find(name);
  if (found == variables_.end()) return false;
  *variable = found->second;
  return true;
}

}  // namespace plexrl::simgpu
