#include "tools/simgpu/ptx/decoder.h"
#include "tools/simgpu/ptx/launch.h"

/// Moves, conversions and address conversions.
namespace plexrl::simgpu::ptx {

void Decoder::move_width(std::int32_t to, std::int32_t from, int width) {
  emit1(level_.integer(Act::kMove, unsigned_of(width)), to, from);
}

void Decoder::move(Words& words) {
  const Type type = words.take_type();
  if (type == Type::kNone) unknown();
  if (operand(0).kind == Operand::Kind::kVector) return unpack(type);
  if (operand(1).kind == Operand::Kind::kVector) return pack(type);
  const std::int32_t d = write(operand(0), type);
  const Operand& from = operand(1);
  if (d == kNoOperand) return;
  if (type == Type::kPred)
    return emit1(level_.integer(Act::kPredMove, type), d, read_predicate(from));
  if (from.kind == Operand::Kind::kSpecial) {  // straight into the register
    const std::int32_t value = special_register(from.name, register_width(type));
    if (value >= 0 && code_.ops.back().d == value) {
      code_.ops.back().d = d;
      return;
    }
    return move_width(d, value, register_width(type));
  }
  move_width(d, read(from, type), register_width(type));
}

/// mov.b64 d, {a, b}: the first element in the lowest bits.
void Decoder::pack(Type type) {
  const std::vector<Operand>& parts = operand(1).children;
  const int part_bytes = bytes_of(type) / static_cast<int>(parts.empty() ? 1 : parts.size());
  if (part_bytes < 1 || part_bytes * static_cast<int>(parts.size()) != bytes_of(type)) unknown();
  const Type part_type = unsigned_of(part_bytes);
  const int width = register_width(type);
  const std::int32_t d = write(operand(0), type);
  std::int32_t sum = kNoOperand;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::int32_t wide = temp(unsigned_of(width));
    emit1(level_.extend(part_type, register_width(part_type), width), wide,
          read(parts[i], part_type));
    if (i > 0) {
      emit2(level_.integer(Act::kShl, unsigned_of(width)), wide, wide,
            constant(8 * i * static_cast<std::size_t>(part_bytes), 4));
      emit2(level_.integer(Act::kOr, unsigned_of(width)), wide, wide, sum);
    }
    sum = wide;
  }
  move_width(d, sum, width);
}

void Decoder::unpack(Type type) {
  const std::vector<Operand>& parts = operand(0).children;
  const int part_bytes = bytes_of(type) / static_cast<int>(parts.empty() ? 1 : parts.size());
  if (part_bytes < 1 || part_bytes * static_cast<int>(parts.size()) != bytes_of(type)) unknown();
  const Type part_type = unsigned_of(part_bytes);
  const int width = register_width(type);
  const std::int32_t from = read(operand(1), type);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::int32_t d = write(parts[i], part_type);
    if (d == kNoOperand) continue;
    std::int32_t shifted = from;
    if (i > 0) {
      shifted = temp(unsigned_of(width));
      emit2(level_.integer(Act::kShr, unsigned_of(width)), shifted, from,
            constant(8 * i * static_cast<std::size_t>(part_bytes), 4));
    }
    emit1(level_.extend(part_type, width, register_width(part_type)), d, shifted);
  }
}

/// cvt: register widths may exceed the types', so every path ends by extending to the destination's
/// width.
void Decoder::convert(Words& words) {
  const Type from = words.take_type();
  const Type to = words.take_type();
  if (from == Type::kNone || to == Type::kNone) unknown();
  if (to == Type::kF16x2 || to == Type::kBf16x2) return convert_pair(to, words);
  const bool flush = words.take("ftz");
  const bool saturate = words.take("sat");
  const std::size_t integral = words.take_one({"rni", "rmi", "rpi", "rzi"});
  const std::size_t direction = words.take_one({"rn", "rz", "rm", "rp"});
  static constexpr Rounding kRoundings[] = {Rounding::kNearestEven, Rounding::kZero,
                                            Rounding::kDown, Rounding::kUp};
  const Rounding rounding = direction > 3 ? Rounding::kNearestEven : kRoundings[direction];
  if (is_float(from)) return convert_from_float(to, from, saturate, flush, integral, rounding);
  convert_from_integer(to, from, saturate, rounding);
}

