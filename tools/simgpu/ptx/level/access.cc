#include "tools/simgpu/ptx/level/access.h"

namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

/// What the addresses (Access::offset until they are translated) have in common.
struct Pattern {
  std::uint64_t first;  ///< of lane 0, even when that is not in the mask
  std::uint64_t all;    ///< bitwise or
  int low, high;        ///< lowest and highest lane in the mask
};

PLEXRL_INLINE Pattern collect_addresses(const Warp& warp, const Op* op, std::uint32_t mask,
                                        Access& out) {
  const auto offset = static_cast<std::uint64_t>(op->imm);
  std::uint64_t* const of = out.offset;
  if ((op->mode & kShortAddress) != 0) {
    const auto* const a = source<std::uint32_t>(warp, op->a);
    const auto short_offset = static_cast<std::uint32_t>(offset);
    for (int i = 0; i < kLanes; ++i) of[i] = static_cast<std::uint32_t>(a[i] + short_offset);
  } else {
    const auto* const a = source<std::uint64_t>(warp, op->a);
    for (int i = 0; i < kLanes; ++i) of[i] = a[i] + offset;
  }
  if (mask == 0) __builtin_unreachable();
  Pattern pattern;
  pattern.low = std::countr_zero(mask);
  pattern.high = 31 - std::countl_zero(mask);
  pattern.all = 0;
  std::uint64_t stride = 0;
  std::uint64_t differences = 0;
  if (mask == kAllLanes) {
    stride = of[1] - of[0];
    for (int i = 0; i < kLanes; ++i) pattern.all |= of[i];
    for (int i = 0; i + 1 < kLanes; ++i) differences |= (of[i + 1] - of[i]) ^ stride;
  } else {
    if ((mask >> pattern.low & 2) != 0) stride = of[pattern.low + 1] - of[pattern.low];
    std::uint64_t expected = of[pattern.low] - stride * static_cast<std::uint64_t>(pattern.low);
    for (int i = 0; i < kLanes; ++i, expected += stride) {
      const bool is_active = (mask & kBit[i]) != 0;
      differences |= is_active ? of[i] ^ expected : 0;
      pattern.all |= is_active ? of[i] : 0;
    }
  }
  out.stride = static_cast<std::int64_t>(stride);
  out.is_strided = differences == 0;
  pattern.first = of[pattern.low] - stride * static_cast<std::uint64_t>(pattern.low);
  return pattern;
}

bool misaligned(Warp& warp, const Op* op, std::uint64_t address) {
  raise_fault(warp, op, Fault::Kind::kMisalignedAddress, address);
  return false;
}

bool illegal(Warp& warp, const Op* op, std::uint64_t address) {
  raise_fault(warp, op, Fault::Kind::kIllegalAddress, address);
  return false;
}

bool report_misaligned(Warp& warp, const Op* op, std::uint32_t mask, std::size_t bytes,
                       const Access& access) {
  std::uint32_t left = mask;
  while ((access.offset[std::countr_zero(left)] & (bytes - 1)) == 0) left &= left - 1;
  return misaligned(warp, op, access.offset[std::countr_zero(left)]);
}

/// Memory that is one block of `limit` bytes at `block` for all lanes (or, with a lane stride, one
/// for each lane).
bool resolve_block(Warp& warp, const Op* op, std::uint32_t mask, const Pattern& pattern,
                   std::size_t bytes, std::byte* block, std::uint64_t limit,
                   std::uint64_t lane_stride, Access& out) {
  // No address above `last` fits. A limit below `bytes` leaves none.
  const std::uint64_t last = limit - bytes;
  bool is_outside = limit < bytes;
  if (out.is_strided) {
    is_outside |= out.offset[pattern.low] > last || out.offset[pattern.high] > last;
    out.stride += static_cast<std::int64_t>(lane_stride);
    out.base = block + static_cast<std::int64_t>(pattern.first);
  } else {
    for (int i = 0; i < kLanes; ++i) is_outside |= (mask & kBit[i]) != 0 && out.offset[i] > last;
    out.base = block;
  }
  if (is_outside) {
    std::uint32_t left = mask;
    while (limit >= bytes && out.offset[std::countr_zero(left)] <= last) left &= left - 1;
    return illegal(warp, op, out.offset[std::countr_zero(left)]);
  }
  if (!out.is_strided && lane_stride != 0) {
    for (int i = 0; i < kLanes; ++i) out.offset[i] += lane_stride * static_cast<std::uint64_t>(i);
  }
  return true;
}

