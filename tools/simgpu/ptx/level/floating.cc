#include <cmath>

#include "tools/simgpu/ptx/level/level.h"

namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

template <typename T>
PLEXRL_INLINE T add(T a, T b) {
  return a + b;
}
template <typename T>
PLEXRL_INLINE T sub(T a, T b) {
  return a - b;
}
template <typename T>
PLEXRL_INLINE T mul(T a, T b) {
  return a * b;
}
template <typename T>
PLEXRL_INLINE T divide(T a, T b) {
  return a / b;
}
template <typename T>
PLEXRL_INLINE T reciprocal(T a) {
  return T(1) / a;
}
PLEXRL_INLINE float negate(float a) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) ^ 0x80000000u);
}
PLEXRL_INLINE double negate(double a) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(a) ^ 0x8000000000000000ull);
}
PLEXRL_INLINE float absolute(float a) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) & 0x7fffffffu);
}
PLEXRL_INLINE double absolute(double a) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(a) & 0x7fffffffffffffffull);
}
PLEXRL_INLINE float square_root(float a) { return __builtin_sqrtf(a); }
PLEXRL_INLINE double square_root(double a) { return __builtin_sqrt(a); }
PLEXRL_INLINE float rsqrt(float a) {
  return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(a)));
}
PLEXRL_INLINE double rsqrt(double a) { return 1.0 / __builtin_sqrt(a); }

#ifdef __FMA__
PLEXRL_INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
PLEXRL_INLINE double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
/// Correctly rounded without the instruction: the product of two floats is exact in double; the sum
/// is rounded to odd, so that the second rounding, to float, sees whether anything was cut off
/// (Boldo and Melquiond, 2008).
PLEXRL_INLINE float fused(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = c;
  const double sum = product + addend;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (addend - part);
  std::uint64_t bits = std::bit_cast<std::uint64_t>(sum);
  const bool inexact = error != 0 && error - error == 0 && (bits & 1) == 0;
  // Towards the true value: away from zero when the error has the sum's sign.
  const bool away = (std::bit_cast<std::uint64_t>(error) >> 63) == (bits >> 63);
  const std::uint64_t odd = away ? bits + 1 : bits - 1;
  bits = inexact ? odd : bits;
  return static_cast<float>(std::bit_cast<double>(bits));
}
PLEXRL_INLINE double fused(double a, double b, double c) { return ::fma(a, b, c); }
#endif

/// +0 is greater than -0; a NaN loses against a number.
PLEXRL_INLINE float minimum(float a, float b) {
  float r = b < a ? b : a;
  r = a == b
          ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) | std::bit_cast<std::uint32_t>(b))
          : r;
  return a != a ? b : r;
}
PLEXRL_INLINE float maximum(float a, float b) {
  float r = a < b ? b : a;
  r = a == b
          ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) & std::bit_cast<std::uint32_t>(b))
          : r;
  return a != a ? b : r;
}
PLEXRL_INLINE double minimum(double a, double b) {
  double r = b < a ? b : a;
  r = a == b
          ? std::bit_cast<double>(std::bit_cast<std::uint64_t>(a) | std::bit_cast<std::uint64_t>(b))
          : r;
  return a != a ? b : r;
}
PLEXRL_INLINE double maximum(double a, double b) {
  double r = a < b ? b : a;
  r = a == b
          ? std::bit_cast<double>(std::bit_cast<std::uint64_t>(a) & std::bit_cast<std::uint64_t>(b))
          : r;
  return a != a ? b : r;
}
template <typename T>
PLEXRL_INLINE T minimum_nan(T a, T b) {
  return a != a ? a : b != b ? b : minimum(a, b);
}
template <typename T>
PLEXRL_INLINE T maximum_nan(T a, T b) {
  return a != a ? a : b != b ? b : maximum(a, b);
}
PLEXRL_INLINE float flush(float a) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(a);
  return std::bit_cast<float>((bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
}
/// Into [0, 1]; a NaN gives 0.
template <typename T>
PLEXRL_INLINE T saturate(T a) {
  T r = a > T(0) ? a : T(0);
  return r < T(1) ? r : T(1);
}
PLEXRL_INLINE float copy_sign(float a, float b) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(a) & 0x80000000u) |
                              (std::bit_cast<std::uint32_t>(b) & 0x7fffffffu));
}
PLEXRL_INLINE double copy_sign(double a, double b) {
  return std::bit_cast<double>((std::bit_cast<std::uint64_t>(a) & 0x8000000000000000ull) |
                               (std::bit_cast<std::uint64_t>(b) & 0x7fffffffffffffffull));
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
  return a < b || a > b;
}
template <typename T>
PLEXRL_INLINE bool lt(T a, T b) {
  return a < b;
}
template <typename T>
PLEXRL_INLINE bool le(T a, T b) {
  return a <= b;
}
template <typename T>
PLEXRL_INLINE bool gt(T a, T b) {
  return a > b;
}
template <typename T>
PLEXRL_INLINE bool ge(T a, T b) {
  return a >= b;
}
template <typename T>
PLEXRL_INLINE bool equ(T a, T b) {
  return !(a < b || a > b);
}
template <typename T>
PLEXRL_INLINE bool neu(T a, T b) {
  return !(a == b);
}
template <typename T>
PLEXRL_INLINE bool ltu(T a, T b) {
  return !(a >= b);
}
template <typename T>
PLEXRL_INLINE bool leu(T a, T b) {
  return !(a > b);
}
template <typename T>
PLEXRL_INLINE bool gtu(T a, T b) {
  return !(a <= b);
}
template <typename T>
PLEXRL_INLINE bool geu(T a, T b) {
  return !(a < b);
}
template <typename T>
PLEXRL_INLINE bool num(T a, T b) {
  return a == a && b == b;
}
template <typename T>
PLEXRL_INLINE bool nan(T a, T b) {
  return a != a || b != b;
}

