#include "tools/simgpu/ptx/level/level.h"

/// Half and bfloat16 arithmetic, one or two values in a register. Additions and products are
/// computed in f32, whose rounding can't disturb the second one (24 ≥ 2 · 11 + 2 bits); fused
/// operations in f64.
namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;

struct Half {
  PLEXRL_INLINE static float read(U16 a) { return float_from_half(a); }
  PLEXRL_INLINE static U16 write(float a) { return half_from_float(a); }
  PLEXRL_INLINE static U16 write_wide(double a) { return half_from_double(a); }
  static constexpr U16 kNan = 0x7fff;
  static constexpr U16 kInfinity = 0x7c00;
};

struct Bfloat {
  PLEXRL_INLINE static float read(U16 a) { return float_from_bf16(a); }
  PLEXRL_INLINE static U16 write(float a) { return bf16_from_float(a); }
  /// A sum of f64 rounded to odd in f32, then to bfloat16: rounds once.
  PLEXRL_INLINE static U16 write_wide(double a) {
    const float near = static_cast<float>(a);
    U32 bits = std::bit_cast<U32>(near);
    if (near - near == 0 && static_cast<double>(near) != a && (bits & 1) == 0) {
      const bool away = (static_cast<double>(near) < a) == (a > 0);
      bits = away ? bits + 1 : bits - 1;
    }
    return bf16_from_float(std::bit_cast<float>(bits));
  }
  static constexpr U16 kNan = 0x7fff;
  static constexpr U16 kInfinity = 0x7f80;
};

template <typename H>
PLEXRL_INLINE bool is_nan(U16 a) {
  return (a & 0x7fff) > H::kInfinity;
}
template <typename H>
PLEXRL_INLINE U16 add(U16 a, U16 b) {
  return H::write(H::read(a) + H::read(b));
}
template <typename H>
PLEXRL_INLINE U16 sub(U16 a, U16 b) {
  return H::write(H::read(a) - H::read(b));
}
template <typename H>
PLEXRL_INLINE U16 mul(U16 a, U16 b) {
  return H::write(H::read(a) * H::read(b));
}
template <typename H>
PLEXRL_INLINE U16 fma(U16 a, U16 b, U16 c) {
  return H::write_wide(static_cast<double>(H::read(a)) * static_cast<double>(H::read(b)) +
                       static_cast<double>(H::read(c)));
}
template <typename H>
PLEXRL_INLINE U16 fma_relu(U16 a, U16 b, U16 c) {
  const U16 r = fma<H>(a, b, c);
  return is_nan<H>(r) ? H::kNan : (r & 0x8000) != 0 ? U16(0) : r;
}
template <typename H>
PLEXRL_INLINE U16 negate(U16 a) {
  return a ^ 0x8000;
}
template <typename H>
PLEXRL_INLINE U16 absolute(U16 a) {
  return a & 0x7fff;
}
/// An order of the bits that is the order of the values, with -0 below +0.
PLEXRL_INLINE std::int32_t order(U16 a) {
  const auto s = static_cast<std::int16_t>(a);
  return s < 0 ? -static_cast<std::int32_t>(a & 0x7fff) - 1 : s;
}
template <typename H>
PLEXRL_INLINE U16 minimum(U16 a, U16 b) {
  if (is_nan<H>(a)) return is_nan<H>(b) ? H::kNan : b;
  if (is_nan<H>(b)) return a;
  return order(a) < order(b) ? a : b;
}
template <typename H>
PLEXRL_INLINE U16 maximum(U16 a, U16 b) {
  if (is_nan<H>(a)) return is_nan<H>(b) ? H::kNan : b;
  if (is_nan<H>(b)) return a;
  return order(a) > order(b) ? a : b;
}
template <typename H>
PLEXRL_INLINE U16 minimum_nan(U16 a, U16 b) {
  return is_nan<H>(a) || is_nan<H>(b) ? H::kNan : minimum<H>(a, b);
}
template <typename H>
PLEXRL_INLINE U16 maximum_nan(U16 a, U16 b) {
  return is_nan<H>(a) || is_nan<H>(b) ? H::kNan : maximum<H>(a, b);
}
template <typename H>
PLEXRL_INLINE U16 saturate(U16 a) {
  const float x = H::read(a);
  return x > 0.0f ? (x < 1.0f ? a : H::write(1.0f)) : U16(0);
}
PLEXRL_INLINE U16 flush(U16 a) { return (a & 0x7c00) == 0 ? a & 0x8000 : a; }

template <U16 (*kFunction)(U16)>
PLEXRL_INLINE U32 pair1(U32 a) {
  return U32{kFunction(static_cast<U16>(a >> 16))} << 16 | kFunction(static_cast<U16>(a));
}
template <U16 (*kFunction)(U16, U16)>
PLEXRL_INLINE U32 pair2(U32 a, U32 b) {
  return U32{kFunction(static_cast<U16>(a >> 16), static_cast<U16>(b >> 16))} << 16 |
         kFunction(static_cast<U16>(a), static_cast<U16>(b));
}
template <U16 (*kFunction)(U16, U16, U16)>
PLEXRL_INLINE U32 pair3(U32 a, U32 b, U32 c) {
  return U32{kFunction(static_cast<U16>(a >> 16), static_cast<U16>(b >> 16),
                       static_cast<U16>(c >> 16))}
             << 16 |
         kFunction(static_cast<U16>(a), static_cast<U16>(b), static_cast<U16>(c));
}

