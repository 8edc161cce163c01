#include "shim/vmm.h"

#include <algorithm>
#include <iterator>

#include "shim/contexts.h"

namespace plexrl::shim {
namespace {

/// Handles are opaque numbers; the driver's are small or look like addresses, ours are neither.
constexpr CUmemGenericAllocationHandle kFirstHandle = CUmemGenericAllocationHandle{0x5052} << 48;
constexpr std::size_t kGranularity = std::size_t{2} << 20;

bool same_place(const CUmemLocation& a, const CUmemLocation& b) {
  return a.type == b.type && a.id == b.id;
}

}  // namespace

// ---- addresses

void Vmm::reserved(std::uint64_t start, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  reservations_[start] = bytes;
}

void Vmm::unreserved(std::uint64_t start) {
  const std::lock_guard lock(mutex_);
  reservations_.erase(start);
}

Vmm::Mappings::iterator Vmm::mapping_at(std::uint64_t address) {
  auto it = mappings_.upper_bound(address);
  if (it == mappings_.begin()) return mappings_.end();
  --it;
  return address < it->first + it->second.bytes ? it : mappings_.end();
}

bool Vmm::has_mappings(std::uint64_t start, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto next = mappings_.lower_bound(start);
  return (next != mappings_.end() && next->first < start + bytes) ||
         mapping_at(start) != mappings_.end();
}

std::optional<std::vector<std::uint64_t>> Vmm::covering(std::uint64_t address, std::size_t bytes) {
  std::vector<std::uint64_t> starts;
  std::uint64_t at = address;
  for (auto it = mappings_.find(address);
       it != mappings_.end() && it->first == at && at < address + bytes; ++it) {
    starts.push_back(at);
    at += it->second.bytes;
  }
  if (at != address + bytes || bytes == 0) return std::nullopt;
  return starts;
}

// ---- handles

CUresult Vmm::create(CUdevice device, std::size_t bytes, const CUmemAllocationProp& properties,
                     CUmemGenericAllocationHandle* out) {
  std::uint64_t range = 0;
  const CUresult result =
      memory_.take_range(device, bytes, wire::MemoryKind::kVmm, &range, &properties);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(mutex_);
  const CUmemGenericAllocationHandle handle = kFirstHandle + next_number_++;
  objects_[handle] = {properties, device, bytes, range, 1, 0, false};
  *out = handle;
  return CUDA_SUCCESS;
}

CUresult Vmm::import(const Capability& capability, CUmemGenericAllocationHandle* out) {
  const std::lock_guard operation(operations_);
  if (const auto own = sharing_.own_range(capability.id)) {
    const std::lock_guard lock(mutex_);
    for (auto& [handle, object] : objects_) {
      if (object.range != *own) continue;
      ++object.uses;
      *out = handle;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;  // memory of cuMemAlloc
  }
  const auto current = current_context();
  Sharing::Imported imported{};
  const CUresult result =
      sharing_.import(capability, current ? current->device : CU_DEVICE_INVALID, &imported);
  if (result != CUDA_SUCCESS) return result;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {imported.device}};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const std::lock_guard lock(mutex_);
  const CUmemGenericAllocationHandle handle = kFirstHandle + next_number_++;
  objects_[handle] = {properties, imported.device, capability.bytes, imported.range, 1, 0, true};
  *out = handle;
  return CUDA_SUCCESS;
}

std::optional<std::uint64_t> Vmm::range_of(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto it = objects_.find(handle);
  if (it == objects_.end()) return std::nullopt;
  return it->second.range;
}

bool Vmm::is_ours(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  return objects_.count(handle) != 0;
}

std::optional<CUmemAllocationProp> Vmm::properties(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto it = objects_.find(handle);
  if (it == objects_.end()) return std::nullopt;
  return it->second.properties;
}

std::optional<CUresult> Vmm::release(CUmemGenericAllocationHandle handle) {
  const std::lock_guard operation(operations_);
  {
    const std::lock_guard lock(mutex_);
    const auto it = objects_.find(handle);
    if (it == objects_.end()) return std::nullopt;
    if (it->second.uses == 0) return CUDA_ERROR_INVALID_VALUE;
    --it->second.uses;
  }
  drop_if_unused(handle);
  return CUDA_SUCCESS;
}

std::optional<CUresult> Vmm::retain(std::uint64_t address, CUmemGenericAllocationHandle* out) {
  const std::lock_guard operation(operations_);
  const std::lock_guard lock(mutex_);
  const auto mapping = mapping_at(address);
  if (mapping == mappings_.end()) return std::nullopt;
  ++objects_.at(mapping->second.handle).uses;
  *out = mapping->second.handle;
  return CUDA_SUCCESS;
}

/// Memory goes when neither a handle nor a mapping is left.
void Vmm::drop_if_unused(CUmemGenericAllocationHandle handle) {
  Object gone{};
  {
    const std::lock_guard lock(mutex_);
    const auto it = objects_.find(handle);
    if (it == objects_.end() || it->second.uses != 0 || it->second.mappings != 0) return;
    gone = it->second;
    objects_.erase(it);
  }
  gone.is_import ? sharing_.close(gone.range) : memory_.drop_range(gone.range, gone.device);
}

// ---- mappings

std::optional<CUresult> Vmm::map(std::uint64_t address, std::size_t bytes, std::size_t offset,
                                 CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const std::lock_guard operation(operations_);
  std::uint64_t range = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto it = objects_.find(handle);
    if (it == objects_.end()) return std::nullopt;
    auto reservation = reservations_.upper_bound(address);
    const bool is_reserved =
        reservation != reservations_.begin() &&
        address + bytes <= std::prev(reservation)->first + std::prev(reservation)->second;
    const auto next = mappings_.lower_bound(address);
    const bool is_taken = (next != mappings_.end() && next->first < address + bytes) ||
                          mapping_at(address) != mappings_.end();
    // Only whole handles can be mapped: "offset … must be 0 for now" (cuMemMap).
    if (flags != 0 || offset != 0 || bytes != it->second.bytes || address % kGranularity != 0 ||
        !is_reserved || is_taken) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    range = it->second.range;
  }
  const CUresult result = pager_.add_alias(range, address);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(mutex_);
  mappings_[address] = {bytes, handle, {}};
  ++objects_.at(handle).mappings;
  return CUDA_SUCCESS;
}