std::int32_t Decoder::convert_to_float(std::int32_t from, Type from_type, Type to_type,
                                       Rounding rounding) {
  const std::int32_t result = temp(to_type);
  emit1(level_.convert(to_type, from_type, rounding), result, from);
  return result;
}

void Decoder::convert_from_integer(Type to, Type from, bool saturate, Rounding rounding) {
  const Operand& source = operand(1);
  int source_width = width_of(source);
  std::int32_t a;
  if (source_width == 0) {
    source_width = register_width(from);
    a = read(source, from);
  } else {
    a = source.reg;
    if (source_width < bytes_of(from)) fail("operand has the wrong size");
  }
  const Operand& target = operand(0);
  const int target_width = width_of(target);
  if (target_width < bytes_of(to)) fail("the destination has the wrong size");
  const std::int32_t d = target.reg;
  if (is_integer(to)) {
    if (saturate) {
      const std::int32_t wide = temp(Type::kS64);
      emit1(level_.extend(from, source_width, 8), wide, a);
      emit1(level_.clamp(is_signed(from), to), wide, wide);
      return emit1(level_.extend(to, 8, target_width), d, wide);
    }
    // Narrowing drops the high bits, then extends by the destination's sign; widening extends by
    // the source's sign.
    if (bytes_of(to) <= bytes_of(from))
      return emit1(level_.extend(to, source_width, target_width), d, a);
    emit1(level_.extend(from, source_width, target_width), d, a);
    if (bytes_of(to) < target_width && is_signed(from) != is_signed(to)) {
      emit1(level_.extend(to, target_width, target_width), d, d);
    }
    return;
  }
  const bool is_long = bytes_of(from) == 8;
  const Type middle = is_long ? (is_signed(from) ? Type::kS64 : Type::kU64)
                              : (is_signed(from) ? Type::kS32 : Type::kU32);
  std::int32_t value = a;
  if (source_width != bytes_of(middle) || bytes_of(from) < 4) {
    value = temp(middle);
    emit1(level_.extend(from, source_width, bytes_of(middle)), value, a);
  }
  if (to == Type::kF32 || to == Type::kF64) {
    emit1(level_.convert(to, middle, rounding), d, value);
  } else {
    // Integers that a half can hold are exact in f32; larger ones overflow either way.
    const std::int32_t single = convert_to_float(value, middle, Type::kF32, rounding);
    emit1(level_.convert(to, Type::kF32, rounding), d, single);
  }
  if (saturate) emit1(level_.floating(Act::kSaturate, to), d, d);
}

void Decoder::convert_from_float(Type to, Type from, bool saturate, bool flush,
                                 std::size_t integral, Rounding rounding) {
  static constexpr Act kIntegral[] = {Act::kRoundNearest, Act::kRoundDown, Act::kRoundUp,
                                      Act::kRoundZero};
  std::int32_t a = read(operand(1), from);
  Type work = from;
  if (flush && from == Type::kF32) a = flushed(a, from);
  const Operand& target = operand(0);
  if (is_float(to)) {
    const std::int32_t d = write(target, to);
    if (integral <= 3) {  // to an integral value of the same type
      if (from == Type::kF16 || from == Type::kBf16) {
        const std::int32_t single = convert_to_float(a, from, Type::kF32, Rounding::kNearestEven);
        emit1(level_.floating(kIntegral[integral], Type::kF32), single, single);
        emit1(level_.convert(to, Type::kF32, Rounding::kNearestEven), d, single);
      } else if (from == to) {
        emit1(level_.floating(kIntegral[integral], from), d, a);
      } else {
        unknown();
      }
    } else if (from == to) {
      move_width(d, a, register_width(to));
    } else if (from == Type::kBf16 && to != Type::kF32) {
      const std::int32_t single = convert_to_float(a, from, Type::kF32, rounding);
      emit1(level_.convert(to, Type::kF32, rounding), d, single);
    } else if (from == Type::kF64 && to == Type::kBf16) {
      const std::int32_t single = convert_to_float(a, from, Type::kF32, rounding);
      emit1(level_.convert(to, Type::kF32, rounding), d, single);
    } else {
      emit1(level_.convert(to, from, rounding), d, a);
    }
    if (flush && to == Type::kF32) emit1(level_.floating(Act::kFlush, to), d, d);
    if (saturate) emit1(level_.floating(Act::kSaturate, to), d, d);
    return;
  }
  if (target.kind != Operand::Kind::kRegister || width_of(target) < bytes_of(to))
    fail("the destination has the wrong size");
  if (from == Type::kF16 || from == Type::kBf16) {
    a = convert_to_float(a, from, Type::kF32, Rounding::kNearestEven);
    work = Type::kF32;
  }
  if (integral > 3) integral = 3;
  if (integral != 3) {
    const std::int32_t rounded = temp(work);
    emit1(level_.floating(kIntegral[integral], work), rounded, a);
    a = rounded;
  }
  static constexpr std::pair<Type, Act> kActs[] = {{Type::kS32, Act::kToS32},
                                                   {Type::kU32, Act::kToU32},
                                                   {Type::kS64, Act::kToS64},
                                                   {Type::kU64, Act::kToU64}};
  for (const auto& [type, act] : kActs) {
    if (type == to && width_of(target) == bytes_of(to))
      return emit1(level_.floating(act, work), target.reg, a);
  }
  // Narrow results saturate to their own range.
  const bool is_unsigned_long = to == Type::kU64;
  const std::int32_t wide = temp(Type::kS64);
  emit1(level_.floating(is_unsigned_long ? Act::kToU64 : Act::kToS64, work), wide, a);
  emit1(level_.clamp(!is_unsigned_long, to), wide, wide);
  emit1(level_.extend(to, 8, width_of(target)), target.reg, wide);
}

