#include "shim/ipc_mappings.h"

#include <iterator>
#include <vector>

#include "shim/allocation_ends.h"

namespace plexrl::shim {

CUresult IpcMappings::open(const Capability& capability, CUcontext context, CUdevice device,
                           std::uint64_t* out) {
  if (sharing_.own_range(capability.id)) return CUDA_ERROR_INVALID_CONTEXT;
  Sharing::Imported imported{};
  const CUresult result = sharing_.import(capability, device, &imported);
  if (result == CUDA_ERROR_INVALID_VALUE) return CUDA_ERROR_INVALID_HANDLE;  // freed, or not ours
  if (result != CUDA_SUCCESS) return result;
  const bool fits = capability.offset < imported.bytes && capability.bytes != 0 &&
                    capability.bytes <= imported.bytes - capability.offset;
  if (!fits) {
    sharing_.close(imported.range);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const std::uint64_t address = imported.range + capability.offset;
  const std::lock_guard lock(mutex_);
  Opened& opened = opened_[address];
  if (opened.uses++ == 0) {
    opened = {imported.range, capability.bytes, imported.device, context, 1, next_identifier_++};
  }
  *out = address;
  return CUDA_SUCCESS;
}

std::optional<CUresult> IpcMappings::close(std::uint64_t address) {
  std::uint64_t range = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto it = opened_.find(address);
    if (it == opened_.end()) return std::nullopt;
    range = it->second.range;
    if (--it->second.uses == 0) opened_.erase(it);
    note_allocation_end();
  }
  sharing_.close(range);
  return CUDA_SUCCESS;
}

bool IpcMappings::is_open(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  return opened_.count(address) != 0;
}

std::optional<DeviceMemory::Allocation> IpcMappings::find(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto next = opened_.upper_bound(address);
  if (next == opened_.begin()) return std::nullopt;
  const auto& [start, opened] = *std::prev(next);
  if (address >= start + opened.bytes) return std::nullopt;
  return DeviceMemory::Allocation{start, opened.bytes, opened.device, opened.context,
                                  std::uint64_t{1} << 61 | opened.identifier};
}

void IpcMappings::context_ended(CUcontext context) {
  std::vector<std::uint64_t> ranges;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = opened_.begin(); it != opened_.end();) {
      if (it->second.context != context) {
        ++it;
        continue;
      }
      ranges.insert(ranges.end(), it->second.uses, it->second.range);
      it = opened_.erase(it);
      note_allocation_end();
    }
  }
  for (const std::uint64_t range : ranges) sharing_.close(range);
}

}  // namespace plexrl::shim
