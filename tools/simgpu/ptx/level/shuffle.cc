#include "tools/simgpu/ptx/gather.h"
#include "tools/simgpu/ptx/level/level.h"

namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

/// d, e (predicate, may be absent) = shuffle of a by lane b and clamp c.
const Op* shuffle_op(Warp& warp, const Op* op, std::uint32_t mask) {
  if (!gather(warp, op, mask, source<std::uint32_t>(warp, op->list[0]))) return op;
  const auto* const a = source<std::uint32_t>(warp, op->a);
  const auto* const b = source<std::uint32_t>(warp, op->b);
  const auto* const c = source<std::uint32_t>(warp, op->c);
  std::uint32_t from[kLanes];
  std::uint32_t in_range = 0;
  for (int i = 0; i < kLanes; ++i) {
    const std::uint32_t lane = static_cast<std::uint32_t>(i);
    const std::uint32_t step = b[i] & 31;
    const std::uint32_t segment = c[i] >> 8 & 31;
    const std::uint32_t first = lane & segment;
    const std::uint32_t limit = first | (c[i] & 31 & ~segment);
    std::uint32_t j;
    bool ok;
    switch (op->mode) {
      case 0:
        j = lane - step;
        ok = static_cast<std::int32_t>(j) >= static_cast<std::int32_t>(limit);
        break;
      case 1:
        j = lane + step;
        ok = j <= limit;
        break;
      case 2:
        j = lane ^ step;
        ok = j <= limit;
        break;
      default:
        j = first | (step & ~segment);
        ok = j <= limit;
        break;
    }
    from[i] = (ok ? j : lane) & 31;
    in_range |= ok ? kBit[i] : 0u;
  }
  std::uint32_t out[kLanes];
  for (int i = 0; i < kLanes; ++i) out[i] = a[from[i]];
  if (op->d != kNoOperand) blend(destination<std::uint32_t>(warp, op->d), out, mask);
  if (op->e != kNoOperand) set_predicate(warp, op->e, in_range, mask);
  return op + 1;
}

/// mma.sync.m16n8k8.row.col with f16 inputs. list: results d (4 f32 or 2 f16x2), then a (2), b (1),
/// c (as d). Fragments as in the PTX ISA, "Matrix Fragments for mma.m16n8k8": lane l holds rows l/4
/// and l/4 + 8, columns 2(l%4)… The products of a row are added to c in f32, from k = 0 upwards.
template <bool kSingle>
const Op* mma_op(Warp& warp, const Op* op, std::uint32_t mask) {
  const std::int32_t* const list = op->list;
  constexpr int kResults = kSingle ? 4 : 2;
  float a[16][8], b[8][8], c[16][8];
  for (int i = 0; i < kLanes; ++i) {
    const int group = i / 4, column = i % 4 * 2;
    for (int r = 0; r < 2; ++r) {
      const std::uint32_t pair = source<std::uint32_t>(warp, list[kResults + r])[i];
      a[group + 8 * r][column] = float_from_half(static_cast<std::uint16_t>(pair));
      a[group + 8 * r][column + 1] = float_from_half(static_cast<std::uint16_t>(pair >> 16));
    }
    const std::uint32_t pair = source<std::uint32_t>(warp, list[kResults + 2])[i];
    b[column][group] = float_from_half(static_cast<std::uint16_t>(pair));
    b[column + 1][group] = float_from_half(static_cast<std::uint16_t>(pair >> 16));
    for (int r = 0; r < 2; ++r) {
      float* const to = &c[group + 8 * r][column];
      if constexpr (kSingle) {
        to[0] = source<float>(warp, list[kResults + 3 + 2 * r])[i];
        to[1] = source<float>(warp, list[kResults + 4 + 2 * r])[i];
      } else {
        const std::uint32_t two = source<std::uint32_t>(warp, list[kResults + 3 + r])[i];
        to[0] = float_from_half(static_cast<std::uint16_t>(two));
        to[1] = float_from_half(static_cast<std::uint16_t>(two >> 16));
      }
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 8; ++k) {
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int i = 0; i < kLanes; ++i) {
    if ((mask & kBit[i]) == 0) continue;
    const int group = i / 4, column = i % 4 * 2;
    for (int r = 0; r < 2; ++r) {
      const float* const from = &c[group + 8 * r][column];
      if constexpr (kSingle) {
        destination<float>(warp, list[2 * r])[i] = from[0];
        destination<float>(warp, list[2 * r + 1])[i] = from[1];
      } else {
        destination<std::uint32_t>(warp, list[r])[i] =
            static_cast<std::uint32_t>(half_from_float(from[1])) << 16 | half_from_float(from[0]);
      }
    }
  }
  return op + 1;
}

}  // namespace

OpFn shuffle() { return shuffle_op; }
OpFn mma(bool f32_accumulator) { return f32_accumulator ? mma_op<true> : mma_op<false>; }

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
