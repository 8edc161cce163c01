#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "tools/simgpu/verbs/regions.h"

// The calls of libibverbs, and the two by which a program plays the peer.

struct ibv_device {
  const char* name;
};
struct ibv_context {
  ibv_device* device;
};

namespace {

using plexrl::simgpu::verbs::find_pieces;
using plexrl::simgpu::verbs::Piece;
using plexrl::simgpu::verbs::Regions;

ibv_device the_device{"simgpu_nic0"};

/// Never destroyed: exit handlers may still deregister.
Regions& regions() {
  static Regions* const all = new Regions;
  return *all;
}

}  // namespace

#define SIMGPU_EXPORT extern "C" __attribute__((visibility("default")))

SIMGPU_EXPORT ibv_device** ibv_get_device_list(int* count) {
  if (count != nullptr) *count = 1;
  return new ibv_device* [2] { &the_device, nullptr };
}

SIMGPU_EXPORT void ibv_free_device_list(ibv_device** list) { delete[] list; }

SIMGPU_EXPORT const char* ibv_get_device_name(ibv_device* device) { return device->name; }

SIMGPU_EXPORT ibv_context* ibv_open_device(ibv_device* device) { return new ibv_context{device}; }

SIMGPU_EXPORT int ibv_close_device(ibv_context* context) {
  delete context;
  return 0;
}

SIMGPU_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) { return new ibv_pd{context, 1}; }

SIMGPU_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  if (regions().uses(pd)) return EBUSY;
  delete pd;
  return 0;
}

SIMGPU_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, std::size_t length,
                                       std::uint64_t iova, unsigned) {
  std::vector<Piece> pieces;
  if (pd == nullptr || length == 0) {
    errno = EINVAL;
    return nullptr;
  }
  if (!find_pieces(addr, length, &pieces)) {
    errno = EFAULT;
    return nullptr;
  }
  auto* const region = new ibv_mr{pd->context, pd, addr, length, 0, 0, 0};
  regions().add(region, iova, std::move(pieces));
  return region;
}

SIMGPU_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, std::size_t length,
                                      std::uint64_t iova, int access) {
  return ibv_reg_mr_iova2(pd, addr, length, iova, static_cast<unsigned>(access));
}

SIMGPU_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, std::size_t length, int access) {
  return ibv_reg_mr_iova(pd, addr, length, reinterpret_cast<std::uint64_t>(addr), access);
}

SIMGPU_EXPORT int ibv_rereg_mr(ibv_mr* region, int flags, ibv_pd*, void* addr, std::size_t length,
                               int) {
  std::vector<Piece> pieces;
  if (flags != IBV_REREG_MR_CHANGE_TRANSLATION || length == 0 ||
      !find_pieces(addr, length, &pieces)) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  region->addr = addr;
  region->length = length;
  regions().change(region, reinterpret_cast<std::uint64_t>(addr), std::move(pieces));
  return 0;
}

SIMGPU_EXPORT int ibv_dereg_mr(ibv_mr* region) {
  if (region == nullptr || !regions().remove(region)) return EINVAL;
  delete region;
  return 0;
}

SIMGPU_EXPORT int simgpu_nic_write(std::uint32_t rkey, std::uint64_t address, const void* bytes,
                                   std::size_t count) {
  const auto* from = static_cast<const std::byte*>(bytes);
  return regions().for_bytes(rkey, address, count,
                             [&](std::byte* memory, std::size_t part) {
                               std::memcpy(memory, from, part);
                               from += part;
                             })
             ? 0
             : EINVAL;
}

SIMGPU_EXPORT int simgpu_nic_read(std::uint32_t rkey, std::uint64_t address, void* bytes,
                                  std::size_t count) {
  auto* to = static_cast<std::byte*>(bytes);
  return regions().for_bytes(rkey, address, count,
                             [&](const std::byte* memory, std::size_t part) {
                               std::memcpy(to, memory, part);
                               to += part;
                             })
             ? 0
             : EINVAL;
}
