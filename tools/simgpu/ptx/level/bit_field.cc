#include "tools/simgpu/ptx/act.h"
#include "tools/simgpu/ptx/level/lanes.h"
#include "tools/simgpu/ptx/level/level.h"

/// Bit fields, searches among bits, and carry chains, of 32 and 64 bits.
namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

template <typename T>
using Unsigned = std::make_unsigned_t<T>;

template <typename T>
PLEXRL_INLINE std::uint32_t popc(T a) {
  return static_cast<std::uint32_t>(std::popcount(a));
}
template <typename T>
PLEXRL_INLINE std::uint32_t clz(T a) {
  return static_cast<std::uint32_t>(std::countl_zero(a));
}
PLEXRL_INLINE std::uint32_t brev32(std::uint32_t a) {
  a = (a >> 1 & 0x55555555u) | (a & 0x55555555u) << 1;
  a = (a >> 2 & 0x33333333u) | (a & 0x33333333u) << 2;
  a = (a >> 4 & 0x0f0f0f0fu) | (a & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(a);
}
PLEXRL_INLINE std::uint64_t brev64(std::uint64_t a) {
  return std::uint64_t{brev32(static_cast<std::uint32_t>(a))} << 32 |
         brev32(static_cast<std::uint32_t>(a >> 32));
}
template <typename T>
PLEXRL_INLINE std::uint32_t bfind(T a) {
  const auto bits = static_cast<Unsigned<T>>(a < 0 ? ~a : a);
  if (bits == 0) return 0xffffffffu;
  return static_cast<std::uint32_t>(8 * sizeof(T) - 1) -
         static_cast<std::uint32_t>(std::countl_zero(bits));
}
template <typename T>
PLEXRL_INLINE std::uint32_t bfind_shift(T a) {
  const std::uint32_t at = bfind<T>(a);
  return at == 0xffffffffu ? at : static_cast<std::uint32_t>(8 * sizeof(T) - 1) - at;
}
template <typename T>
PLEXRL_INLINE T bfe(T a, std::uint32_t position, std::uint32_t length) {
  constexpr std::uint32_t kBits = 8 * sizeof(T);
  position &= 0xff;
  length &= 0xff;
  if (length == 0) return 0;
  const std::uint32_t top = position + length > kBits - 1 ? kBits - 1 : position + length - 1;
  const bool sign = std::is_signed_v<T> && (static_cast<Unsigned<T>>(a) >> top & 1) != 0;
  const Unsigned<T> low = position < kBits ? static_cast<Unsigned<T>>(a) >> position : 0;
  const Unsigned<T> field = length >= kBits ? ~Unsigned<T>(0) : (Unsigned<T>(1) << length) - 1;
  // Bits of the field past the top of `a` are filled with the sign as well.
  const std::uint32_t held = position < kBits ? kBits - position : 0;
  const Unsigned<T> real = held >= kBits ? ~Unsigned<T>(0) : (Unsigned<T>(1) << held) - 1;
  const Unsigned<T> value = low & field & real;
  return static_cast<T>(sign ? value | ~(field & real) : value);
}
template <typename T>
PLEXRL_INLINE T bfi(T from, T into, std::uint32_t position, std::uint32_t length) {
  constexpr std::uint32_t kBits = 8 * sizeof(T);
  position &= 0xff;
  length &= 0xff;
  if (position >= kBits) return into;
  const T field = length >= kBits ? static_cast<T>(~T(0)) : static_cast<T>((T(1) << length) - 1);
  const T mask = static_cast<T>(field << position);
  return static_cast<T>((into & ~mask) | (static_cast<T>(from << position) & mask));
}
template <typename T>
const Op* bfi_op(Warp& warp, const Op* op, std::uint32_t mask) {
  const T* const a = source<T>(warp, op->a);
  const T* const b = source<T>(warp, op->b);
  const std::uint32_t* const c = source<std::uint32_t>(warp, op->c);
  const std::uint32_t* const length = source<std::uint32_t>(warp, op->list[0]);
  map_lanes<T>(
      warp, op->d, mask, [=](int i) __attribute__((always_inline)) {
        return bfi<T>(a[i], b[i], c[i], length[i]);
      });
  return op + 1;
}

template <typename T, bool kSubtract>
const Op* carry(Warp& warp, const Op* op, std::uint32_t mask) {
  const T* const a = source<T>(warp, op->a);
  const T* const b = source<T>(warp, op->b);
  const std::uint32_t in = predicate(warp, op->c);
  T out[kLanes];
  std::uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) {
    const T c = (in & kBit[i]) != 0;
    T first, second;
    bool over;
    if constexpr (kSubtract) {
      over = __builtin_sub_overflow(a[i], b[i], &first);
      over |= __builtin_sub_overflow(first, c, &second);
    } else {
      over = __builtin_add_overflow(a[i], b[i], &first);
      over |= __builtin_add_overflow(first, c, &second);
    }
    out[i] = second;
    bits |= over ? kBit[i] : 0u;
  }
  blend(destination<T>(warp, op->d), out, mask);
  if (op->e != kNoOperand) set_predicate(warp, op->e, bits, mask);
  return op + 1;
}

template <typename T>
OpFn unsigned_act(Act act) {
  switch (act) {
    case Act::kPopc:
      return unary<std::uint32_t, T, popc<T>>;
    case Act::kClz:
      return unary<std::uint32_t, T, clz<T>>;
    case Act::kBfi:
      return bfi_op<T>;
    case Act::kAddCarry:
      return carry<T, false>;
    case Act::kSubCarry:
      return carry<T, true>;
    default:
      return nullptr;
  }
}

template <typename T>
OpFn signed_act(Act act) {
  switch (act) {
    case Act::kBfind:
      return unary<std::uint32_t, T, bfind<T>>;
    case Act::kBfindShift:
      return unary<std::uint32_t, T, bfind_shift<T>>;
    case Act::kBfe:
      return ternary<T, T, std::uint32_t, std::uint32_t, bfe<T>>;
    default:
      return nullptr;
  }
}

template <typename T>
OpFn choose(Act act) {
  const OpFn fn = unsigned_act<Unsigned<T>>(act);
  return fn != nullptr ? fn : signed_act<T>(act);
}

}  // namespace

OpFn bit_field(Act act, Type type) {
  const int bytes = bytes_of(type);
  if (act == Act::kBrev && bytes == 4) return unary<std::uint32_t, std::uint32_t, brev32>;
  if (act == Act::kBrev && bytes == 8) return unary<std::uint64_t, std::uint64_t, brev64>;
  if (bytes == 4) return is_signed(type) ? choose<std::int32_t>(act) : choose<std::uint32_t>(act);
  if (bytes == 8) return is_signed(type) ? choose<std::int64_t>(act) : choose<std::uint64_t>(act);
  return nullptr;
}

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
