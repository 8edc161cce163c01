#include "tools/simgpu/driver/memory_pool.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "tools/simgpu/driver/driver.h"

namespace plexrl::simgpu {
namespace {

constexpr std::uint64_t kAlignment = 512;

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

MemoryPool::MemoryPool(int device, std::uint64_t max_bytes, std::uint64_t tag, bool is_imported)
    : device_(device),
      max_bytes_(max_bytes),
      tag_(tag),
      is_imported_(is_imported),
      readable_(1u << device),
      writable_(1u << device) {}

CUresult MemoryPool::allocate(std::uint64_t bytes, Stream* stream, std::uint64_t* address) {
  if (bytes == 0 || is_imported_) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > driver()->machine->total_bytes(device_)) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t size = round_up(bytes, kAlignment);
  CompletionPtr after;
  std::unique_lock lock(mutex_);
  settle();
  std::uint64_t found = from_holes(size);
  if (found == 0) found = from_pending(size, stream, nullptr);
  if (found == 0 && grow(size)) found = from_holes(size);
  if (found == 0 && switches_[2] != 0) found = from_pending(size, nullptr, &after);
  if (found == 0) {
    // The last resort: what is being freed, in pieces, once its streams have come there.
    std::vector<CompletionPtr> ends;
    for (const Pending& one : pending_) ends.push_back(one.end);
    lock.unlock();
    for (const CompletionPtr& end : ends) end->wait();
    lock.lock();
    settle();
    found = from_holes(size);
    if (found == 0) {
      trim_locked(0);
      if (grow(size)) found = from_holes(size);
    }
  }
  if (found == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  hand_out(found, size, bytes);
  lock.unlock();
  if (after != nullptr) stream->wait_for(std::move(after));
  *address = found;
  return CUDA_SUCCESS;
}

void MemoryPool::hand_out(std::uint64_t address, std::uint64_t size, std::uint64_t bytes) {
  living_[address] = size;
  used_ += size;
  used_high_ = std::max(used_high_, used_);
  Range range;
  range.base = address;
  range.bytes = bytes;
  range.kind = Range::Kind::kPool;
  range.device = device_;
  range.id = driver()->addresses.next_id();
  range.pool = this;
  driver()->addresses.add(range);
}

bool MemoryPool::locate(std::uint64_t address, Part* part) {
  const std::lock_guard lock(mutex_);
  if (living_.count(address) == 0) return false;
  const auto range = driver()->addresses.find(address);
  if (!range) return false;
  const auto& [base, segment] = *std::prev(segments_.upper_bound(address));
  *part = {segment.allocation, driver()->machine->tag_of(segment.allocation), address - base,
           range->bytes};
  return true;
}

CUresult MemoryPool::import(const Part& part, std::uint64_t* address) {
  Machine& machine = *driver()->machine;
  const std::lock_guard lock(mutex_);
  settle();
  // A failure leaves no segment that nothing is in.
  const auto fail = [this](CUresult result) {
    trim_locked(0);
    return result;
  };
  auto segment = std::find_if(segments_.begin(), segments_.end(), [&](const auto& one) {
    return one.second.allocation == part.allocation &&
           machine.tag_of(part.allocation) == part.allocation_tag;
  });
  if (segment == segments_.end()) {
    if (!machine.import_id(part.allocation, part.allocation_tag)) return CUDA_ERROR_INVALID_VALUE;
    const bool is_ours = machine.device_of(part.allocation) == device_;
    if (const CUresult result = is_ours ? add_segment(part.allocation) : CUDA_ERROR_INVALID_VALUE;
        result != CUDA_SUCCESS) {
      machine.release(part.allocation);
      return result;
    }
    segment = std::find_if(segments_.begin(), segments_.end(), [&](const auto& one) {
      return one.second.allocation == part.allocation;
    });
  }
  const std::uint64_t size = round_up(part.bytes, kAlignment);
  const std::uint64_t found = segment->first + part.offset;
  auto& holes = segment->second.holes;
  auto hole = holes.upper_bound(found);
  if (part.offset >= segment->second.bytes) return fail(CUDA_ERROR_INVALID_VALUE);
  if (hole == holes.begin()) return fail(CUDA_ERROR_ALREADY_MAPPED);
  --hole;
  const std::uint64_t start = hole->first;
  const std::uint64_t end = start + hole->second;
  if (found >= end) return fail(CUDA_ERROR_ALREADY_MAPPED);
  if (part.bytes == 0 || size > end - found) return fail(CUDA_ERROR_INVALID_VALUE);
  holes.erase(hole);
  if (found > start) holes[start] = found - start;
  if (found + size < end) holes[found + size] = end - found - size;
  hand_out(found, size, part.bytes);
  *address = found;
  return CUDA_SUCCESS;
}

bool MemoryPool::take(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = living_.find(address);
  if (found == living_.end()) return false;
  // Kept under an address that no allocation has, until give_back or keep says what becomes of it.
  living_[address | 1] = found->second;
  living_.erase(address);
  return true;
}

void MemoryPool::keep(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  living_[address] = living_[address | 1];
  living_.erase(address | 1);
}

void MemoryPool::give_back(std::uint64_t address, const Stream* stream, CompletionPtr end) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t size = living_[address | 1];
  living_.erase(address | 1);
  driver()->addresses.remove(address, nullptr);
  used_ -= size;
  if (end == nullptr || end->is_done()) {
    add_hole(address, size);
  } else {
    pending_.push_back({address, size, stream->id(), std::move(end)});
  }
  if (is_imported_) trim_locked(0);
}

void MemoryPool::settle() {
  for (auto one = pending_.begin(); one != pending_.end();) {
    if (!one->end->is_done()) {
      ++one;
      continue;
    }
    add_hole(one->address, one->bytes);
    one = pending_.erase(one);
  }
}

void MemoryPool::add_hole(std::uint64_t address, std::uint64_t bytes) {
  auto& holes = std::prev(segments_.upper_bound(address))->second.holes;
  std::uint64_t start = address;
  std::uint64_t end = address + bytes;
  auto next = holes.lower_bound(start);
  if (next != holes.end() && next->first == end) {
    end += next->second;
    next = holes.erase(next);
  }
  if (next != holes.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == start) {
      start = before->first;
      holes.erase(before);
    }
  }
  holes[start] = end - start;
}

