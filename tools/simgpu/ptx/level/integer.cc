#include <limits>

#include "tools/simgpu/ptx/act.h"
#include "tools/simgpu/ptx/level/lanes.h"
#include "tools/simgpu/ptx/level/level.h"

namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

template <typename T>
using Unsigned = std::make_unsigned_t<T>;

template <typename T>
struct Wider;
template <>
struct Wider<std::int16_t> {
  using type = std::int32_t;
};
template <>
struct Wider<std::uint16_t> {
  using type = std::uint32_t;
};
template <>
struct Wider<std::int32_t> {
  using type = std::int64_t;
};
template <>
struct Wider<std::uint32_t> {
  using type = std::uint64_t;
};
template <>
struct Wider<std::int64_t> {
  using type = __int128;
};
template <>
struct Wider<std::uint64_t> {
  using type = unsigned __int128;
};
template <typename T>
using Wide = typename Wider<T>::type;

template <typename T>
PLEXRL_INLINE T move(T a) {
  return a;
}
template <typename T>
PLEXRL_INLINE T bit_not(T a) {
  return static_cast<T>(~a);
}
template <typename T>
PLEXRL_INLINE T bit_and(T a, T b) {
  return a & b;
}
template <typename T>
PLEXRL_INLINE T bit_or(T a, T b) {
  return a | b;
}
template <typename T>
PLEXRL_INLINE T bit_xor(T a, T b) {
  return a ^ b;
}
template <typename T>
PLEXRL_INLINE T add(T a, T b) {
  return static_cast<T>(Unsigned<T>(a) + Unsigned<T>(b));
}
template <typename T>
PLEXRL_INLINE T sub(T a, T b) {
  return static_cast<T>(Unsigned<T>(a) - Unsigned<T>(b));
}
template <typename T>
PLEXRL_INLINE T mul_lo(T a, T b) {
  // 16-bit operands would be promoted to int and could overflow it.
  using Work = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  return static_cast<T>(static_cast<Work>(a) * static_cast<Work>(b));
}
template <typename T>
PLEXRL_INLINE T mul_hi(T a, T b) {
  return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> (8 * sizeof(T)));
}
template <typename T>
PLEXRL_INLINE Wide<T> mul_wide(T a, T b) {
  return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b);
}
template <typename T>
PLEXRL_INLINE T mad_lo(T a, T b, T c) {
  return add<T>(mul_lo<T>(a, b), c);
}
template <typename T>
PLEXRL_INLINE T mad_hi(T a, T b, T c) {
  return add<T>(mul_hi<T>(a, b), c);
}
template <typename T>
PLEXRL_INLINE Wide<T> mad_wide(T a, T b, Wide<T> c) {
  using Work = Unsigned<Wide<T>>;
  return static_cast<Wide<T>>(static_cast<Work>(mul_wide<T>(a, b)) + static_cast<Work>(c));
}
/// Division by zero gives all ones, the remainder then is the dividend; the machine-dependent
/// results of the PTX ISA.
template <typename T>
PLEXRL_INLINE T divide(T a, T b) {
  if (b == 0) return static_cast<T>(~T(0));
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return sub<T>(0, a);
  }
  return static_cast<T>(a / b);
}
template <typename T>
PLEXRL_INLINE T remainder(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>) {
    if (b == -1) return 0;
  }
  return static_cast<T>(a % b);
}
template <typename T>
PLEXRL_INLINE T minimum(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
PLEXRL_INLINE T maximum(T a, T b) {
  return a > b ? a : b;
}
template <typename T>
PLEXRL_INLINE T negate(T a) {
  return sub<T>(0, a);
}
template <typename T>
PLEXRL_INLINE T absolute(T a) {
  return a < 0 ? sub<T>(0, a) : a;
}
template <typename T>
PLEXRL_INLINE T sad(T a, T b, T c) {
  return add<T>(c, a < b ? sub<T>(b, a) : sub<T>(a, b));
}
template <typename T>
PLEXRL_INLINE T cnot(T a) {
  return a == 0 ? 1 : 0;
}
template <typename T>
PLEXRL_INLINE T shl(T a, std::uint32_t n) {
  constexpr std::uint32_t kBits = 8 * sizeof(T);
  const T shifted = static_cast<T>(a << (n & (kBits - 1)));
  return n < kBits ? shifted : T(0);
}
template <typename T>
PLEXRL_INLINE T shr(T a, std::uint32_t n) {
  constexpr std::uint32_t kBits = 8 * sizeof(T);
  const T shifted = static_cast<T>(a >> (n & (kBits - 1)));
  const T rest = std::is_signed_v<T> ? static_cast<T>(a >> (kBits - 1)) : T(0);
  return n < kBits ? shifted : rest;
}
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
PLEXRL_INLINE std::uint32_t shf_left_wrap(std::uint32_t a, std::uint32_t b, std::uint32_t n) {
  return static_cast<std::uint32_t>((std::uint64_t{b} << 32 | a) << (n & 31) >> 32);
}
PLEXRL_INLINE std::uint32_t shf_right_wrap(std::uint32_t a, std::uint32_t b, std::uint32_t n) {
  return static_cast<std::uint32_t>((std::uint64_t{b} << 32 | a) >> (n & 31));
}
PLEXRL_INLINE std::uint32_t shf_left_clamp(std::uint32_t a, std::uint32_t b, std::uint32_t n) {
  return static_cast<std::uint32_t>((std::uint64_t{b} << 32 | a) << (n < 32 ? n : 32) >> 32);
}
PLEXRL_INLINE std::uint32_t shf_right_clamp(std::uint32_t a, std::uint32_t b, std::uint32_t n) {
  return static_cast<std::uint32_t>((std::uint64_t{b} << 32 | a) >> (n < 32 ? n : 32));
}
template <typename A, typename B>
PLEXRL_INLINE std::int32_t dp4a(std::uint32_t a, std::uint32_t b, std::int32_t c) {
  auto sum = static_cast<std::uint32_t>(c);
  for (int i = 0; i < 32; i += 8) {
    sum += static_cast<std::uint32_t>(static_cast<A>(a >> i) * static_cast<B>(b >> i));
  }
  return static_cast<std::int32_t>(sum);
}
template <typename T>
PLEXRL_INLINE T slct(T a, T b, std::int32_t c) {
  return c >= 0 ? a : b;
}
template <typename T>
PLEXRL_INLINE T slct_float(T a, T b, float c) {
  return c >= 0 ? a : b;
}
PLEXRL_INLINE std::uint32_t bmsk(std::uint32_t position, std::uint32_t length) {
  if (position > 31 || length == 0) return 0;
  const std::uint32_t field = length > 31 ? ~0u : (1u << length) - 1;
  return field << position;
}

template <typename T>
const Op* select(Warp& warp, const Op* op, std::uint32_t mask) {
  const T* const a = source<T>(warp, op->a);
  const T* const b = source<T>(warp, op->b);
  const std::uint32_t bits = predicate(warp, op->c);
  map_lanes<T>(
      warp, op->d, mask, [=](int i) __attribute__((always_inline)) {
        return (bits & kBit[i]) != 0 ? a[i] : b[i];
      });
  return op + 1;
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

/// Modes as in the PTX ISA: 0 index, 1 f4e, 2 b4e, 3 rc8, 4 ecl, 5 ecr, 6 rc16.
const Op* prmt(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto* const a = source<std::uint32_t>(warp, op->a);
  const auto* const b = source<std::uint32_t>(warp, op->b);
  const auto* const c = source<std::uint32_t>(warp, op->c);
  std::uint32_t out[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const std::uint64_t bytes = std::uint64_t{b[i]} << 32 | a[i];
    const std::uint32_t s = c[i] & 3;
    std::uint32_t selector = c[i];
    switch (op->mode) {
      case 1:
        selector = 0x3210u + s * 0x1111u;
        break;
      case 2:
        selector = s | ((s - 1) & 7) << 4 | ((s - 2) & 7) << 8 | ((s - 3) & 7) << 12;
        break;
      case 3:
        selector = s * 0x1111u;
        break;
      case 4:
        selector = s | (s > 1 ? s : 1) << 4 | (s > 2 ? s : 2) << 8 | 3u << 12;
        break;
      case 5:
        selector = 0u | (s < 1 ? s : 1) << 4 | (s < 2 ? s : 2) << 8 | s << 12;
        break;
      case 6:
        selector = (s & 1) != 0 ? 0x3232u : 0x1010u;
        break;
      default:
        break;
    }
    std::uint32_t result = 0;
    for (int k = 0; k < 4; ++k) {
      const std::uint32_t choice = selector >> (4 * k) & 0xf;
      std::uint32_t byte = static_cast<std::uint32_t>(bytes >> (8 * (choice & 7))) & 0xff;
      if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
      result |= byte << (8 * k);
    }
    out[i] = result;
  }
  blend(destination<std::uint32_t>(warp, op->d), out, mask);
  return op + 1;
}

template <typename A, typename B>
const Op* dp2a(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto* const a = source<std::uint32_t>(warp, op->a);
  const auto* const b = source<std::uint32_t>(warp, op->b);
  const auto* const c = source<std::uint32_t>(warp, op->c);
  using Half = std::conditional_t<std::is_signed_v<A>, std::int16_t, std::uint16_t>;
  const int shift = op->imm != 0 ? 16 : 0;
  map_lanes<std::uint32_t>(warp, op->d, mask, [=](int i) {
    return c[i] +
           static_cast<std::uint32_t>(static_cast<Half>(a[i]) * static_cast<B>(b[i] >> shift)) +
           static_cast<std::uint32_t>(static_cast<Half>(a[i] >> 16) *
                                      static_cast<B>(b[i] >> (shift + 8)));
  });
  return op + 1;
}

const Op* lop3(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto* const a = source<std::uint32_t>(warp, op->a);
  const auto* const b = source<std::uint32_t>(warp, op->b);
  const auto* const c = source<std::uint32_t>(warp, op->c);
  const auto table = static_cast<std::uint32_t>(op->imm);
  std::uint32_t out[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    std::uint32_t result = 0;
    for (std::uint32_t row = 0; row < 8; ++row) {
      if ((table >> row & 1) == 0) continue;
      result |= ((row & 4) != 0 ? a[i] : ~a[i]) & ((row & 2) != 0 ? b[i] : ~b[i]) &
                ((row & 1) != 0 ? c[i] : ~c[i]);
    }
    out[i] = result;
  }
  blend(destination<std::uint32_t>(warp, op->d), out, mask);
  return op + 1;
}

template <typename T, bool (*kCompare)(T, T)>
const Op* compare(Warp& warp, const Op* op, std::uint32_t mask) {
  const T* const a = source<T>(warp, op->a);
  const T* const b = source<T>(warp, op->b);
  set_predicate(warp, op->d,
                collect([=](int i) __attribute__((always_inline)) { return kCompare(a[i], b[i]); }),
                mask);
  return op + 1;
}
template <typename T>
PLEXRL_INLINE bool eq(T a, T b) {
  return a == b;
}
template <typename T>
PLEXRL_INLINE bool ne(T a, T b) {
  return a != b;
}
template <typename T>
PLEXRL_INLINE bool lt(T a, T b) {
  return a < b;
}
template <typename T>
PLEXRL_INLINE bool le(T a, T b) {
  return a <= b;
}

/// Division is slow and can't be vectorised: only the lanes that need it.
template <typename T, T (*kFunction)(T, T)>
const Op* by_lane(Warp& warp, const Op* op, std::uint32_t mask) {
  const T* const a = source<T>(warp, op->a);
  const T* const b = source<T>(warp, op->b);
  T* const d = destination<T>(warp, op->d);
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    d[i] = kFunction(a[i], b[i]);
  }
  return op + 1;
}

const Op* pred_not(Warp& warp, const Op* op, std::uint32_t mask) {
  set_predicate(warp, op->d, ~predicate(warp, op->a), mask);
  return op + 1;
}
const Op* pred_move(Warp& warp, const Op* op, std::uint32_t mask) {
  set_predicate(warp, op->d, predicate(warp, op->a), mask);
  return op + 1;
}
const Op* pred_and(Warp& warp, const Op* op, std::uint32_t mask) {
  set_predicate(warp, op->d, predicate(warp, op->a) & predicate(warp, op->b), mask);
  return op + 1;
}
const Op* pred_or(Warp& warp, const Op* op, std::uint32_t mask) {
  set_predicate(warp, op->d, predicate(warp, op->a) | predicate(warp, op->b), mask);
  return op + 1;
}
const Op* pred_xor(Warp& warp, const Op* op, std::uint32_t mask) {
  set_predicate(warp, op->d, predicate(warp, op->a) ^ predicate(warp, op->b), mask);
  return op + 1;
}
const Op* pred_select(Warp& warp, const Op* op, std::uint32_t mask) {
  const std::uint32_t c = predicate(warp, op->c);
  set_predicate(warp, op->d, (predicate(warp, op->a) & c) | (predicate(warp, op->b) & ~c), mask);
  return op + 1;
}

/// Acts that are the same for signed and unsigned.
template <typename T>
OpFn bits_act(Act act) {
  switch (act) {
    case Act::kMove:
      return unary<T, T, move<T>>;
    case Act::kNot:
      return unary<T, T, bit_not<T>>;
    case Act::kAnd:
      return binary<T, T, T, bit_and<T>>;
    case Act::kOr:
      return binary<T, T, T, bit_or<T>>;
    case Act::kXor:
      return binary<T, T, T, bit_xor<T>>;
    case Act::kSelect:
      return select<T>;
    case Act::kAdd:
      return binary<T, T, T, add<T>>;
    case Act::kSub:
      return binary<T, T, T, sub<T>>;
    case Act::kMulLo:
      return binary<T, T, T, mul_lo<T>>;
    case Act::kMadLo:
      return ternary<T, T, T, T, mad_lo<T>>;
    case Act::kNeg:
      return unary<T, T, negate<T>>;
    case Act::kShl:
      return binary<T, T, std::uint32_t, shl<T>>;
    case Act::kCnot:
      return unary<T, T, cnot<T>>;
    case Act::kSlct:
      return ternary<T, T, T, std::int32_t, slct<T>>;
    case Act::kSlctFloat:
      return ternary<T, T, T, float, slct_float<T>>;
    case Act::kSetEq:
      return compare<T, eq<T>>;
    case Act::kSetNe:
      return compare<T, ne<T>>;
    default:
      return nullptr;
  }
}

template <typename T>
OpFn wide_bits_act(Act act) {
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
    case Act::kMulHi:
      return binary<T, T, T, mul_hi<T>>;
    case Act::kDiv:
      return by_lane<T, divide<T>>;
    case Act::kRem:
      return by_lane<T, remainder<T>>;
    case Act::kMin:
      return binary<T, T, T, minimum<T>>;
    case Act::kMax:
      return binary<T, T, T, maximum<T>>;
    case Act::kAbs:
      return unary<T, T, absolute<T>>;
    case Act::kMadHi:
      return ternary<T, T, T, T, mad_hi<T>>;
    case Act::kSad:
      return ternary<T, T, T, T, sad<T>>;
    case Act::kShr:
      return binary<T, T, std::uint32_t, shr<T>>;
    case Act::kSetLt:
      return compare<T, lt<T>>;
    case Act::kSetLe:
      return compare<T, le<T>>;
    default:
      break;
  }
  if constexpr (sizeof(T) < 8) {
    if (act == Act::kMulWide) return binary<Wide<T>, T, T, mul_wide<T>>;
    if (act == Act::kMadWide) return ternary<Wide<T>, T, T, Wide<T>, mad_wide<T>>;
  }
  if constexpr (sizeof(T) > 2) {
    if (act == Act::kBfind) return unary<std::uint32_t, T, bfind<T>>;
    if (act == Act::kBfindShift) return unary<std::uint32_t, T, bfind_shift<T>>;
    if (act == Act::kBfe) return ternary<T, T, std::uint32_t, std::uint32_t, bfe<T>>;
  }
  return nullptr;
}

