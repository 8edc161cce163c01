#include <cstring>

#include "shim/pools.h"

/// What a pool tells of itself, and who may access it.

namespace plexrl::shim {

std::optional<CUresult> Pools::set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                             const void* value) {
  const std::lock_guard lock(mutex_);
  Pool* const pool = find_pool(handle);
  if (pool == nullptr) return std::nullopt;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      std::memcpy(&pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES], value,
                  sizeof(int));
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      std::memcpy(&pool->threshold, value, sizeof pool->threshold);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: {
      std::uint64_t wanted = 0;
      std::memcpy(&wanted, value, sizeof wanted);
      if (wanted != 0) return CUDA_ERROR_INVALID_VALUE;  // "can only be reset to zero"
      attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool->space.reset_used_high()
                                                 : pool->space.reset_reserved_high();
      return CUDA_SUCCESS;
    }
    default:
      return std::nullopt;
  }
}

std::optional<CUresult> Pools::get_attribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                             void* value) {
  const std::lock_guard lock(mutex_);
  const Pool* const pool = find_pool(handle);
  if (pool == nullptr) return std::nullopt;
  std::uint64_t figure = 0;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      std::memcpy(value, &pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES],
                  sizeof(int));
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      figure = pool->threshold;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      figure = pool->space.reserved_bytes();
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      figure = pool->space.reserved_high();
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      figure = pool->space.used_bytes();
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      figure = pool->space.used_high();
      break;
    default:
      return std::nullopt;
  }
  std::memcpy(value, &figure, sizeof figure);
  return CUDA_SUCCESS;
}

CUresult Pools::set_access(CUmemoryPool handle, const CUmemAccessDesc* access, std::size_t count) {
  std::vector<CUmemAccessDesc> wanted;
  std::vector<std::uint64_t> starts;
  {
    const std::lock_guard lock(mutex_);
    Pool* const pool = find_pool(handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
      const CUmemLocation& where = access[i].location;
      if (where.type == CU_MEM_LOCATION_TYPE_DEVICE && where.id == pool->device) continue;
      std::erase_if(pool->access, [&](const CUmemAccessDesc& one) {
        return one.location.type == where.type && one.location.id == where.id;
      });
      pool->access.push_back(access[i]);
    }
    wanted = pool->access;
    for (const auto& [start, owner] : segments_) {
      if (owner == pool) starts.push_back(start);
    }
  }
  CUresult result = CUDA_SUCCESS;
  for (const std::uint64_t start : starts) {
    const CUresult set = memory_.set_access(start, wanted);
    if (set != CUDA_SUCCESS) result = set;
  }
  return result;
}

}  // namespace plexrl::shim
