#pragma once

#include <cstdint>

#include "tools/simgpu/ptx/half.h"
#include "tools/simgpu/ptx/program.h"
#include "tools/simgpu/ptx/type.h"
#include "tools/simgpu/ptx/warp.h"

namespace plexrl::simgpu::ptx {

/// What an operation does. With a type it names one function of a CPU level; the decoder lowers
/// each PTX instruction to one or more of these. Unless said otherwise: d = act(a, b, c), all of
/// the operation's type.
enum class Act : std::uint8_t {
  // Bits and moves.
  kMove,
  kNot,
  kAnd,
  kOr,
  kXor,
  kSelect,  // select: d = c (predicate) ? a : b
  // Integers.
  kAdd,
  kSub,
  kMulLo,
  kMulHi,
  kMulWide,
  kDiv,
  kRem,
  kMin,
  kMax,
  kNeg,
  kAbs,
  kMadLo,
  kMadHi,
  kMadWide,
  kSad,
  kShl,
  kShr,
  kPopc,
  kClz,
  kBrev,
  kBfind,
  kBfindShift,
  kBfe,
  kBfi,
  kCnot,
  kAddCarry,
  kSubCarry,  // d = a ± b ± c (predicate), e: carry or borrow out
  kShfLeftWrap,
  kShfRightWrap,
  kShfLeftClamp,
  kShfRightClamp,
  kPrmt,
  kDp4aUU,
  kDp4aUS,
  kDp4aSU,
  kDp4aSS,
  kDp2aUU,
  kDp2aUS,
  kDp2aSU,
  kDp2aSS,  // dp2a: imm 1 takes the high half
  kLop3,
  kBmsk,
  kSlct,
  kSlctFloat,  // slct: d = c >= 0 ? a : b, c is s32 or f32
  // Comparisons: d is a predicate.
  kSetEq,
  kSetNe,
  kSetLt,
  kSetLe,
  kSetGt,
  kSetGe,
  kSetEqu,
  kSetNeu,
  kSetLtu,
  kSetLeu,
  kSetGtu,
  kSetGeu,
  kSetNum,
  kSetNan,
  // Predicates: d, a, b are predicates.
  kPredMove,
  kPredNot,
  kPredAnd,
  kPredOr,
  kPredXor,
  kPredSelect,
  // Floats.
  kFma,
  kSqrt,
  kRsqrt,
  kRcp,
  kSin,
  kCos,
  kLg2,
  kEx2,
  kTanh,
  kFlush,
  kSaturate,
  kCopysign,
  kMinNan,
  kMaxNan,
  kTestp,  // testp: mode says which; d is a predicate
  kFmaRelu,
  // Conversions; `from` is the operation's type.
  kToS32,
  kToU32,
  kToS64,
  kToU64,  // float to integer, cut and saturated
  kRoundNearest,
  kRoundDown,
  kRoundUp,
  kRoundZero,  // float to an integral float
};

/// The functions of one CPU level. Each returns nullptr when there is none: the instruction is then
/// unsupported.
struct Level {
  const char* name;
  RunFn run;
  OpFn (*integer)(Act act, Type type);
  OpFn (*floating)(Act act, Type type);
  /// add, sub, mul, fma, div, sqrt, rcp of f32 or f64 in another direction than to nearest.
  OpFn (*directed)(Act act, Type type, Rounding rounding);
  /// Sign- or zero-extends the low bits (type `from`) of a register of `source_width` bytes to one
  /// of `result_width`.
  OpFn (*extend)(Type from, int source_width, int result_width);
  /// Clamps a 64-bit integer of the given signedness into the range of `to`.
  OpFn (*clamp)(bool is_signed, Type to);
  /// Between 32/64-bit integers and f32/f64, f32/f64 and f16, f32 and f64, f32 and bf16.
  OpFn (*convert)(Type to, Type from, Rounding rounding);
  /// `type` as in memory, register width in bytes.
  OpFn (*load)(Type type, int register_width);
  OpFn (*store)(int bytes, int register_width);
  OpFn (*branch)();
  OpFn (*shuffle)();  ///< mode: 0 up, 1 down, 2 bfly, 3 idx; a value, b lane, c clamp, list[0]
                      ///< member mask
  OpFn (*mma)(bool f32_accumulator);
};

/// The best level that this CPU runs. PLEXRL_PTX_LEVEL=baseline in the environment picks the
/// baseline, for tests.
const Level& best_level();
/// All levels that this CPU runs, baseline first.
const Level* const* levels(int* count);

/// Which memory an operation accesses (Op::mode of loads, stores and atomics).
enum class Place : std::uint8_t { kGlobal, kShared, kLocal, kFrameParam, kKernelParam };
/// Set in Op::mode when the address register has 32 bits.
inline constexpr std::uint8_t kShortAddress = 0x10;

}  // namespace plexrl::simgpu::ptx