OpFn word_act(Act act) {
  using U = std::uint32_t;
  using S8 = std::int8_t;
  using U8 = std::uint8_t;
  switch (act) {
    case Act::kBrev:
      return unary<U, U, brev32>;
    case Act::kShfLeftWrap:
      return ternary<U, U, U, U, shf_left_wrap>;
    case Act::kShfRightWrap:
      return ternary<U, U, U, U, shf_right_wrap>;
    case Act::kShfLeftClamp:
      return ternary<U, U, U, U, shf_left_clamp>;
    case Act::kShfRightClamp:
      return ternary<U, U, U, U, shf_right_clamp>;
    case Act::kPrmt:
      return prmt;
    case Act::kDp4aUU:
      return ternary<std::int32_t, U, U, std::int32_t, dp4a<U8, U8>>;
    case Act::kDp4aUS:
      return ternary<std::int32_t, U, U, std::int32_t, dp4a<U8, S8>>;
    case Act::kDp4aSU:
      return ternary<std::int32_t, U, U, std::int32_t, dp4a<S8, U8>>;
    case Act::kDp4aSS:
      return ternary<std::int32_t, U, U, std::int32_t, dp4a<S8, S8>>;
    case Act::kDp2aUU:
      return dp2a<U8, U8>;
    case Act::kDp2aUS:
      return dp2a<U8, S8>;
    case Act::kDp2aSU:
      return dp2a<S8, U8>;
    case Act::kDp2aSS:
      return dp2a<S8, S8>;
    case Act::kLop3:
      return lop3;
    case Act::kBmsk:
      return binary<U, U, U, bmsk>;
    default:
      return nullptr;
  }
}