std::uint64_t MemoryPool::from_holes(std::uint64_t bytes) {
  for (auto& [base, segment] : segments_) {
    for (auto hole = segment.holes.begin(); hole != segment.holes.end(); ++hole) {
      if (hole->second < bytes) continue;
      const std::uint64_t address = hole->first;
      const std::uint64_t left = hole->second - bytes;
      segment.holes.erase(hole);
      if (left > 0) segment.holes[address + bytes] = left;
      return address;
    }
  }
  return 0;
}

/// A piece of what is being freed: by `stream`, or by any stream when that is nullptr; *end is then
/// what must come first.
std::uint64_t MemoryPool::from_pending(std::uint64_t bytes, const Stream* stream,
                                       CompletionPtr* end) {
  for (auto one = pending_.begin(); one != pending_.end(); ++one) {
    if (one->bytes < bytes || (stream != nullptr && one->stream != stream->id())) continue;
    const std::uint64_t address = one->address;
    if (end != nullptr) *end = one->end;
    one->address += bytes;
    one->bytes -= bytes;
    if (one->bytes == 0) pending_.erase(one);
    return address;
  }
  return 0;
}

bool MemoryPool::grow(std::uint64_t bytes) {
  const std::uint64_t size = round_up(bytes, kFrameBytes);
  if (max_bytes_ != 0 && reserved_ + size > max_bytes_) return false;
  std::uint32_t allocation = 0;
  if (!driver()->machine->allocate(device_, size, &allocation)) return false;
  if (add_segment(allocation) == CUDA_SUCCESS) return true;
  driver()->machine->release(allocation);
  return false;
}

