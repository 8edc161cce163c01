#include "tools/simgpu/ptx/gather.h"
#include "tools/simgpu/ptx/launch.h"
#include "tools/simgpu/ptx/level/lanes.h"

/// Votes, matches and reductions among the lanes that name each other in their member masks.
namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

/// a: predicate (imm 1: negated), b: member mask. mode: 0 all, 1 any, 2 uni (predicate d), 3 ballot
/// (b32 d).
const Op* vote(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto* const members = source<std::uint32_t>(warp, op->b);
  if (!gather(warp, op, mask, members)) return op;
  const std::uint32_t bits = (predicate(warp, op->a) ^ (op->imm != 0 ? kAllLanes : 0)) & mask;
  const int mode = op->mode;
  if (mode == 3) {
    map_lanes<std::uint32_t>(warp, op->d, mask, [=](int i) { return bits & members[i]; });
    return op + 1;
  }
  set_predicate(warp, op->d, collect([=](int i) {
                  const std::uint32_t group = members[i] & mask;
                  const bool all = (bits & group) == group;
                  const bool none = (bits & group) == 0;
                  return mode == 0 ? all : mode == 1 ? !none : all || none;
                }),
                mask);
  return op + 1;
}

/// a: value, b: member mask. mode: 0 any, 1 all (e: predicate). T by imm: 4 or 8 bytes.
template <typename T>
const Op* match_values(Warp& warp, const Op* op, std::uint32_t mask) {
  const T* const a = source<T>(warp, op->a);
  const auto* const members = source<std::uint32_t>(warp, op->b);
  std::uint32_t out[kLanes];
  std::uint32_t same = 0;
  for (int i = 0; i < kLanes; ++i) {
    const std::uint32_t group = members[i] & mask;
    std::uint32_t equal = 0;
    for (int j = 0; j < kLanes; ++j) equal |= a[i] == a[j] ? kBit[j] : 0u;
    equal &= group;
    const bool all = equal == group;
    same |= all ? kBit[i] : 0u;
    out[i] = op->mode == 0 ? equal : all ? group : 0;
  }
  if (op->d != kNoOperand) blend(destination<std::uint32_t>(warp, op->d), out, mask);
  if (op->e != kNoOperand) set_predicate(warp, op->e, same, mask);
  return op + 1;
}

const Op* match(Warp& warp, const Op* op, std::uint32_t mask) {
  if (!gather(warp, op, mask, source<std::uint32_t>(warp, op->b))) return op;
  return op->imm == 8 ? match_values<std::uint64_t>(warp, op, mask)
                      : match_values<std::uint32_t>(warp, op, mask);
}

const Op* active_mask(Warp& warp, const Op* op, std::uint32_t mask) {
  map_lanes<std::uint32_t>(warp, op->d, mask, [=](int) { return mask; });
  return op + 1;
}

/// a: value, b: member mask. mode: 0 add, 1 min, 2 max, 3 and, 4 or, 5 xor; imm 1: signed.
const Op* redux(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto* const members = source<std::uint32_t>(warp, op->b);
  if (!gather(warp, op, mask, members)) return op;
  const auto* const a = source<std::uint32_t>(warp, op->a);
  // A signed order is an unsigned one with the sign bit turned.
  const std::uint32_t turn = op->imm != 0 ? 0x80000000u : 0;
  std::uint32_t out[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    std::uint32_t result = op->mode == 3 || op->mode == 1 ? ~0u : 0;
    for (std::uint32_t left = members[i] & mask; left != 0; left &= left - 1) {
      const std::uint32_t value = a[std::countr_zero(left)];
      switch (op->mode) {
        case 0:
          result += value;
          break;
        case 1:
          result = (value ^ turn) < result ? value ^ turn : result;
          break;
        case 2:
          result = (value ^ turn) > result ? value ^ turn : result;
          break;
        case 3:
          result &= value;
          break;
        case 4:
          result |= value;
          break;
        default:
          result ^= value;
          break;
      }
    }
    out[i] = op->mode == 1 || op->mode == 2 ? result ^ turn : result;
  }
  blend(destination<std::uint32_t>(warp, op->d), out, mask);
  return op + 1;
}

}  // namespace
}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE

namespace plexrl::simgpu::ptx {

OpFn vote_op() { return PLEXRL_PTX_LEVEL::vote; }
OpFn match_op() { return PLEXRL_PTX_LEVEL::match; }
OpFn active_mask_op() { return PLEXRL_PTX_LEVEL::active_mask; }
OpFn redux_op() { return PLEXRL_PTX_LEVEL::redux; }

}  // namespace plexrl::simgpu::ptx