OpFn predicate_act(Act act) {
  switch (act) {
    case Act::kMove:
    case Act::kPredMove:
      return pred_move;
    case Act::kNot:
    case Act::kPredNot:
      return pred_not;
    case Act::kAnd:
    case Act::kPredAnd:
      return pred_and;
    case Act::kOr:
    case Act::kPredOr:
      return pred_or;
    case Act::kXor:
    case Act::kPredXor:
      return pred_xor;
    case Act::kSelect:
    case Act::kPredSelect:
      return pred_select;
    default:
      return nullptr;
  }
}

OpFn either(OpFn first, OpFn second) { return first != nullptr ? first : second; }

}  // namespace

OpFn integer(Act act, Type type) {
  switch (type) {
    case Type::kPred:
      return predicate_act(act);
    case Type::kB16:
    case Type::kU16:
      return either(bits_act<std::uint16_t>(act), signed_act<std::uint16_t>(act));
    case Type::kS16:
      return either(bits_act<std::uint16_t>(act), signed_act<std::int16_t>(act));
    case Type::kB32:
    case Type::kU32:
      return either(either(bits_act<std::uint32_t>(act), wide_bits_act<std::uint32_t>(act)),
                    either(signed_act<std::uint32_t>(act), word_act(act)));
    case Type::kS32:
      return either(either(bits_act<std::uint32_t>(act), wide_bits_act<std::uint32_t>(act)),
                    either(signed_act<std::int32_t>(act), word_act(act)));
    case Type::kB64:
    case Type::kU64:
      if (act == Act::kBrev) return unary<std::uint64_t, std::uint64_t, brev64>;
      return either(either(bits_act<std::uint64_t>(act), wide_bits_act<std::uint64_t>(act)),
                    signed_act<std::uint64_t>(act));
    case Type::kS64:
      return either(either(bits_act<std::uint64_t>(act), wide_bits_act<std::uint64_t>(act)),
                    signed_act<std::int64_t>(act));
    default:
      return nullptr;
  }
}

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