/// Maps an allocation that this process holds. Errors: OUT_OF_MEMORY without address space.
CUresult MemoryPool::add_segment(std::uint32_t allocation) {
  Driver* const d = driver();
  const std::uint64_t size = d->machine->bytes_of(allocation);
  const std::uint64_t base = d->addresses.reserve(size, kFrameBytes, 0);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::vector<std::byte*> frames = d->machine->frames(allocation);
  for (int i = 0; i < kMaxDevices; ++i) {
    if ((readable_ >> i & 1) != 0) d->addresses.map(i, base, frames);
  }
  segments_[base] = {size, allocation, {{base, size}}};
  reserved_ += size;
  reserved_high_ = std::max(reserved_high_, reserved_);
  return CUDA_SUCCESS;
}

void MemoryPool::drop(std::map<std::uint64_t, Segment>::iterator segment) {
  Driver* const d = driver();
  for (int i = 0; i < kMaxDevices; ++i) {
    if ((readable_ >> i & 1) != 0) d->addresses.unmap(i, segment->first, segment->second.bytes);
  }
  d->addresses.unreserve(segment->first, segment->second.bytes);
  d->machine->release(segment->second.allocation);
  reserved_ -= segment->second.bytes;
  segments_.erase(segment);
}

void MemoryPool::trim(std::uint64_t keep_bytes) {
  const std::lock_guard lock(mutex_);
  settle();
  trim_locked(keep_bytes);
}

void MemoryPool::trim_to_threshold() {
  const std::lock_guard lock(mutex_);
  if (segments_.empty()) return;
  settle();
  trim_locked(threshold_);
}

void MemoryPool::trim_locked(std::uint64_t keep_bytes) {
  for (auto segment = segments_.begin(); segment != segments_.end() && reserved_ > keep_bytes;) {
    const auto next = std::next(segment);
    const auto& holes = segment->second.holes;
    if (!holes.empty() && holes.begin()->second == segment->second.bytes) drop(segment);
    segment = next;
  }
}

CUresult MemoryPool::set_attribute(CUmemPool_attribute attribute, const void* value) {
  const std::lock_guard lock(mutex_);
  std::uint64_t wide = 0;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      std::memcpy(&switches_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES], value,
                  sizeof(int));
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      std::memcpy(&threshold_, value, sizeof threshold_);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      std::memcpy(&wide, value, sizeof wide);
      if (wide != 0) return CUDA_ERROR_INVALID_VALUE;  // "can only be reset to zero"
      (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? used_high_ : reserved_high_) =
          attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? used_ : reserved_;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult MemoryPool::get_attribute(CUmemPool_attribute attribute, void* value) {
  const std::lock_guard lock(mutex_);
  settle();
  std::uint64_t wide = 0;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      std::memcpy(value, &switches_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES],
                  sizeof(int));
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      wide = threshold_;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      wide = reserved_;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      wide = reserved_high_;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      wide = used_;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      wide = used_high_;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  std::memcpy(value, &wide, sizeof wide);
  return CUDA_SUCCESS;
}

void MemoryPool::set_access(int device, CUmemAccess_flags flags) {
  const std::lock_guard lock(mutex_);
  const unsigned bit = 1u << device;
  readable_ = flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? readable_ & ~bit : readable_ | bit;
  writable_ = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? writable_ | bit : writable_ & ~bit;
  for (const auto& [base, segment] : segments_) {
    if ((readable_ & bit) != 0) {
      driver()->addresses.map(device, base, driver()->machine->frames(segment.allocation));
    } else {
      driver()->addresses.unmap(device, base, segment.bytes);
    }
  }
}

CUmemAccess_flags MemoryPool::access(int device) {
  const std::lock_guard lock(mutex_);
  if ((writable_ >> device & 1) != 0) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return (readable_ >> device & 1) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                        : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

bool MemoryPool::is_unused() {
  const std::lock_guard lock(mutex_);
  settle();
  return living_.empty() && pending_.empty();
}

}  // namespace plexrl::simgpu
