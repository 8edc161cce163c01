#pragma once

#include <cstddef>
#include <cstdint>

/// What libibverbs.so.1 of the simulated GPU exports. Structures that programs look into have the
/// layout of verbs.h, the others are this library's own; access flags are ignored.

extern "C" {

struct ibv_device;
struct ibv_context;

struct ibv_pd {
  ibv_context* context;
  std::uint32_t handle;
};

struct ibv_mr {
  ibv_context* context;
  ibv_pd* pd;
  void* addr;
  std::size_t length;
  std::uint32_t handle;
  std::uint32_t lkey;
  std::uint32_t rkey;
};

enum : int {
  IBV_REREG_MR_CHANGE_TRANSLATION = 1,
  IBV_REREG_MR_ERR_INPUT = -1,
};

/// There is one device, `simgpu_nic0`.
ibv_device** ibv_get_device_list(int* count);
void ibv_free_device_list(ibv_device** list);
const char* ibv_get_device_name(ibv_device* device);
ibv_context* ibv_open_device(ibv_device* device);
int ibv_close_device(ibv_context* context);
ibv_pd* ibv_alloc_pd(ibv_context* context);
int ibv_dealloc_pd(ibv_pd* pd);  ///< EBUSY while memory is registered with it

/// Null with errno EFAULT where nothing is mapped at one of a device's addresses.
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, std::size_t length, int access);
ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, int access);
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova,
                         unsigned access);
int ibv_rereg_mr(ibv_mr* region, int flags, ibv_pd* pd, void* addr, std::size_t length, int access);
int ibv_dereg_mr(ibv_mr* region);

/// Not of libibverbs: what a peer's RDMA write and read do, `address` in the region's own numbering
/// (iova). The bytes go to the memory that was there when the region was registered, at once and
/// without a thread, a stream or a figure of any GPU. 0, or EINVAL for a key or an address that is
/// not registered. Any thread.
int simgpu_nic_write(std::uint32_t rkey, std::uint64_t address, const void* bytes,
                     std::size_t count);
int simgpu_nic_read(std::uint32_t rkey, std::uint64_t address, void* bytes, std::size_t count);

}  // extern "C"
