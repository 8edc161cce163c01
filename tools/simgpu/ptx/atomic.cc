#include "tools/simgpu/ptx/atomic.h"

#include <bit>

#include "tools/simgpu/ptx/half.h"
#include "tools/simgpu/ptx/level/access.h"

namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

/// What is done with the words of memory. W: the word in memory and register. kNew(old, b, c): the
/// value to write.
struct Atomic {
  template <typename W, W (*kNew)(W, W, W)>
  static const Op* run(Warp& warp, const Op* op, std::uint32_t mask);
};

template <typename W, W (*kNew)(W, W, W)>
PLEXRL_INLINE W update(Warp& warp, W* word, W b, W c) {
  W old = __atomic_load_n(word, __ATOMIC_RELAXED);
  W fresh = kNew(old, b, c);
  while (
      !__atomic_compare_exchange_n(word, &old, fresh, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    fresh = kNew(old, b, c);
  }
  if (fresh != old) {
    warp.has_changed = true;
    ++warp.writes;
  }
  return old;
}

template <typename W, W (*kNew)(W, W, W)>
const Op* Atomic::run(Warp& warp, const Op* op, std::uint32_t mask) {
  Access at;
  if (!resolve(warp, op, mask, sizeof(W), at)) return op + 1;
  const W* const b = source<W>(warp, op->b);
  const W* const c = source<W>(warp, op->c == kNoOperand ? op->b : op->c);
  W* const d = op->d == kNoOperand ? nullptr : destination<W>(warp, op->d);
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    const W old = update<W, kNew>(warp, reinterpret_cast<W*>(at.at(i)), b[i], c[i]);
    if (d != nullptr) d[i] = old;
  }
  return op + 1;
}

/// Calls use(lane, element, word) for each word behind the multicast addresses, the devices of a
/// word one after the other.
template <typename W, typename Use>
PLEXRL_INLINE const Op* each_replica(Warp& warp, const Op* op, std::uint32_t mask, Use use) {
  const AddressSpace& memory = *warp.memory;
  const auto* const a = source<std::uint64_t>(warp, op->a);
  const std::size_t bytes = sizeof(W) * op->count;
  const std::uint64_t in_page = (std::uint64_t{1} << memory.page_shift) - 1;
  std::byte* replicas[AddressSpace::kMaxReplicas];  // of the page that the last lane was in
  std::size_t count = 0;
  std::uint64_t page = 0;
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    const std::uint64_t address = a[i] + static_cast<std::uint64_t>(op->imm);
    if ((address & (bytes - 1)) != 0) {
      raise_fault(warp, op, Fault::Kind::kMisalignedAddress, address);
      break;
    }
    if (memory.find_replicas != nullptr && (count == 0 || page != (address & ~in_page))) {
      page = address & ~in_page;
      count = memory.find_replicas(memory.context, memory.device, page, in_page + 1, replicas);
    }
    if (count == 0) {
      raise_fault(warp, op, Fault::Kind::kIllegalAddress, address);
      break;
    }
    warp.global_bytes += bytes * count;
    for (std::size_t r = 0; r < count; ++r) {
      for (int v = 0; v < op->count; ++v)
        use(i, v, r, reinterpret_cast<W*>(replicas[r] + (address & in_page)) + v);
    }
  }
  return op + 1;
}

/// The register of an element.
PLEXRL_INLINE std::int32_t element(const Op* op, std::int32_t single, int v) {
  return op->count == 1 ? single : op->list[v];
}

struct MultimemRed {
  template <typename W, W (*kNew)(W, W, W)>
  static const Op* run(Warp& warp, const Op* op, std::uint32_t mask) {
    return each_replica<W>(warp, op, mask, [&](int i, int v, std::size_t, W* word) {
      const W b = source<W>(warp, element(op, op->b, v))[i];
      update<W, kNew>(warp, word, b, b);
    });
  }
};

struct MultimemLoad {
  template <typename W, W (*kNew)(W, W, W)>
  static const Op* run(Warp& warp, const Op* op, std::uint32_t mask) {
    return each_replica<W>(warp, op, mask, [&](int i, int v, std::size_t r, const W* word) {
      W& d = destination<W>(warp, element(op, op->d, v))[i];
      const W next = __atomic_load_n(word, __ATOMIC_RELAXED);
      d = r == 0 ? next : kNew(d, next, next);
    });
  }
};

