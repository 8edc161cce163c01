#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tools/simgpu/ptx/half.h"
#include "tools/simgpu/ptx/warp.h"

/// Loops over the 32 lanes of a warp. Only files that are compiled once for each CPU level include
/// this; what they define is in a namespace of the level (PLEXRL_PTX_LEVEL) or always inlined.
#define PLEXRL_PTX_LEVEL_NAMESPACE plexrl::simgpu::ptx::PLEXRL_PTX_LEVEL

namespace PLEXRL_PTX_LEVEL_NAMESPACE {

/// Bit of each lane, as an array: a variable shift is no vector instruction on baseline CPUs.
inline constexpr std::uint32_t kBit[kLanes] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
    1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
    1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
    1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};

template <typename T>
PLEXRL_INLINE const T* source(const Warp& warp, std::int32_t operand) {
  const std::byte* const base = warp.base[operand < 0];
  return reinterpret_cast<const T*>(base + (operand & 0x7fffffff));
}

template <typename T>
PLEXRL_INLINE T* destination(Warp& warp, std::int32_t operand) {
  return reinterpret_cast<T*>(const_cast<std::byte*>(warp.base[0]) + operand);
}

PLEXRL_INLINE std::uint32_t predicate(const Warp& warp, std::int32_t operand) {
  return *source<std::uint32_t>(warp, operand);
}

PLEXRL_INLINE void set_predicate(Warp& warp, std::int32_t operand, std::uint32_t value,
                                 std::uint32_t mask) {
  std::uint32_t* const word = destination<std::uint32_t>(warp, operand);
  *word = (*word & ~mask) | (value & mask);
}

/// Copies the lanes in `mask`.
template <typename T>
PLEXRL_INLINE void blend(T* to, const T* from, std::uint32_t mask) {
  using Word = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
  Word old[kLanes], fresh[kLanes];
  std::memcpy(old, to, sizeof(old));
  std::memcpy(fresh, from, sizeof(fresh));
  for (int i = 0; i < kLanes; ++i) {
    const Word keep = (mask & kBit[i]) != 0 ? Word(0) : static_cast<Word>(~Word(0));
    old[i] = static_cast<Word>((old[i] & keep) | (fresh[i] & static_cast<Word>(~keep)));
  }
  std::memcpy(to, old, sizeof(old));
}

/// d[i] = f(i) for every lane, written to those in `mask` only. `f` is evaluated for all lanes and
/// must not trap.
template <typename D, typename F>
PLEXRL_INLINE void map_lanes(Warp& warp, std::int32_t operand, std::uint32_t mask, F f) {
  D* const d = destination<D>(warp, operand);
  alignas(64) D scratch[kLanes];
  D* const out = mask == kAllLanes ? d : scratch;
  // Operands are the same array as the destination or another one, never a shifted overlap.
#pragma GCC ivdep
  for (int i = 0; i < kLanes; ++i) out[i] = f(i);
  if (mask != kAllLanes) blend(d, scratch, mask);
}

template <typename D, typename A, D (*kFunction)(A)>
const Op* unary(Warp& warp, const Op* op, std::uint32_t mask) {
  const A* const a = source<A>(warp, op->a);
  map_lanes<D>(
      warp, op->d, mask, [=](int i) __attribute__((always_inline)) { return kFunction(a[i]); });
  return op + 1;
}

template <typename D, typename A, typename B, D (*kFunction)(A, B)>
const Op* binary(Warp& warp, const Op* op, std::uint32_t mask) {
  const A* const a = source<A>(warp, op->a);
  const B* const b = source<B>(warp, op->b);
  map_lanes<D>(
      warp, op->d,
      mask, [=](int i) __attribute__((always_inline)) { return kFunction(a[i], b[i]); });
  return op + 1;
}

template <typename D, typename A, typename B, typename C, D (*kFunction)(A, B, C)>
const Op* ternary(Warp& warp, const Op* op, std::uint32_t mask) {
  const A* const a = source<A>(warp, op->a);
  const B* const b = source<B>(warp, op->b);
  const C* const c = source<C>(warp, op->c);
  map_lanes<D>(
      warp, op->d,
      mask, [=](int i) __attribute__((always_inline)) { return kFunction(a[i], b[i], c[i]); });
  return op + 1;
}

/// As a predicate: bit i is f(i).
template <typename F>
PLEXRL_INLINE std::uint32_t collect(F f) {
  std::uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= f(i) ? kBit[i] : 0u;
  return bits;
}

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
