#pragma once

#include <cstdint>

#include "tests/integration/programs/channel.h"
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

/// Memory that can be exported as a descriptor.
inline CUmemGenericAllocationHandle create_handle(CUdevice device, std::size_t bytes) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle;
  CHECK(cuMemCreate(&handle, bytes, &prop, 0));
  return handle;
}

/// To the process at the other end, as a descriptor.
inline void offer_handle(Channel& channel, CUmemGenericAllocationHandle handle) {
  int fd = -1;
  CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  channel.send_fd(fd);
  close(fd);
}

inline CUmemGenericAllocationHandle import_handle(Channel& channel) {
  const int fd = channel.receive_fd();
  CUmemGenericAllocationHandle handle;
  CHECK(cuMemImportFromShareableHandle(&handle, as_handle(fd),
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  return handle;
}

/// Waits for work, then takes back mapping, handle and addresses.
inline void unmap_handle(CUdeviceptr address, CUmemGenericAllocationHandle handle,
                         std::size_t bytes) {
  CHECK(cuCtxSynchronize());
  CHECK(cuMemUnmap(address, bytes));
  CHECK(cuMemRelease(handle));
  CHECK(cuMemAddressFree(address, bytes));
}

}  // namespace plexrl::integration