bool resolve_global(Warp& warp, const Op* op, std::uint32_t mask, const Pattern& pattern,
                    std::size_t bytes, Access& out) {
  const AddressSpace& memory = *warp.memory;
  const std::uint64_t page_bytes = 1ull << memory.page_shift;
  const std::uint64_t in_page = page_bytes - 1;
  if (out.is_strided) {
    const std::uint64_t low = out.offset[pattern.low] - memory.arena_base;
    const std::uint64_t high = out.offset[pattern.high] - memory.arena_base;
    const std::uint64_t page = low >> memory.page_shift;
    if (low < memory.arena_bytes && page == high >> memory.page_shift &&
        (low & in_page) + bytes <= page_bytes && (high & in_page) + bytes <= page_bytes) {
      std::byte* const host = memory.pages[page].load(std::memory_order_acquire);
      if (host == nullptr) return illegal(warp, op, out.offset[pattern.low]);
      out.base = host + static_cast<std::int64_t>(low & in_page) - out.stride * pattern.low;
      return true;
    }
  }
  // Host addresses as offsets from null.
  out.is_strided = false;
  out.base = nullptr;
  std::uint64_t last_page = ~0ull;
  std::byte* last_host = nullptr;
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    const std::uint64_t address = out.offset[i];
    const std::uint64_t offset = address - memory.arena_base;
    const std::uint64_t page = offset >> memory.page_shift;
    std::byte* host;
    if (offset < memory.arena_bytes && (offset & in_page) + bytes <= page_bytes) {
      if (page != last_page) {
        last_host = memory.pages[page].load(std::memory_order_acquire);
        last_page = page;
      }
      host = last_host != nullptr ? last_host + (offset & in_page) : nullptr;
    } else {
      host = slow_address(warp, address, bytes, i);
    }
    if (host == nullptr) return illegal(warp, op, address);
    out.offset[i] = reinterpret_cast<std::uint64_t>(host);
  }
  return true;
}

}  // namespace

bool resolve(Warp& warp, const Op* op, std::uint32_t mask, std::size_t bytes, Access& out) {
  const Pattern pattern = collect_addresses(warp, op, mask, out);
  if ((pattern.all & (bytes - 1)) != 0) return report_misaligned(warp, op, mask, bytes, out);
  switch (static_cast<Place>(op->mode & 0xf)) {
    case Place::kGlobal:
      warp.global_bytes += bytes * static_cast<std::uint64_t>(std::popcount(mask));
      return resolve_global(warp, op, mask, pattern, bytes, out);
    case Place::kShared:
      return resolve_block(warp, op, mask, pattern, bytes, warp.shared, warp.shared_bytes, 0, out);
    case Place::kLocal:
      return resolve_block(warp, op, mask, pattern, bytes, warp.local, warp.local_stride,
                           warp.local_stride, out);
    case Place::kFrameParam:
      return resolve_block(warp, op, mask, pattern, bytes, warp.frame->params,
                           warp.frame->code->param_bytes, warp.frame->code->param_bytes, out);
    case Place::kKernelParam:
      return resolve_block(warp, op, mask, pattern, bytes,
                           const_cast<std::byte*>(warp.kernel_params), warp.kernel_param_bytes, 0,
                           out);
  }
  return false;
}

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
