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
PLEXRL_INLINE T slct(T a, T b, std::int32_t c) {
  return c >= 0 ? a : b;
}
template <typename T>
PLEXRL_INLINE T slct_float(T a, T b, float c) {
  return c >= 0 ? a : b;
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
  return nullptr;
}

OpFn either(OpFn first, OpFn second) { return first != nullptr ? first : second; }

OpFn arithmetic(Act act, Type type) {
  switch (type) {
    case Type::kB16:
    case Type::kU16:
      return either(bits_act<std::uint16_t>(act), signed_act<std::uint16_t>(act));
    case Type::kS16:
      return either(bits_act<std::uint16_t>(act), signed_act<std::int16_t>(act));
    case Type::kB32:
    case Type::kU32:
      return either(bits_act<std::uint32_t>(act), signed_act<std::uint32_t>(act));
    case Type::kS32:
      return either(bits_act<std::uint32_t>(act), signed_act<std::int32_t>(act));
    case Type::kB64:
    case Type::kU64:
      return either(bits_act<std::uint64_t>(act), signed_act<std::uint64_t>(act));
    case Type::kS64:
      return either(bits_act<std::uint64_t>(act), signed_act<std::int64_t>(act));
    default:
      return nullptr;
  }
}

}  // namespace

OpFn integer(Act act, Type type) {
  if (type == Type::kPred) return predicate_logic(act);
  OpFn fn = arithmetic(act, type);
  if (fn == nullptr) fn = bit_field(act, type);
  if (fn == nullptr && bytes_of(type) == 4) fn = word(act);
  return fn;
}

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
