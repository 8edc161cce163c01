#include <algorithm>
#include <set>
#include <utility>

#include "interpose/driver.h"
#include "shim/boottime.h"
#include "shim/driver_scope.h"
#include "shim/guarded.h"
#include "shim/log.h"
#include "shim/pager.h"

/// Where chunks are mapped, and who may access them.

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "pager";

bool device_has(CUdevice device, CUdevice_attribute attribute) noexcept {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

}  // namespace

CUresult Pager::map_chunk(Range& range, Chunk& chunk, LoadFigures* figures) {
  if (chunk.handle != 0) return CUDA_SUCCESS;  // an earlier attempt was given up and not unmapped
  const CUmemAllocationProp prop = properties(range);
  {
    const AddElapsed create(&figures->create_ns);
    const CUresult created = driver.cuMemCreate(&chunk.handle, chunk.bytes, &prop, 0);
    if (created != CUDA_SUCCESS) return created;
  }
  const AddElapsed map(&figures->map_ns);
  const CUresult result = map_handle(range, chunk);
  if (result == CUDA_SUCCESS) return result;
  driver.cuMemRelease(chunk.handle);
  chunk.handle = 0;
  return result;
}

CUresult Pager::map_handle(const Range& range, const Chunk& chunk) {
  CUresult result = driver.cuMemMap(range.start + chunk.offset, chunk.bytes, 0, chunk.handle, 0);
  std::size_t aliases = 0;
  while (result == CUDA_SUCCESS && aliases < range.aliases.size()) {
    const std::uint64_t address = range.aliases[aliases].start + chunk.offset;
    result = driver.cuMemMap(address, chunk.bytes, 0, chunk.handle, 0);
    if (result == CUDA_SUCCESS) {
      ++aliases;
      continue;
    }
    while (aliases-- != 0) {
      driver.cuMemUnmap(range.aliases[aliases].start + chunk.offset, chunk.bytes);
    }
    driver.cuMemUnmap(range.start + chunk.offset, chunk.bytes);
    break;
  }
  return result;
}

CUresult Pager::unmap_chunk(Range& range, Chunk& chunk) {
  std::size_t done = 0;
  CUresult result = CUDA_SUCCESS;
  for (; done < range.aliases.size() && result == CUDA_SUCCESS; ++done) {
    result = driver.cuMemUnmap(range.aliases[done].start + chunk.offset, chunk.bytes);
  }
  if (result == CUDA_SUCCESS) {
    result = driver.cuMemUnmap(range.start + chunk.offset, chunk.bytes);
  } else {
    --done;
  }
  if (result == CUDA_SUCCESS) {
    driver.cuMemRelease(chunk.handle);
    chunk.handle = 0;
    return result;
  }
  for (std::size_t i = 0; i < done; ++i) {
    const Alias& alias = range.aliases[i];
    driver.cuMemMap(alias.start + chunk.offset, chunk.bytes, 0, chunk.handle, 0);
    if (!alias.access.empty()) {
      driver.cuMemSetAccess(alias.start + chunk.offset, chunk.bytes, alias.access.data(),
                            alias.access.size());
    }
  }
  return result;
}

CUresult Pager::give_access(const Range& range, std::size_t first, std::size_t count) {
  const std::size_t offset = range.chunks[first].offset;
  std::size_t bytes = 0;
  for (std::size_t i = first; i < first + count; ++i) bytes += range.chunks[i].bytes;
  CUresult result = set_access(range, range.start + offset, bytes);
  for (const Alias& alias : range.aliases) {
    if (result != CUDA_SUCCESS || alias.access.empty()) continue;
    result = driver.cuMemSetAccess(alias.start + offset, bytes, alias.access.data(),
                                   alias.access.size());
  }
  return result;
}

CUresult Pager::unmap(const RangeTable::Claim& claim, std::size_t from, std::size_t count) {
  CUresult first = CUDA_SUCCESS;
  for (std::size_t i = from; i < from + count; ++i) {
    Chunk& chunk = claim.range->chunks[claim.first + i];
    const CUresult result = unmap_chunk(*claim.range, chunk);
    if (result == CUDA_SUCCESS) continue;
    if (first == CUDA_SUCCESS) first = result;
    PLEXRL_LOG_AT(kFile, failure_level(result, LogLevel::kWarning),
                  "unmap failed address=0x%llx result=%d",
                  static_cast<unsigned long long>(claim.range->start + chunk.offset),
                  static_cast<int>(result));
  }
  return first;
}

CUmemAllocationProp Pager::properties(const Range& range) {
  CUmemAllocationProp prop = usual_properties(range.device);
  if (!range.properties) return prop;
  const auto types = static_cast<unsigned int>(prop.requestedHandleTypes) |
                     static_cast<unsigned int>(range.properties->requestedHandleTypes);
  const auto rdma = prop.allocFlags.gpuDirectRDMACapable;
  prop = *range.properties;
  // So that it can be shared within the job, whatever the job asked for.
  prop.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(types);
  if (rdma != 0) prop.allocFlags.gpuDirectRDMACapable = 1;
  return prop;
}

