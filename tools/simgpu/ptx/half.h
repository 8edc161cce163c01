#pragma once

#include <bit>
#include <cstdint>

/// binary16 and bfloat16 by integer arithmetic: the same bits on every CPU, with or without F16C.
/// Every function is forced inline, so that the executor's files for newer CPUs never lend their
/// copy to the baseline.
namespace plexrl::simgpu::ptx {

#define PLEXRL_INLINE [[gnu::always_inline]] inline

enum class Rounding : std::uint8_t { kNearestEven, kZero, kDown, kUp };

PLEXRL_INLINE float float_from_half(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7fffu;
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  // Subnormals: the magnitude times 2^-24 is exact.
  const std::uint32_t small = std::bit_cast<std::uint32_t>(
      static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
  const std::uint32_t normal = (magnitude << 13) + ((127u - 15u) << 23);
  const std::uint32_t special = (magnitude << 13) | 0x7f800000u;
  std::uint32_t bits = magnitude < 0x400u ? small : normal;
  bits = magnitude >= 0x7c00u ? special : bits;
  return std::bit_cast<float>(bits | sign);
}

/// Any double, rounded once.
PLEXRL_INLINE std::uint16_t half_from_double(double value,
                                             Rounding rounding = Rounding::kNearestEven) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 63 << 15);
  const std::uint64_t magnitude = bits & 0x7fffffffffffffffull;
  if (magnitude > 0x7ff0000000000000ull) return 0x7fff;
  if (magnitude == 0x7ff0000000000000ull) return sign | 0x7c00;
  const int exponent = static_cast<int>(magnitude >> 52) - 1023;
  // Bits below the last kept one: 42 for normal halves, more for subnormal ones.
  const int drop = exponent >= -14 ? 42 : 42 + (-14 - exponent);
  const std::uint64_t mantissa = (magnitude & 0xfffffffffffffull) | (1ull << 52);
  std::uint64_t kept = drop > 63 ? 0 : mantissa >> drop;
  const std::uint64_t rest = drop > 63 ? mantissa : mantissa & ((1ull << drop) - 1);
  const std::uint64_t middle = drop > 63 ? ~0ull : 1ull << (drop - 1);
  if (magnitude == 0) return sign;
  bool up = false;
  switch (rounding) {
    case Rounding::kNearestEven:
      up = rest > middle || (rest == middle && (kept & 1));
      break;
    case Rounding::kZero:
      break;
    case Rounding::kDown:
      up = sign != 0 && rest != 0;
      break;
    case Rounding::kUp:
      up = sign == 0 && rest != 0;
      break;
  }
  kept += up;
  std::uint64_t half =
      exponent >= -14 ? kept + (static_cast<std::uint64_t>(exponent + 14) << 10) : kept;
  if (exponent > 15 || half >= 0x7c00) {
    const bool to_infinity = rounding == Rounding::kNearestEven ||
                             (rounding == Rounding::kUp && sign == 0) ||
                             (rounding == Rounding::kDown && sign != 0);
    half = to_infinity ? 0x7c00 : 0x7bff;
  }
  return static_cast<std::uint16_t>(half | sign);
}

/// Round to nearest even, in a form that compilers vectorise.
PLEXRL_INLINE std::uint16_t half_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t normal =
      (magnitude - ((127u - 15u) << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
  // Adding 0.5 moves the last half-subnormal bit to the float's last bit, so the addition rounds
  // for us.
  const std::uint32_t small =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  std::uint32_t half = magnitude < 0x38800000u ? small : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? 0x7fffu : half | sign;
  return static_cast<std::uint16_t>(half);
}

PLEXRL_INLINE float float_from_bf16(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

PLEXRL_INLINE std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

}  // namespace plexrl::simgpu::ptx
