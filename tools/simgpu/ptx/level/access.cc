#include "tools/simgpu/ptx/level/access.h"

namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

/// The addresses of the lanes and whether they are first + i·stride.
struct Addresses {
  std::uint64_t of[kLanes];
  std::uint64_t first;  ///< of lane 0, even when that is not in the mask
  std::int64_t stride;
  bool is_strided;
  int low, high;  ///< lowest and highest lane in the mask
};

PLEXRL_INLINE void collect_addresses(const Warp& warp, const Op* op, std::uint32_t mask,
                                     Addresses& out) {
  const auto offset = static_cast<std::uint64_t>(op->imm);
  if ((op->mode & kShortAddress) != 0) {
    const auto* const a = source<std::uint32_t>(warp, op->a);
    const auto short_offset = static_cast<std::uint32_t>(offset);
    for (int i = 0; i < kLanes; ++i) out.of[i] = static_cast<std::uint32_t>(a[i] + short_offset);
  } else {
    const auto* const a = source<std::uint64_t>(warp, op->a);
    for (int i = 0; i < kLanes; ++i) out.of[i] = a[i] + offset;
  }
  if (mask == 0) __builtin_unreachable();
  out.low = std::countr_zero(mask);
  out.high = 31 - std::countl_zero(mask);
  std::uint64_t stride = 0;
  std::uint64_t differences = 0;
  if (mask == kAllLanes) {
    stride = out.of[1] - out.of[0];
    for (int i = 0; i < kLanes; ++i)
      differences |= out.of[i] ^ (out.of[0] + stride * static_cast<std::uint64_t>(i));
  } else if (out.low != out.high) {
    if ((mask >> out.low & 2) != 0) stride = out.of[out.low + 1] - out.of[out.low];
    const std::uint64_t start = out.of[out.low] - stride * static_cast<std::uint64_t>(out.low);
    for (int i = 0; i < kLanes; ++i) {
      const std::uint64_t difference = out.of[i] ^ (start + stride * static_cast<std::uint64_t>(i));
      differences |= (mask & kBit[i]) != 0 ? difference : 0;
    }
  }
  out.stride = static_cast<std::int64_t>(stride);
  out.first = out.of[out.low] - stride * static_cast<std::uint64_t>(out.low);
  out.is_strided = differences == 0;
}

bool misaligned(Warp& warp, const Op* op, std::uint64_t address) {
  raise_fault(warp, op, Fault::Kind::kMisalignedAddress, address);
  return false;
}

bool illegal(Warp& warp, const Op* op, std::uint64_t address) {
  raise_fault(warp, op, Fault::Kind::kIllegalAddress, address);
  return false;
}

PLEXRL_INLINE bool check_alignment(Warp& warp, const Op* op, std::uint32_t mask,
                                   const Addresses& at, std::size_t bytes) {
  const std::uint64_t low_bits = bytes - 1;
  if (at.is_strided) {
    const std::uint64_t bits =
        at.low == at.high ? at.of[at.low] : at.of[at.low] | static_cast<std::uint64_t>(at.stride);
    if ((bits & low_bits) == 0) return true;
  }
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const std::uint64_t address = at.of[std::countr_zero(left)];
    if ((address & low_bits) != 0) return misaligned(warp, op, address);
  }
  return true;
}

/// Memory that is one block of `limit` bytes at `block` for all lanes (or, with a lane stride, one
/// for each lane).
bool resolve_block(Warp& warp, const Op* op, std::uint32_t mask, const Addresses& at,
                   std::size_t bytes, std::byte* block, std::uint64_t limit,
                   std::uint64_t lane_stride, Access& out) {
  auto fits = [=](std::uint64_t address) { return address <= limit && bytes <= limit - address; };
  if (at.is_strided && fits(at.of[at.low]) && fits(at.of[at.high])) {
    out.is_strided = true;
    out.stride = at.stride + static_cast<std::int64_t>(lane_stride);
    out.base = block + static_cast<std::int64_t>(at.first);
    return true;
  }
  out.is_strided = false;
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    if (!fits(at.of[i])) return illegal(warp, op, at.of[i]);
    out.lane[i] = block + lane_stride * static_cast<std::uint64_t>(i) + at.of[i];
  }
  return true;
}

bool resolve_global(Warp& warp, const Op* op, std::uint32_t mask, const Addresses& at,
                    std::size_t bytes, Access& out) {
  const AddressSpace& memory = *warp.memory;
  const std::uint64_t page_bytes = 1ull << memory.page_shift;
  const std::uint64_t in_page = page_bytes - 1;
  if (at.is_strided) {
    const std::uint64_t low = at.of[at.low] - memory.arena_base;
    const std::uint64_t high = at.of[at.high] - memory.arena_base;
    const std::uint64_t page = low >> memory.page_shift;
    if (low < memory.arena_bytes && page == high >> memory.page_shift &&
        (low & in_page) + bytes <= page_bytes && (high & in_page) + bytes <= page_bytes) {
      std::byte* const host = memory.pages[page].load(std::memory_order_acquire);
      if (host == nullptr) return illegal(warp, op, at.of[at.low]);
      out.is_strided = true;
      out.stride = at.stride;
      out.base = host + static_cast<std::int64_t>(low & in_page) - at.stride * at.low;
      return true;
    }
  }
  out.is_strided = false;
  std::uint64_t last_page = ~0ull;
  std::byte* last_host = nullptr;
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    const std::uint64_t offset = at.of[i] - memory.arena_base;
    const std::uint64_t page = offset >> memory.page_shift;
    if (offset < memory.arena_bytes && (offset & in_page) + bytes <= page_bytes) {
      if (page != last_page) {
        last_host = memory.pages[page].load(std::memory_order_acquire);
        last_page = page;
      }
      if (last_host == nullptr) return illegal(warp, op, at.of[i]);
      out.lane[i] = last_host + (offset & in_page);
    } else {
      out.lane[i] = slow_address(warp, at.of[i], bytes, i);
      if (out.lane[i] == nullptr) return illegal(warp, op, at.of[i]);
    }
  }
  return true;
}

}  // namespace

bool resolve(Warp& warp, const Op* op, std::uint32_t mask, std::size_t bytes, Access& out) {
  Addresses at;
  collect_addresses(warp, op, mask, at);
  if (!check_alignment(warp, op, mask, at, bytes)) return false;
  switch (static_cast<Place>(op->mode & 0xf)) {
    case Place::kGlobal:
      warp.global_bytes += bytes * static_cast<std::uint64_t>(std::popcount(mask));
      return resolve_global(warp, op, mask, at, bytes, out);
    case Place::kShared:
      return resolve_block(warp, op, mask, at, bytes, warp.shared, warp.shared_bytes, 0, out);
    case Place::kLocal:
      return resolve_block(warp, op, mask, at, bytes, warp.local, warp.local_stride,
                           warp.local_stride, out);
    case Place::kFrameParam:
      return resolve_block(warp, op, mask, at, bytes, warp.frame->params,
                           warp.frame->code->param_bytes, warp.frame->code->param_bytes, out);
    case Place::kKernelParam:
      return resolve_block(warp, op, mask, at, bytes, const_cast<std::byte*>(warp.kernel_params),
                           warp.kernel_param_bytes, 0, out);
  }
  return false;
}

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