/// cvt.rn.f16x2.f32 d, a, b: a becomes the upper half.
void Decoder::convert_pair(Type to, Words& words) {
  const bool relu = words.take("relu");
  const std::size_t direction = words.take_one({"rn", "rz"});
  if (direction > 1 || relu) unknown();
  const Rounding rounding = direction == 0 ? Rounding::kNearestEven : Rounding::kZero;
  const Type element = to == Type::kF16x2 ? Type::kF16 : Type::kBf16;
  std::int32_t parts[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int32_t half = temp(Type::kB16);
    emit1(level_.convert(element, Type::kF32, rounding), half, read(operand(i + 1), Type::kF32));
    parts[i] = temp(Type::kB32);
    emit1(level_.extend(Type::kU16, 2, 4), parts[i], half);
  }
  emit2(level_.integer(Act::kShl, Type::kB32), parts[0], parts[0], constant(16, 4));
  emit2(level_.integer(Act::kOr, Type::kB32), write(operand(0), Type::kB32), parts[0], parts[1]);
}

/// Generic addresses of global and const memory are those of the memory; shared, local and
/// parameters have a window.
void Decoder::convert_address(Words& words) {
  const bool to_space = words.take("to");
  std::size_t space = words.take_one(
      {"global", "const", "shared", "local", "param", "shared::cta", "param::entry"});
  const Type type = words.take_type();
  if (space > 6 || bytes_of(type) < 4) unknown();
  if (space == 5) space = 2;
  if (space == 6) space = 4;
  static constexpr std::uint64_t kWindows[] = {0, 0, kSharedWindow, kLocalWindow, kParamWindow};
  const std::int32_t a = read(operand(1), type);
  const std::int32_t d = write(operand(0), type);
  if (kWindows[space] == 0) return move_width(d, a, register_width(type));
  if (bytes_of(type) != 8) unknown();
  emit2(level_.integer(to_space ? Act::kSub : Act::kAdd, type), d, a, constant(kWindows[space], 8));
}

void Decoder::is_address_space(Words& words) {
  static constexpr std::uint64_t kWindows[] = {
      0, kSharedWindow, kLocalWindow, kParamWindow, kSharedWindow, kParamWindow};
  const std::size_t space =
      words.take_one({"global", "shared", "local", "param", "shared::cta", "param::entry"});
  if (words.take("const")) {
    // Const variables are in global memory here: only `global` answers yes.
    return emit1(level_.integer(Act::kPredMove, Type::kPred), write(operand(0), Type::kPred),
                 program_.pool.predicate(false));
  }
  if (space > 5) unknown();
  emit1(address_space_op(), write(operand(0), Type::kPred), read(operand(1), Type::kU64));
  code_.ops.back().imm = static_cast<std::int64_t>(kWindows[space]);
}

}  // namespace plexrl::simgpu::ptx
