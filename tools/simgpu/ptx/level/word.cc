#include "tools/simgpu/ptx/act.h"
#include "tools/simgpu/ptx/level/lanes.h"
#include "tools/simgpu/ptx/level/level.h"

/// Operations that exist for 32 bits only, and the logic of predicates.
namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

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
PLEXRL_INLINE std::uint32_t bmsk(std::uint32_t position, std::uint32_t length) {
  if (position > 31 || length == 0) return 0;
  const std::uint32_t field = length > 31 ? ~0u : (1u << length) - 1;
  return field << position;
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

}  // namespace

OpFn word(Act act) {
  using U = std::uint32_t;
  using S8 = std::int8_t;
  using U8 = std::uint8_t;
  switch (act) {
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

OpFn predicate_logic(Act act) {
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

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