/// mode: 0 finite, 1 infinite, 2 number, 3 notanumber, 4 normal, 5 subnormal.
template <typename T>
const Op* test(Warp& warp, const Op* op, std::uint32_t mask) {
  const T* const a = source<T>(warp, op->a);
  const T smallest = sizeof(T) == 4 ? T(0x1p-126) : T(0x1p-1022);
  const int mode = op->mode;
  set_predicate(warp, op->d, collect([=](int i) {
                  const T x = a[i] < 0 ? -a[i] : a[i];
                  const bool finite = x - x == 0;
                  switch (mode) {
                    case 0:
                      return finite;
                    case 1:
                      return x == x && !finite;
                    case 2:
                      return x == x;
                    case 3:
                      return x != x;
                    case 4:
                      return finite && x >= smallest;
                    default:
                      return x != 0 && x < smallest;
                  }
                }),
                mask);
  return op + 1;
}

template <typename T>
OpFn compare_act(Act act) {
  switch (act) {
    case Act::kSetEq:
      return compare<T, eq<T>>;
    case Act::kSetNe:
      return compare<T, ne<T>>;
    case Act::kSetLt:
      return compare<T, lt<T>>;
    case Act::kSetLe:
      return compare<T, le<T>>;
    case Act::kSetGt:
      return compare<T, gt<T>>;
    case Act::kSetGe:
      return compare<T, ge<T>>;
    case Act::kSetEqu:
      return compare<T, equ<T>>;
    case Act::kSetNeu:
      return compare<T, neu<T>>;
    case Act::kSetLtu:
      return compare<T, ltu<T>>;
    case Act::kSetLeu:
      return compare<T, leu<T>>;
    case Act::kSetGtu:
      return compare<T, gtu<T>>;
    case Act::kSetGeu:
      return compare<T, geu<T>>;
    case Act::kSetNum:
      return compare<T, num<T>>;
    case Act::kSetNan:
      return compare<T, nan<T>>;
    default:
      return nullptr;
  }
}

template <typename T>
OpFn arithmetic_act(Act act) {
  switch (act) {
    case Act::kAdd:
      return binary<T, T, T, add<T>>;
    case Act::kSub:
      return binary<T, T, T, sub<T>>;
    case Act::kMulLo:
      return binary<T, T, T, mul<T>>;
    case Act::kDiv:
      return binary<T, T, T, divide<T>>;
    case Act::kFma:
      return ternary<T, T, T, T, fused>;
    case Act::kMin:
      return binary<T, T, T, minimum>;
    case Act::kMax:
      return binary<T, T, T, maximum>;
    case Act::kMinNan:
      return binary<T, T, T, minimum_nan<T>>;
    case Act::kMaxNan:
      return binary<T, T, T, maximum_nan<T>>;
    case Act::kNeg:
      return unary<T, T, negate>;
    case Act::kAbs:
      return unary<T, T, absolute>;
    case Act::kSqrt:
      return unary<T, T, square_root>;
    case Act::kRsqrt:
      return unary<T, T, rsqrt>;
    case Act::kRcp:
      return unary<T, T, reciprocal<T>>;
    case Act::kSaturate:
      return unary<T, T, saturate<T>>;
    case Act::kCopysign:
      return binary<T, T, T, copy_sign>;
    case Act::kTestp:
      return test<T>;
    default:
      return compare_act<T>(act);
  }
}

}  // namespace

OpFn floating(Act act, Type type) {
  OpFn fn = nullptr;
  if (type == Type::kF32) {
    fn = act == Act::kFlush ? unary<float, float, flush> : arithmetic_act<float>(act);
  } else if (type == Type::kF64) {
    fn = arithmetic_act<double>(act);
  } else {
    return half(act, type);
  }
  return fn != nullptr ? fn : approximate(act, type);
}

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