template <typename W>
const Op* multimem_store(Warp& warp, const Op* op, std::uint32_t mask) {
  return each_replica<W>(warp, op, mask, [&](int i, int v, std::size_t, W* word) {
    const W b = source<W>(warp, element(op, op->b, v))[i];
    if (__atomic_exchange_n(word, b, __ATOMIC_RELAXED) == b) return;
    warp.has_changed = true;
    ++warp.writes;
  });
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

template <typename Kind, typename W>
OpFn bitwise(AtomicAct act) {
  switch (act) {
    case AtomicAct::kAnd:
      return Kind::template run<W, bit_and<W>>;
    case AtomicAct::kOr:
      return Kind::template run<W, bit_or<W>>;
    case AtomicAct::kXor:
      return Kind::template run<W, bit_xor<W>>;
    case AtomicAct::kExchange:
      return Kind::template run<W, exchange<W>>;
    case AtomicAct::kCompareSwap:
      return Kind::template run<W, compare_swap<W>>;
    default:
      return nullptr;
  }
}

template <typename Kind, typename W, typename T>
OpFn arithmetic(AtomicAct act) {
  switch (act) {
    case AtomicAct::kAdd:
      return Kind::template run<W, add<W>>;
    case AtomicAct::kMin:
      return Kind::template run<W, minimum<W, T>>;
    case AtomicAct::kMax:
      return Kind::template run<W, maximum<W, T>>;
    default:
      return bitwise<Kind, W>(act);
  }
}

template <typename Kind>
OpFn choose(AtomicAct act, Type type) {
  const bool is_add = act == AtomicAct::kAdd;
  switch (type) {
    case Type::kU32:
      if (act == AtomicAct::kIncrement) return Kind::template run<U32, increment>;
      if (act == AtomicAct::kDecrement) return Kind::template run<U32, decrement>;
      return arithmetic<Kind, U32, U32>(act);
    case Type::kS32:
      return arithmetic<Kind, U32, std::int32_t>(act);
    case Type::kU64:
      return arithmetic<Kind, U64, U64>(act);
    case Type::kS64:
      return arithmetic<Kind, U64, std::int64_t>(act);
    case Type::kB32:
      return bitwise<Kind, U32>(act);
    case Type::kB64:
      return bitwise<Kind, U64>(act);
    case Type::kB16:
      return act == AtomicAct::kCompareSwap || act == AtomicAct::kExchange ? bitwise<Kind, U16>(act)
                                                                           : nullptr;
    case Type::kF32:
      return is_add                        ? Kind::template run<U32, add_float>
             : act == AtomicAct::kExchange ? bitwise<Kind, U32>(act)
                                           : nullptr;
    case Type::kF64:
      return is_add                        ? Kind::template run<U64, add_double>
             : act == AtomicAct::kExchange ? bitwise<Kind, U64>(act)
                                           : nullptr;
    case Type::kF16:
      return is_add ? Kind::template run<U16, add_half> : nullptr;
    case Type::kF16x2:
      return is_add ? Kind::template run<U32, add_half_pair> : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE

namespace plexrl::simgpu::ptx {

OpFn atomic_op(AtomicAct act, Type type) {
  return PLEXRL_PTX_LEVEL::choose<PLEXRL_PTX_LEVEL::Atomic>(act, type);
}

OpFn multimem_red_op(AtomicAct act, Type type) {
  return PLEXRL_PTX_LEVEL::choose<PLEXRL_PTX_LEVEL::MultimemRed>(act, type);
}

OpFn multimem_load_op(AtomicAct act, Type type) {
  return PLEXRL_PTX_LEVEL::choose<PLEXRL_PTX_LEVEL::MultimemLoad>(act, type);
}

OpFn multimem_store_op(Type type) {
  switch (bytes_of(type)) {
    case 4:
      return PLEXRL_PTX_LEVEL::multimem_store<std::uint32_t>;
    case 8:
      return PLEXRL_PTX_LEVEL::multimem_store<std::uint64_t>;
    default:
      return nullptr;
  }
}

}  // namespace plexrl::simgpu::ptx
