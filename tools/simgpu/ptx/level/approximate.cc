#include "tools/simgpu/ptx/level/level.h"

/// The approximate functions of PTX, by polynomials of our own: fixed sequences of additions and
/// multiplications, so the same bits on every CPU. Errors (relative unless said): ex2 and lg2 below
/// 2^-21, sin and cos below 2^-22 absolute for arguments up to 2^20, tanh below 2^-20. The PTX ISA
/// allows 2^-20 and more.
namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

PLEXRL_INLINE float power_of_two(std::int32_t n) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

PLEXRL_INLINE float ex2(float x) {
  float limited = x < -160.0f ? -160.0f : x;
  limited = limited > 130.0f ? 130.0f : limited;
  constexpr float kMagic = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer
  const float rounded = (limited + kMagic) - kMagic;
  const float f = limited - rounded;
  float p = 1.525273380405984e-5f;
  p = p * f + 1.540353039338161e-4f;
  p = p * f + 1.333355814642844e-3f;
  p = p * f + 9.618129107628477e-3f;
  p = p * f + 5.550410866482158e-2f;
  p = p * f + 2.402265069591007e-1f;
  p = p * f + 6.931471805599453e-1f;
  p = p * f + 1.0f;
  const auto n =
      static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(limited + kMagic) - 0x4b400000u);
  // Two steps, so that results below the smallest normal float are rounded once, at the end.
  const std::int32_t half = n >> 1;
  return p * power_of_two(half) * power_of_two(n - half);
}

PLEXRL_INLINE float lg2(float x) {
  const bool is_small = x < 0x1p-126f;
  const float scaled = is_small ? x * 0x1p23f : x;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(scaled);
  // The mantissa in [sqrt(1/2), sqrt(2)): 0x3f3504f3 is sqrt(1/2).
  const std::uint32_t shifted = bits - 0x3f3504f3u;
  const auto exponent = static_cast<std::int32_t>(shifted) >> 23;
  const float m = std::bit_cast<float>((shifted & 0x7fffffu) + 0x3f3504f3u);
  const float s = (m - 1.0f) / (m + 1.0f);
  const float z = s * s;
  float p = 0.3205989f;     // 2/(9 ln 2)
  p = p * z + 0.41219859f;  // 2/(7 ln 2)
  p = p * z + 0.57707802f;
  p = p * z + 0.96179669f;
  p = p * z + 2.8853901f;
  float r = static_cast<float>(exponent - (is_small ? 23 : 0)) + p * s;
  r = x == 0 ? -__builtin_inff() : r;
  r = x > 3.4028235e38f ? x : r;
  return x < 0 || x != x ? __builtin_nanf("") : r;
}

/// `quarter`: 0 for the sine, 1 for the cosine.
PLEXRL_INLINE float sine(float x, std::uint64_t quarter) {
  constexpr double kMagic = 6755399441055744.0;  // 1.5 · 2^52
  const double wide = x;
  const double turned = wide * 0.6366197723675814 + kMagic;
  const double turns = turned - kMagic;
  const double r = (wide - turns * 1.5707963267948966) - turns * 6.123233995736766e-17;
  const std::uint64_t quadrant = std::bit_cast<std::uint64_t>(turned) + quarter;
  const double z = r * r;
  double s = 2.7557319e-6;
  s = s * z - 1.984126984126984e-4;
  s = s * z + 8.333333333333333e-3;
  s = s * z - 1.666666666666667e-1;
  s = r + r * z * s;
  double c = -2.755731922398589e-7;
  c = c * z + 2.48015873015873e-5;
  c = c * z - 1.388888888888889e-3;
  c = c * z + 4.166666666666666e-2;
  c = c * z - 0.5;
  c = 1.0 + z * c;
  const double value = (quadrant & 1) != 0 ? c : s;
  const float result = static_cast<float>((quadrant & 2) != 0 ? -value : value);
  return x - x == 0 ? result : __builtin_nanf("");
}
PLEXRL_INLINE float sin_approx(float x) { return x == 0 ? x : sine(x, 0); }
PLEXRL_INLINE float cos_approx(float x) { return sine(x, 1); }

PLEXRL_INLINE float tanh_approx(float x) {
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(x) & 0x80000000u;
  const float magnitude = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) ^ sign);
  const double limited = magnitude > 20.0f ? 20.0 : static_cast<double>(magnitude);
  // e^(2x) = 2^(n + f)
  constexpr double kMagic = 6755399441055744.0;
  const double scaled = limited * 2.885390081777927;
  const double turned = scaled + kMagic;
  const double f = (scaled - (turned - kMagic)) * 0.6931471805599453;
  double p = 2.48015873015873e-5;
  p = p * f + 1.984126984126984e-4;
  p = p * f + 1.388888888888889e-3;
  p = p * f + 8.333333333333333e-3;
  p = p * f + 4.166666666666666e-2;
  p = p * f + 1.666666666666667e-1;
  p = p * f + 0.5;
  p = p * f + 1.0;
  p = p * f + 1.0;
  const std::uint64_t n =
      std::bit_cast<std::uint64_t>(turned) - std::bit_cast<std::uint64_t>(kMagic);
  const double power = p * std::bit_cast<double>((n + 1023) << 52);
  float r = static_cast<float>(1.0 - 2.0 / (power + 1.0));
  r = magnitude < 1e-3f ? magnitude - magnitude * magnitude * magnitude * 0.33333334f : r;
  r = x != x ? x : r;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(r) | sign);
}

/// Through f32; one more rounding than a half needs, within the bounds of the approximate forms.
template <float (*kFunction)(float)>
PLEXRL_INLINE std::uint16_t on_half(std::uint16_t a) {
  return half_from_float(kFunction(float_from_half(a)));
}
template <float (*kFunction)(float)>
PLEXRL_INLINE std::uint32_t on_pair(std::uint32_t a) {
  return std::uint32_t{on_half<kFunction>(static_cast<std::uint16_t>(a >> 16))} << 16 |
         on_half<kFunction>(static_cast<std::uint16_t>(a));
}

}  // namespace

OpFn approximate(Act act, Type type) {
  using U16 = std::uint16_t;
  using U32 = std::uint32_t;
  if (type == Type::kF32) {
    switch (act) {
      case Act::kEx2:
        return unary<float, float, ex2>;
      case Act::kLg2:
        return unary<float, float, lg2>;
      case Act::kSin:
        return unary<float, float, sin_approx>;
      case Act::kCos:
        return unary<float, float, cos_approx>;
      case Act::kTanh:
        return unary<float, float, tanh_approx>;
      default:
        return nullptr;
    }
  }
  if (type == Type::kF16) {
    if (act == Act::kEx2) return unary<U16, U16, on_half<ex2>>;
    if (act == Act::kTanh) return unary<U16, U16, on_half<tanh_approx>>;
  }
  if (type == Type::kF16x2) {
    if (act == Act::kEx2) return unary<U32, U32, on_pair<ex2>>;
    if (act == Act::kTanh) return unary<U32, U32, on_pair<tanh_approx>>;
  }
  return nullptr;
}

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
