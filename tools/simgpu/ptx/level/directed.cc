#include <cfenv>
#include <cmath>

#include "tools/simgpu/ptx/level/level.h"

/// Arithmetic that rounds towards zero, down or up: the CPU's rounding mode is set around each
/// operation. This file is compiled with -frounding-math, so that nothing moves across.
namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

int host_mode(Rounding rounding) {
  switch (rounding) {
    case Rounding::kZero:
      return FE_TOWARDZERO;
    case Rounding::kDown:
      return FE_DOWNWARD;
    case Rounding::kUp:
      return FE_UPWARD;
    default:
      return FE_TONEAREST;
  }
}

class RoundingScope {
 public:
  explicit RoundingScope(int mode) : before_(std::fegetround()) { std::fesetround(mode); }
  ~RoundingScope() { std::fesetround(before_); }

 private:
  int before_;
};

template <typename T>
PLEXRL_INLINE T compute(Act act, T a, T b, T c) {
  switch (act) {
    case Act::kAdd:
      return a + b;
    case Act::kSub:
      return a - b;
    case Act::kMulLo:
      return a * b;
    case Act::kDiv:
      return a / b;
    case Act::kRcp:
      return T(1) / a;
    case Act::kSqrt:
      return std::sqrt(a);
    default:
      return std::fma(a, b, c);
  }
}

template <typename T, Act kAct, Rounding kRounding>
const Op* directed_op(Warp& warp, const Op* op, std::uint32_t mask) {
  const T* const a = source<T>(warp, op->a);
  const T* const b = source<T>(warp, op->b == kNoOperand ? op->a : op->b);
  const T* const c = source<T>(warp, op->c == kNoOperand ? op->a : op->c);
  T* const d = destination<T>(warp, op->d);
  const RoundingScope scope(host_mode(kRounding));
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    volatile T x = a[i];
    d[i] = compute<T>(kAct, x, b[i], c[i]);
  }
  return op + 1;
}

template <typename T, Rounding kRounding>
OpFn choose(Act act) {
  switch (act) {
    case Act::kAdd:
      return directed_op<T, Act::kAdd, kRounding>;
    case Act::kSub:
      return directed_op<T, Act::kSub, kRounding>;
    case Act::kMulLo:
      return directed_op<T, Act::kMulLo, kRounding>;
    case Act::kDiv:
      return directed_op<T, Act::kDiv, kRounding>;
    case Act::kRcp:
      return directed_op<T, Act::kRcp, kRounding>;
    case Act::kSqrt:
      return directed_op<T, Act::kSqrt, kRounding>;
    case Act::kFma:
      return directed_op<T, Act::kFma, kRounding>;
    default:
      return nullptr;
  }
}

template <typename T>
OpFn choose_rounding(Act act, Rounding rounding) {
  switch (rounding) {
    case Rounding::kZero:
      return choose<T, Rounding::kZero>(act);
    case Rounding::kDown:
      return choose<T, Rounding::kDown>(act);
    case Rounding::kUp:
      return choose<T, Rounding::kUp>(act);
    default:
      return nullptr;
  }
}

}  // namespace

OpFn directed(Act act, Type type, Rounding rounding) {
  if (type == Type::kF32) return choose_rounding<float>(act, rounding);
  if (type == Type::kF64) return choose_rounding<double>(act, rounding);
  return nullptr;
}

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
