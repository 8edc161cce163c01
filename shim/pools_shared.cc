#include "shim/pools.h"

/// Pools between processes of the job: which of ours others may have, and those of others.

namespace plexrl::shim {

std::optional<Pools::Shared> Pools::shared(CUmemoryPool handle) {
  const std::lock_guard lock(mutex_);
  const Pool* const pool = find_pool(handle);
  if (pool == nullptr || pool->tag == 0 || pool->is_import) return std::nullopt;
  return Shared{pool->tag, pool->device};
}

std::optional<Pools::Export> Pools::export_of(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto segment = segments_.upper_bound(address);
  if (segment == segments_.begin()) return std::nullopt;
  const auto& [start, pool] = *std::prev(segment);
  const auto found = pool->space.find(address);
  if (!found || found->start != address || pool->tag == 0 || pool->is_import) return std::nullopt;
  return Export{pool->tag,
                start,
                {found->start, found->bytes, pool->device, nullptr, identifier_of(*pool, *found),
                 pool->handle}};
}

void Pools::add_import(CUmemoryPool handle, CUdevice device, std::uint64_t tag) {
  add(handle, device, 0, tag);
  const std::lock_guard lock(mutex_);
  if (Pool* const pool = find_pool(handle)) pool->is_import = true;
}

std::optional<std::uint64_t> Pools::import_tag(CUmemoryPool handle) {
  const std::lock_guard lock(mutex_);
  const Pool* const pool = find_pool(handle);
  if (pool == nullptr || !pool->is_import) return std::nullopt;
  return pool->tag;
}

CUresult Pools::import(CUmemoryPool handle, std::uint64_t range, std::size_t range_bytes,
                       std::size_t offset, std::size_t bytes) {
  CUresult result = CUDA_SUCCESS;
  bool is_used = false;
  std::vector<CUmemAccessDesc> access;
  {
    const std::lock_guard lock(mutex_);
    Pool* const pool = find_pool(handle);
    const bool is_inside = offset % PoolSpace::kAlignment == 0 && offset < range_bytes &&
                           bytes != 0 && bytes <= range_bytes - offset &&
                           PoolSpace::rounded(bytes) <= range_bytes - offset;
    if (pool == nullptr || !is_inside) {
      result = CUDA_ERROR_INVALID_VALUE;
    } else {
      const auto [segment, is_new] = segments_.try_emplace(range, pool);
      is_used = !is_new;
      if (is_new) {
        pool->space.add_segment(range, range_bytes);
        access = pool->access;
      }
      // The same memory by another handle of the same pool is in use already.
      if (segment->second != pool || !pool->space.take_at(range + offset, bytes)) {
        result = CUDA_ERROR_ALREADY_MAPPED;
      }
    }
  }
  // A segment has one use of its range, however many allocations of it are here.
  if (is_used || result == CUDA_ERROR_INVALID_VALUE) close_import_(range);
  if (result == CUDA_SUCCESS && !access.empty()) memory_.set_access(range, access);
  return result;
}

/// Of an imported pool nothing is kept for later.
void Pools::drop_freed(std::uint64_t address) {
  Unused unused(*this);
  {
    const std::lock_guard lock(mutex_);
    Pool* const pool = pool_of(address);
    if (pool == nullptr || !pool->is_import) return;
    settle(*pool);
    trim_locked(*pool, 0, &unused);
  }
  drop(unused);
}

}  // namespace plexrl::shim
