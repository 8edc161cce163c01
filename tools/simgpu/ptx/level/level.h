#pragma once

#include "tools/simgpu/ptx/act.h"
#include "tools/simgpu/ptx/level/lanes.h"

/// What the files of one CPU level offer each other; act.h describes them.
namespace PLEXRL_PTX_LEVEL_NAMESPACE {

OpFn integer(Act act, Type type);
OpFn bit_field(Act act, Type type);  ///< part of `integer`
OpFn word(Act act);                  ///< part of `integer`: 32 bits only
OpFn predicate_logic(Act act);       ///< part of `integer`
OpFn floating(Act act, Type type);
OpFn approximate(Act act, Type type);  ///< part of `floating`
OpFn half(Act act, Type type);         ///< part of `floating`: f16, f16x2, bf16, bf16x2
OpFn directed(Act act, Type type, Rounding rounding);
/// Rounding floats to integral values and to integers; part of `floating` for the decoder.
OpFn integral(Act act, Type from);
OpFn extend(Type from, int source_width, int result_width);
OpFn clamp(bool is_signed, Type to);
OpFn convert(Type to, Type from, Rounding rounding);
OpFn load(Type type, int register_width);
OpFn store(int bytes, int register_width);
OpFn branch();
OpFn shuffle();
OpFn mma(bool f32_accumulator);
Event run(Warp& warp, std::uint64_t limit);

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