template <U16 (*kFunction)(U16)>
OpFn choose1(bool is_pair) {
  return is_pair ? unary<U32, U32, pair1<kFunction>> : unary<U16, U16, kFunction>;
}
template <U16 (*kFunction)(U16, U16)>
OpFn choose2(bool is_pair) {
  return is_pair ? binary<U32, U32, U32, pair2<kFunction>> : binary<U16, U16, U16, kFunction>;
}
template <U16 (*kFunction)(U16, U16, U16)>
OpFn choose3(bool is_pair) {
  return is_pair ? ternary<U32, U32, U32, U32, pair3<kFunction>>
                 : ternary<U16, U16, U16, U16, kFunction>;
}

/// Compares one half in each lane; a pair is compared by two operations, `mode` 1 for the upper
/// half.
template <typename H, bool (*kCompare)(float, float)>
const Op* compare(Warp& warp, const Op* op, std::uint32_t mask) {
  const U16* const a = source<U16>(warp, op->a);
  const U16* const b = source<U16>(warp, op->b);
  set_predicate(warp, op->d, collect([=](int i) __attribute__((always_inline)) {
                  return kCompare(H::read(a[i]), H::read(b[i]));
                }),
                mask);
  return op + 1;
}
PLEXRL_INLINE bool eq(float a, float b) { return a == b; }
PLEXRL_INLINE bool ne(float a, float b) { return a < b || a > b; }
PLEXRL_INLINE bool lt(float a, float b) { return a < b; }
PLEXRL_INLINE bool le(float a, float b) { return a <= b; }
PLEXRL_INLINE bool equ(float a, float b) { return !(a < b || a > b); }
PLEXRL_INLINE bool neu(float a, float b) { return !(a == b); }
PLEXRL_INLINE bool ltu(float a, float b) { return !(a >= b); }
PLEXRL_INLINE bool leu(float a, float b) { return !(a > b); }
PLEXRL_INLINE bool num(float a, float b) { return a == a && b == b; }
PLEXRL_INLINE bool nan(float a, float b) { return a != a || b != b; }

/// Greater-than forms are less-than forms with the operands exchanged; the decoder does that.
template <typename H>
OpFn compare_act(Act act) {
  switch (act) {
    case Act::kSetEq:
      return compare<H, eq>;
    case Act::kSetNe:
      return compare<H, ne>;
    case Act::kSetLt:
      return compare<H, lt>;
    case Act::kSetLe:
      return compare<H, le>;
    case Act::kSetEqu:
      return compare<H, equ>;
    case Act::kSetNeu:
      return compare<H, neu>;
    case Act::kSetLtu:
      return compare<H, ltu>;
    case Act::kSetLeu:
      return compare<H, leu>;
    case Act::kSetNum:
      return compare<H, num>;
    case Act::kSetNan:
      return compare<H, nan>;
    default:
      return nullptr;
  }
}

template <typename H>
OpFn arithmetic_act(Act act, bool is_pair) {
  switch (act) {
    case Act::kAdd:
      return choose2<add<H>>(is_pair);
    case Act::kSub:
      return choose2<sub<H>>(is_pair);
    case Act::kMulLo:
      return choose2<mul<H>>(is_pair);
    case Act::kFma:
      return choose3<fma<H>>(is_pair);
    case Act::kFmaRelu:
      return choose3<fma_relu<H>>(is_pair);
    case Act::kNeg:
      return choose1<negate<H>>(is_pair);
    case Act::kAbs:
      return choose1<absolute<H>>(is_pair);
    case Act::kMin:
      return choose2<minimum<H>>(is_pair);
    case Act::kMax:
      return choose2<maximum<H>>(is_pair);
    case Act::kMinNan:
      return choose2<minimum_nan<H>>(is_pair);
    case Act::kMaxNan:
      return choose2<maximum_nan<H>>(is_pair);
    case Act::kSaturate:
      return choose1<saturate<H>>(is_pair);
    default:
      return nullptr;
  }
}

}  // namespace

OpFn half(Act act, Type type) {
  const bool is_pair = type == Type::kF16x2 || type == Type::kBf16x2;
  if (type == Type::kF16 || type == Type::kF16x2) {
    if (act == Act::kFlush) return choose1<flush>(is_pair);
    OpFn fn = arithmetic_act<Half>(act, is_pair);
    if (fn == nullptr && !is_pair) fn = compare_act<Half>(act);
    return fn != nullptr ? fn : approximate(act, type);
  }
  if (type == Type::kBf16 || type == Type::kBf16x2) {
    OpFn fn = arithmetic_act<Bfloat>(act, is_pair);
    if (fn == nullptr && !is_pair) fn = compare_act<Bfloat>(act);
    return fn;
  }
  return nullptr;
}

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
