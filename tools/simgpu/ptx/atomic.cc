#include "tools/simgpu/ptx/atomic.h"

#include <bit>

#include "tools/simgpu/ptx/half.h"
#include "tools/simgpu/ptx/level/access.h"

namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

/// W: the word in memory and register. kNew(old, b, c): the value to write.
template <typename W, W (*kNew)(W, W, W)>
const Op* atomic(Warp& warp, const Op* op, std::uint32_t mask) {
  Access at;
  if (!resolve(warp, op, mask, sizeof(W), at)) return op + 1;
  const W* const b = source<W>(warp, op->b);
  const W* const c = source<W>(warp, op->c == kNoOperand ? op->b : op->c);
  W* const d = op->d == kNoOperand ? nullptr : destination<W>(warp, op->d);
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    auto* const word = reinterpret_cast<W*>(at.at(i));
    W old = __atomic_load_n(word, __ATOMIC_RELAXED);
    W fresh = kNew(old, b[i], c[i]);
    while (
        !__atomic_compare_exchange_n(word, &old, fresh, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      fresh = kNew(old, b[i], c[i]);
    }
    if (fresh != old) {
      warp.has_changed = true;
      ++warp.writes;
    }
    if (d != nullptr) d[i] = old;
  }
  return op + 1;
}

template <typename W>
W add(W old, W b, W) {
  return static_cast<W>(old + b);
}
template <typename W, typename T>
W minimum(W old, W b, W) {
  return static_cast<T>(b) < static_cast<T>(old) ? b : old;
}
template <typename W, typename T>
W maximum(W old, W b, W) {
  return static_cast<T>(b) > static_cast<T>(old) ? b : old;
}
template <typename W>
W bit_and(W old, W b, W) {
  return old & b;
}
template <typename W>
W bit_or(W old, W b, W) {
  return old | b;
}
template <typename W>
W bit_xor(W old, W b, W) {
  return old ^ b;
}
template <typename W>
W exchange(W, W b, W) {
  return b;
}
template <typename W>
W compare_swap(W old, W b, W c) {
  return old == b ? c : old;
}
U32 increment(U32 old, U32 b, U32) { return old >= b ? 0 : old + 1; }
U32 decrement(U32 old, U32 b, U32) { return old == 0 || old > b ? b : old - 1; }
U32 add_float(U32 old, U32 b, U32) {
  return std::bit_cast<U32>(std::bit_cast<float>(old) + std::bit_cast<float>(b));
}
U64 add_double(U64 old, U64 b, U64) {
  return std::bit_cast<U64>(std::bit_cast<double>(old) + std::bit_cast<double>(b));
}
U16 add_half(U16 old, U16 b, U16) {
  return half_from_float(float_from_half(old) + float_from_half(b));
}
U32 add_half_pair(U32 old, U32 b, U32) {
  return U32{add_half(static_cast<U16>(old >> 16), static_cast<U16>(b >> 16), 0)} << 16 |
         add_half(static_cast<U16>(old), static_cast<U16>(b), 0);
}

template <typename W>
OpFn bitwise(AtomicAct act) {
  switch (act) {
    case AtomicAct::kAnd:
      return atomic<W, bit_and<W>>;
    case AtomicAct::kOr:
      return atomic<W, bit_or<W>>;
    case AtomicAct::kXor:
      return atomic<W, bit_xor<W>>;
    case AtomicAct::kExchange:
      return atomic<W, exchange<W>>;
    case AtomicAct::kCompareSwap:
      return atomic<W, compare_swap<W>>;
    default:
      return nullptr;
  }
}

template <typename W, typename T>
OpFn arithmetic(AtomicAct act) {
  switch (act) {
    case AtomicAct::kAdd:
      return atomic<W, add<W>>;
    case AtomicAct::kMin:
      return atomic<W, minimum<W, T>>;
    case AtomicAct::kMax:
      return atomic<W, maximum<W, T>>;
    default:
      return bitwise<W>(act);
  }
}

OpFn choose(AtomicAct act, Type type) {
  const bool is_add = act == AtomicAct::kAdd;
  switch (type) {
    case Type::kU32:
      if (act == AtomicAct::kIncrement) return atomic<U32, increment>;
      if (act == AtomicAct::kDecrement) return atomic<U32, decrement>;
      return arithmetic<U32, U32>(act);
    case Type::kS32:
      return arithmetic<U32, std::int32_t>(act);
    case Type::kU64:
      return arithmetic<U64, U64>(act);
    case Type::kS64:
      return arithmetic<U64, std::int64_t>(act);
    case Type::kB32:
      return bitwise<U32>(act);
    case Type::kB64:
      return bitwise<U64>(act);
    case Type::kB16:
      return act == AtomicAct::kCompareSwap || act == AtomicAct::kExchange ? bitwise<U16>(act)
                                                                           : nullptr;
    case Type::kF32:
      return is_add                        ? atomic<U32, add_float>
             : act == AtomicAct::kExchange ? bitwise<U32>(act)
                                           : nullptr;
    case Type::kF64:
      return is_add                        ? atomic<U64, add_double>
             : act == AtomicAct::kExchange ? bitwise<U64>(act)
                                           : nullptr;
    case Type::kF16:
      return is_add ? atomic<U16, add_half> : nullptr;
    case Type::kF16x2:
      return is_add ? atomic<U32, add_half_pair> : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE

namespace plexrl::simgpu::ptx {

OpFn atomic_op(AtomicAct act, Type type) { return PLEXRL_PTX_LEVEL::choose(act, type); }

}  // namespace plexrl::simgpu::ptx
