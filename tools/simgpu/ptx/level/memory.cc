#include "tools/simgpu/ptx/level/access.h"
#include "tools/simgpu/ptx/level/level.h"

namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

/// Calls f(lane, pointer) for each lane in `mask`.
template <typename F>
PLEXRL_INLINE void each_lane(const Access& at, std::uint32_t mask, std::size_t skip, F f) {
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    f(i, at.at(i) + skip);
  }
}

/// Loads by all lanes from shared memory through a 32-bit address, the inner loop of a matrix
/// product. False when the general way has to report a fault.
template <typename M, typename R>
PLEXRL_INLINE bool load_shared(Warp& warp, const Op* op) {
  const auto* const a = source<std::uint32_t>(warp, op->a);
  const auto offset = static_cast<std::uint32_t>(op->imm);
  if (warp.shared_bytes < sizeof(M)) return false;
  const auto last = static_cast<std::uint32_t>(warp.shared_bytes - sizeof(M));
  std::uint32_t of[kLanes];
  std::uint32_t all = 0, outside = 0;
  for (int i = 0; i < kLanes; ++i) {
    of[i] = a[i] + offset;
    all |= of[i];
    outside |= of[i] > last ? 1u : 0u;
  }
  if (((all & (sizeof(M) - 1)) | outside) != 0) return false;
  R* const d = destination<R>(warp, op->d);
  const std::byte* const from = warp.shared;
  for (int i = 0; i < kLanes; ++i) {
    M value;
    std::memcpy(&value, from + of[i], sizeof(M));
    d[i] = static_cast<R>(value);
  }
  return true;
}

/// M as in memory, R as in the register: the value is extended by M's signedness.
template <typename M, typename R>
const Op* load_op(Warp& warp, const Op* op, std::uint32_t mask) {
  constexpr int kShortShared = static_cast<int>(Place::kShared) | kShortAddress;
  if (op->mode == kShortShared && mask == kAllLanes && op->count == 1 && op->d != kNoOperand) {
    if (load_shared<M, R>(warp, op)) return op + 1;
  }
  Access at;
  const std::size_t bytes = sizeof(M) * op->count;
  if (!resolve(warp, op, mask, bytes, at)) return op + 1;
  for (int v = 0; v < op->count; ++v) {
    const std::int32_t to = op->count == 1 ? op->d : op->list[v];
    if (to == kNoOperand) continue;
    R* const d = destination<R>(warp, to);
    const std::size_t skip = sizeof(M) * static_cast<std::size_t>(v);
    if (at.is_strided && mask == kAllLanes && at.stride == sizeof(M)) {
      M values[kLanes];
      std::memcpy(values, at.base + skip, sizeof(values));
      for (int i = 0; i < kLanes; ++i) d[i] = static_cast<R>(values[i]);
    } else if (at.is_strided && at.stride == 0) {
      M value;
      std::memcpy(&value, at.base + skip, sizeof(M));
      map_lanes<R>(
          warp, to,
          mask, [=](int) __attribute__((always_inline)) { return static_cast<R>(value); });
    } else if (at.is_strided && mask == kAllLanes) {
      const std::byte* from = at.base + skip;
      for (int i = 0; i < kLanes; ++i, from += at.stride) {
        M value;
        std::memcpy(&value, from, sizeof(M));
        d[i] = static_cast<R>(value);
      }
    } else if (mask == kAllLanes) {
      const std::byte* const from = at.base + skip;
      for (int i = 0; i < kLanes; ++i) {
        M value;
        std::memcpy(&value, from + at.offset[i], sizeof(M));
        d[i] = static_cast<R>(value);
      }
    } else {
      each_lane(
          at, mask, skip, [=](int i, const std::byte* from) __attribute__((always_inline)) {
            M value;
            std::memcpy(&value, from, sizeof(M));
            d[i] = static_cast<R>(value);
          });
    }
  }
  return op + 1;
}

template <typename M, typename R>
const Op* store_op(Warp& warp, const Op* op, std::uint32_t mask) {
  Access at;
  const std::size_t bytes = sizeof(M) * op->count;
  if (!resolve(warp, op, mask, bytes, at)) return op + 1;
  const bool is_visible = (op->mode & 0xf) <= static_cast<int>(Place::kShared);
  if (is_visible && !warp.is_probing) ++warp.writes;
  for (int v = 0; v < op->count; ++v) {
    const R* const b = source<R>(warp, op->count == 1 ? op->b : op->list[v]);
    const std::size_t skip = sizeof(M) * static_cast<std::size_t>(v);
    if (warp.is_probing) [[unlikely]] {
      each_lane(at, mask, skip, [&](int i, std::byte* to) {
        const M value = static_cast<M>(b[i]);
        if (std::memcmp(to, &value, sizeof(M)) == 0) return;
        warp.has_changed = true;
        // Generic addresses may be the lane's own local memory.
        const bool is_local = to >= warp.local && to < warp.local + warp.local_stride * kLanes;
        if (is_visible && !is_local) ++warp.writes;
      });
    }
    if (at.is_strided && mask == kAllLanes && at.stride == sizeof(M)) {
      M values[kLanes];
      for (int i = 0; i < kLanes; ++i) values[i] = static_cast<M>(b[i]);
      std::memcpy(at.base + skip, values, sizeof(values));
    } else {
      each_lane(
          at, mask, skip, [=](int i, std::byte* to) __attribute__((always_inline)) {
            const M value = static_cast<M>(b[i]);
            std::memcpy(to, &value, sizeof(M));
          });
    }
  }
  return op + 1;
}

template <typename M>
OpFn load_as(int register_width) {
  if constexpr (sizeof(M) <= 2) {
    if (register_width == 2) return load_op<M, std::uint16_t>;
  }
  if constexpr (sizeof(M) <= 4) {
    if (register_width == 4) return load_op<M, std::uint32_t>;
  }
  return register_width == 8 ? load_op<M, std::uint64_t> : nullptr;
}

}  // namespace

OpFn load(Type type, int register_width) {
  switch (type) {
    case Type::kS8:
      return load_as<std::int8_t>(register_width);
    case Type::kS16:
      return load_as<std::int16_t>(register_width);
    case Type::kS32:
      return load_as<std::int32_t>(register_width);
    default:
      break;
  }
  switch (bytes_of(type)) {
    case 1:
      return load_as<std::uint8_t>(register_width);
    case 2:
      return load_as<std::uint16_t>(register_width);
    case 4:
      return load_as<std::uint32_t>(register_width);
    case 8:
      return load_as<std::uint64_t>(register_width);
    default:
      return nullptr;
  }
}

OpFn store(int bytes, int register_width) {
  using U8 = std::uint8_t;
  using U16 = std::uint16_t;
  using U32 = std::uint32_t;
  using U64 = std::uint64_t;
  switch (bytes * 16 + register_width) {
    case 0x12:
      return store_op<U8, U16>;
    case 0x14:
      return store_op<U8, U32>;
    case 0x18:
      return store_op<U8, U64>;
    case 0x22:
      return store_op<U16, U16>;
    case 0x24:
      return store_op<U16, U32>;
    case 0x28:
      return store_op<U16, U64>;
    case 0x44:
      return store_op<U32, U32>;
    case 0x48:
      return store_op<U32, U64>;
    case 0x88:
      return store_op<U64, U64>;
    default:
      return nullptr;
  }
}

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