CUmemAllocationProp Pager::usual_properties(CUdevice device) {
  {
    const std::lock_guard lock(devices_mutex_);
    const auto it = properties_.find(device);
    if (it != properties_.end()) return it->second;
  }
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  // The handle type is fixed at creation: without it the memory could never be exported.
  if (device_has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  if (device_has(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)) {
    prop.allocFlags.gpuDirectRDMACapable = 1;
  }
  const std::lock_guard lock(devices_mutex_);
  return properties_.emplace(device, prop).first->second;
}

CUresult Pager::set_access(const Range& range, std::uint64_t start, std::size_t bytes) {
  const CUdevice device = range.device;
  std::vector<CUmemAccessDesc> access;
  const auto add = [&](CUdevice who) {
    access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, {who}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  };
  add(device);
  if (range.kind == wire::MemoryKind::kAlloc) {
    const std::lock_guard lock(devices_mutex_);
    std::set<CUdevice> peers;
    for (const PeerAccess& one : peers_) {
      if (one.owner.device == device) peers.insert(one.peer.device);
    }
    std::for_each(peers.begin(), peers.end(), add);
  }
  access.insert(access.end(), range.access.begin(), range.access.end());
  {
    const std::lock_guard lock(devices_mutex_);
    if (const auto it = lenders_.find(device); it != lenders_.end()) {
      std::erase_if(access, [&](const CUmemAccessDesc& one) {
        return one.location.type == CU_MEM_LOCATION_TYPE_DEVICE && one.location.id == it->second;
      });
      add(it->second);
    }
  }
  return driver.cuMemSetAccess(start, bytes, access.data(), access.size());
}

CUresult Pager::set_range_access(std::uint64_t start, const std::vector<CUmemAccessDesc>& access) {
  auto claim = ranges_.claim_all(start);
  if (!claim) return CUDA_ERROR_INVALID_VALUE;
  claim->range->access = access;
  const CUresult result = apply_access(*claim);
  settle_back(*claim, 0);
  return result;
}

/// For what is mapped; the rest gets its access when it is.
CUresult Pager::apply_access(const RangeTable::Claim& claim) {
  const RelaxedCapture relaxed;
  CUresult result = CUDA_SUCCESS;
  for (std::size_t i = 0; i < claim.count; ++i) {
    if (claim.came_from[i] != ChunkState::kResident) continue;
    const std::size_t first = i;
    while (i < claim.count && claim.came_from[i] == ChunkState::kResident) ++i;
    const CUresult set = give_access(*claim.range, first, i - first);
    if (set != CUDA_SUCCESS) result = set;
  }
  return result;
}

// ---- memory of other processes

bool Pager::map_imported(const RangeTable::Claim& claim, int fd) {
  const RelaxedCapture relaxed;
  Range& range = *claim.range;
  Chunk& chunk = range.chunks[claim.first];
  CUresult result = driver.cuMemImportFromShareableHandle(
      &chunk.handle, reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result == CUDA_SUCCESS) {
    result = map_handle(range, chunk);
    if (result == CUDA_SUCCESS) {
      result = give_access(range, claim.first, 1);
      if (result != CUDA_SUCCESS) unmap_chunk(range, chunk);
    } else {
      driver.cuMemRelease(chunk.handle);
    }
  }
  if (result != CUDA_SUCCESS) {
    chunk.handle = 0;
    PLEXRL_WARN(kFile, "can't map memory of another process address=0x%llx result=%d, trying again",
                static_cast<unsigned long long>(claim.start()), static_cast<int>(result));
  }
  settle(claim, claim.first,
         result == CUDA_SUCCESS ? ChunkState::kResident : ChunkState::kUnbacked);
  return result == CUDA_SUCCESS;
}

void Pager::unmap_imported(std::uint64_t range, std::size_t first, std::size_t count) {
  auto claim = ranges_.claim_all(range);
  if (!claim) return;
  if (claim->range->backing != Backing::kImported) return settle_back(*claim, 0);
  const RelaxedCapture relaxed;
  std::vector<ChunkState> states = claim->came_from;
  for (std::size_t i = first; i < std::min(first + count, claim->count); ++i) {
    if (states[i] != ChunkState::kResident) continue;
    const CUresult result = unmap_chunk(*claim->range, claim->range->chunks[i]);
    if (result == CUDA_SUCCESS) {
      states[i] = ChunkState::kUnbacked;
    } else {
      PLEXRL_WARN(kFile, "can't unmap memory of another process result=%d",
                  static_cast<int>(result));
    }
  }
  for (std::size_t i = 0; i < claim->count; ++i) settle(*claim, i, states[i]);
}

std::vector<std::size_t> Pager::adopt(std::uint64_t range,
                                      const std::map<std::size_t, HostSpan>& parked) {
  std::vector<std::size_t> lost;
  auto claim = ranges_.claim_all(range);
  if (!claim) {
    for (const auto& [chunk, span] : parked) store_.put(span);
    return lost;
  }
  std::vector<ChunkState> states = claim->came_from;
  auto& chunks = claim->range->chunks;
  for (std::size_t i = 0; i < claim->count; ++i) {
    const auto bytes = parked.find(i);
    if (states[i] == ChunkState::kResident) {
      chunks[i].written = true;
      if (bytes != parked.end()) store_.put(bytes->second);
    } else if (!chunks[i].is_known) {
      states[i] = ChunkState::kLost;
      lost.push_back(i);
      if (bytes != parked.end()) store_.put(bytes->second);
    } else if (bytes != parked.end()) {
      states[i] = ChunkState::kHost;
      chunks[i].host = bytes->second;
      chunks[i].written = true;
    }
  }
  ranges_.adopt(*claim);
  for (std::size_t i = 0; i < claim->count; ++i) settle(*claim, i, states[i]);
  return lost;
}

// ---- aliases

CUresult Pager::add_alias(std::uint64_t range, std::uint64_t start) {
  auto claim = ranges_.claim_all(range);
  if (!claim) return CUDA_ERROR_INVALID_VALUE;
  const RelaxedCapture relaxed;
  auto& chunks = claim->range->chunks;
  CUresult result = CUDA_SUCCESS;
  std::size_t done = 0;
  for (; done < claim->count && result == CUDA_SUCCESS; ++done) {
    if (claim->came_from[done] != ChunkState::kResident) continue;
    const Chunk& chunk = chunks[done];
    result = driver.cuMemMap(start + chunk.offset, chunk.bytes, 0, chunk.handle, 0);
  }
  if (result == CUDA_SUCCESS) {
    claim->range->aliases.push_back({start, {}});
  } else {
    for (std::size_t i = 0; i + 1 < done; ++i) {
      if (claim->came_from[i] != ChunkState::kResident) continue;
      driver.cuMemUnmap(start + chunks[i].offset, chunks[i].bytes);
    }
  }
  settle_back(*claim, 0);
  return result;
}

CUresult Pager::with_chunks(
    std::uint64_t range,
    const std::function<CUresult(std::size_t, std::size_t, CUmemGenericAllocationHandle)>& use,
    bool may_wait, std::vector<std::size_t>* lost) {
  auto claim = ranges_.claim_all(range, may_wait);
  if (!claim) return may_wait ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_READY;
  CUresult result = CUDA_SUCCESS;
  for (std::size_t i = 0; i < claim->count && result == CUDA_SUCCESS; ++i) {
    if (lost != nullptr && claim->came_from[i] == ChunkState::kLost) {
      lost->push_back(i);
      continue;
    }
    const Chunk& chunk = claim->range->chunks[i];
    result = CUDA_ERROR_NOT_READY;
    if (claim->came_from[i] == ChunkState::kResident) {
      result = guarded([&] { return use(chunk.offset, chunk.bytes, chunk.handle); });
    }
  }
  settle_back(*claim, 0);
  return result;
}

CUresult Pager::remove_alias(std::uint64_t range, std::uint64_t start) {
  auto claim = ranges_.claim_all(range);
  if (!claim) return CUDA_ERROR_INVALID_VALUE;
  const RelaxedCapture relaxed;
  auto& aliases = claim->range->aliases;
  const auto alias = std::find_if(aliases.begin(), aliases.end(),
                                  [&](const Alias& one) { return one.start == start; });
  CUresult result = alias == aliases.end() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  auto& chunks = claim->range->chunks;
  std::size_t done = 0;
  for (; done < claim->count && result == CUDA_SUCCESS; ++done) {
    if (claim->came_from[done] != ChunkState::kResident) continue;
    result = driver.cuMemUnmap(start + chunks[done].offset, chunks[done].bytes);
  }
  if (result == CUDA_SUCCESS) {
    aliases.erase(alias);
  } else {
    for (std::size_t i = 0; i + 1 < done; ++i) {
      if (claim->came_from[i] != ChunkState::kResident) continue;
      const std::uint64_t address = start + chunks[i].offset;
      driver.cuMemMap(address, chunks[i].bytes, 0, chunks[i].handle, 0);
      if (alias->access.empty()) continue;
      driver.cuMemSetAccess(address, chunks[i].bytes, alias->access.data(), alias->access.size());
    }
  }
  settle_back(*claim, 0);
  return result;
}

CUresult Pager::set_alias_access(std::uint64_t range, std::uint64_t start,
                                 const std::vector<CUmemAccessDesc>& access) {
  auto claim = ranges_.claim_all(range);
  if (!claim) return CUDA_ERROR_INVALID_VALUE;
  auto& aliases = claim->range->aliases;
  const auto alias = std::find_if(aliases.begin(), aliases.end(),
                                  [&](const Alias& one) { return one.start == start; });
  CUresult result = alias == aliases.end() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) {
    const std::vector<CUmemAccessDesc> before = std::exchange(alias->access, access);
    result = apply_access(*claim);
    if (result != CUDA_SUCCESS) {
      alias->access = before;
      apply_access(*claim);
    }
  }
  settle_back(*claim, 0);
  return result;
}

}  // namespace plexrl::shim
