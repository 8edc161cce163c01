#pragma once

#include <cstdint>

#include "tests/integration/programs/program.h"

namespace plexrl::integration {

/// A descriptor as the driver's calls that import take it.
inline void* as_handle(int fd) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd)); }

/// Maps all of a handle's `bytes` at an address of its own, to be read and written by `device`.
inline CUdeviceptr map_handle(CUdevice device, CUmemGenericAllocationHandle handle,
                              std::size_t bytes) {
  CUdeviceptr address;
  CHECK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CHECK(cuMemMap(address, bytes, 0, handle, 0));
  CUmemAccessDesc access = {};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(cuMemSetAccess(address, bytes, &access, 1));
  return address;
}

}  // namespace plexrl::integration