std::optional<CUresult> Vmm::unmap(std::uint64_t address, std::size_t bytes) {
  if (!has_mappings(address, bytes)) return std::nullopt;
  const std::lock_guard operation(operations_);
  std::vector<std::pair<std::uint64_t, CUmemGenericAllocationHandle>> ours;
  {
    const std::lock_guard lock(mutex_);
    const auto starts = covering(address, bytes);
    if (!starts) return CUDA_ERROR_INVALID_VALUE;
    for (const std::uint64_t start : *starts) ours.emplace_back(start, mappings_.at(start).handle);
  }
  for (const auto& [start, handle] : ours) {
    std::uint64_t range = 0;
    {
      const std::lock_guard lock(mutex_);
      range = objects_.at(handle).range;
    }
    const CUresult result = pager_.remove_alias(range, start);
    if (result != CUDA_SUCCESS) return result;
    {
      const std::lock_guard lock(mutex_);
      mappings_.erase(start);
      --objects_.at(handle).mappings;
    }
    drop_if_unused(handle);
  }
  return CUDA_SUCCESS;
}

std::optional<CUresult> Vmm::set_access(std::uint64_t address, std::size_t bytes,
                                        const CUmemAccessDesc* access, std::size_t count) {
  if (!has_mappings(address, bytes)) return std::nullopt;
  if (access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard operation(operations_);
  std::vector<std::uint64_t> starts;
  {
    const std::lock_guard lock(mutex_);
    const auto covered = covering(address, bytes);
    if (!covered) return CUDA_ERROR_INVALID_VALUE;
    starts = *covered;
  }
  for (const std::uint64_t start : starts) {
    std::vector<CUmemAccessDesc> wanted;
    std::uint64_t range = 0;
    {
      const std::lock_guard lock(mutex_);
      const Mapping& mapping = mappings_.at(start);
      wanted = mapping.access;
      range = objects_.at(mapping.handle).range;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto it = std::find_if(wanted.begin(), wanted.end(), [&](const CUmemAccessDesc& one) {
        return same_place(one.location, access[i].location);
      });
      it == wanted.end() ? wanted.push_back(access[i]) : static_cast<void>(*it = access[i]);
    }
    const CUresult result = pager_.set_alias_access(range, start, wanted);
    if (result != CUDA_SUCCESS) return result;
    const std::lock_guard lock(mutex_);
    mappings_.at(start).access = wanted;
  }
  return CUDA_SUCCESS;
}

std::optional<unsigned long long> Vmm::access(std::uint64_t address,
                                              const CUmemLocation& location) {
  const std::lock_guard lock(mutex_);
  const auto mapping = mapping_at(address);
  if (mapping == mappings_.end()) return std::nullopt;
  for (const CUmemAccessDesc& one : mapping->second.access) {
    if (same_place(one.location, location)) return one.flags;
  }
  return CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

std::optional<CUresult> Vmm::with_real_handles(CUmemGenericAllocationHandle handle,
                                               const Use& use) {
  const std::lock_guard operation(operations_);
  std::uint64_t range = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto it = objects_.find(handle);
    if (it == objects_.end()) return std::nullopt;
    range = it->second.range;
  }
  return pager_.with_chunks(range, use);
}

std::optional<Vmm::Mapped> Vmm::find(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto mapping = mapping_at(address);
  if (mapping == mappings_.end()) return std::nullopt;
  const Object& object = objects_.at(mapping->second.handle);
  const auto reservation = std::prev(reservations_.upper_bound(address));
  return Mapped{mapping->first,
                mapping->second.bytes,
                reservation->first,
                reservation->second,
                object.device,
                mapping->second.handle,
                mapping->second.handle - kFirstHandle,
                object.properties,
                mapping->second.access};
}

}  // namespace plexrl::shim
