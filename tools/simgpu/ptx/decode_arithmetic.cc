#include "tools/simgpu/ptx/decoder.h"

/// Arithmetic and bit operations.
namespace plexrl::simgpu::ptx {
namespace {

bool is_f16_like(Type type) { return is_float(type) && type != Type::kF32 && type != Type::kF64; }

}  // namespace

Decoder::FloatMode Decoder::take_float_mode(Words& words) {
  FloatMode mode;
  mode.flush = words.take("ftz");
  mode.saturate = words.take("sat");
  mode.approximate = words.take("approx") || words.take("full");
  switch (words.take_one({"rn", "rz", "rm", "rp"})) {
    case 1:
      mode.rounding = Rounding::kZero;
      break;
    case 2:
      mode.rounding = Rounding::kDown;
      break;
    case 3:
      mode.rounding = Rounding::kUp;
      break;
    default:
      break;
  }
  return mode;
}

/// d = act(operands 1 …), with flushing before and after and saturation after.
void Decoder::emit_float(Act act, Type type, const FloatMode& mode, int operands) {
  std::int32_t in[3] = {kNoOperand, kNoOperand, kNoOperand};
  // f64 has no flushing (`rcp.approx.ftz.f64` is the only form that says so, and means its own way
  // of computing).
  const bool flush =
      mode.flush && type != Type::kF64 && type != Type::kBf16 && type != Type::kBf16x2;
  for (int i = 0; i < operands; ++i) {
    in[i] = read(operand(static_cast<std::size_t>(i) + 1), type);
    if (flush) in[i] = flushed(in[i], type);
  }
  const std::int32_t d = write(operand(0), type);
  const OpFn fn = mode.rounding == Rounding::kNearestEven
                      ? level_.floating(act, type)
                      : level_.directed(act, type, mode.rounding);
  emit3(fn, d, in[0], in[1], in[2]);
  if (flush) emit1(level_.floating(Act::kFlush, type), d, d);
  if (mode.saturate) emit1(level_.floating(Act::kSaturate, type), d, d);
}

void Decoder::add_sub(Words& words) {
  const bool is_add = words.first().starts_with("add");
  const bool uses_carry = words.first().ends_with("c");
  const bool sets_carry = words.take("cc");
  const Type type = words.take_type();
  if (is_float(type))
    return emit_float(is_add ? Act::kAdd : Act::kSub, type, take_float_mode(words), 2);
  if (words.take("sat")) return saturating_add(is_add ? Act::kAdd : Act::kSub, type);
  const std::int32_t a = read(operand(1), type);
  const std::int32_t b = read(operand(2), type);
  const std::int32_t d = write(operand(0), type);
  if (!uses_carry && !sets_carry)
    return emit2(level_.integer(is_add ? Act::kAdd : Act::kSub, type), d, a, b);
  Op& op = emit(level_.integer(is_add ? Act::kAddCarry : Act::kSubCarry, type));
  op.d = d;
  op.a = a;
  op.b = b;
  op.c = uses_carry ? carry_register() : program_.pool.predicate(false);
  if (sets_carry) op.e = carry_register();
}

void Decoder::saturating_add(Act act, Type type) {
  if (type != Type::kS32) unknown();
  std::int32_t wide[3];
  for (std::int32_t& reg : wide) reg = temp(Type::kS64);
  emit1(level_.extend(type, 4, 8), wide[0], read(operand(1), type));
  emit1(level_.extend(type, 4, 8), wide[1], read(operand(2), type));
  emit2(level_.integer(act, Type::kS64), wide[2], wide[0], wide[1]);
  emit1(level_.clamp(true, type), wide[2], wide[2]);
  emit1(level_.extend(type, 8, 4), write(operand(0), type), wide[2]);
}

void Decoder::multiply(Words& words) {
  const Type type = words.take_type();
  if (is_float(type)) return emit_float(Act::kMulLo, type, take_float_mode(words), 2);
  static constexpr Act kActs[] = {Act::kMulLo, Act::kMulHi, Act::kMulWide};
  const std::size_t part = words.take_one({"lo", "hi", "wide"});
  if (part > 2) unknown();
  const std::int32_t a = read(operand(1), type);
  const std::int32_t b = read(operand(2), type);
  const Type result = part == 2 ? unsigned_of(2 * bytes_of(type)) : type;
  emit2(level_.integer(kActs[part], type), write(operand(0), result), a, b);
}

void Decoder::multiply_add(Words& words) {
  const bool uses_carry = words.first() == "madc";
  const bool sets_carry = words.take("cc");
  const bool relu = words.take("relu");
  const Type type = words.take_type();
  if (is_float(type))
    return emit_float(relu ? Act::kFmaRelu : Act::kFma, type, take_float_mode(words), 3);
  static constexpr Act kActs[] = {Act::kMadLo, Act::kMadHi, Act::kMadWide};
  const std::size_t part = words.take_one({"lo", "hi", "wide"});
  if (part > 2) unknown();
  const bool saturate = words.take("sat");
  const Type result = part == 2 ? unsigned_of(2 * bytes_of(type)) : type;
  const std::int32_t a = read(operand(1), type);
  const std::int32_t b = read(operand(2), type);
  const std::int32_t c = read(operand(3), result);
  const std::int32_t d = write(operand(0), result);
  if (saturate) {  // mad.hi.sat.s32
    if (type != Type::kS32 || part != 1) unknown();
    std::int32_t wide[3];
    for (std::int32_t& reg : wide) reg = temp(Type::kS64);
    const std::int32_t product = temp(type);
    emit2(level_.integer(Act::kMulHi, type), product, a, b);
    emit1(level_.extend(type, 4, 8), wide[0], product);
    emit1(level_.extend(type, 4, 8), wide[1], c);
    emit2(level_.integer(Act::kAdd, Type::kS64), wide[2], wide[0], wide[1]);
    emit1(level_.clamp(true, type), wide[2], wide[2]);
    return emit1(level_.extend(type, 8, 4), d, wide[2]);
  }
  if (!uses_carry && !sets_carry) return emit3(level_.integer(kActs[part], type), d, a, b, c);
  if (part == 2) unknown();
  const std::int32_t product = temp(type);
  emit2(level_.integer(part == 0 ? Act::kMulLo : Act::kMulHi, type), product, a, b);
  Op& op = emit(level_.integer(Act::kAddCarry, type));
  op.d = d;
  op.a = product;
  op.b = c;
  op.c = uses_carry ? carry_register() : program_.pool.predicate(false);
  if (sets_carry) op.e = carry_register();
}

/// 24-bit products: the operands are cut (or sign-extended) to 24 bits first. Only the low half
/// exists here.
void Decoder::multiply24(Words& words) {
  const Type type = words.take_type();
  if (bytes_of(type) != 4 || !words.take("lo")) unknown();
  std::int32_t in[2];
  for (std::size_t i = 0; i < 2; ++i) {
    in[i] = temp(type);
    emit2(level_.integer(Act::kShl, type), in[i], read(operand(i + 1), type), constant(8, 4));
    emit2(level_.integer(Act::kShr, type), in[i], in[i], constant(8, 4));
  }
  const std::int32_t d = write(operand(0), type);
  if (words.first() == "mul24") return emit2(level_.integer(Act::kMulLo, type), d, in[0], in[1]);
  emit3(level_.integer(Act::kMadLo, type), d, in[0], in[1], read(operand(3), type));
}

void Decoder::divide(Words& words) {
  const Type type = words.take_type();
  if (is_float(type)) {
    if (words.first() != "div" || is_f16_like(type)) unknown();
    return emit_float(Act::kDiv, type, take_float_mode(words), 2);
  }
  const Act act = words.first() == "div" ? Act::kDiv : Act::kRem;
  const std::int32_t a = read(operand(1), type);
  const std::int32_t b = read(operand(2), type);
  emit2(level_.integer(act, type), write(operand(0), type), a, b);
}

void Decoder::min_max(Words& words) {
  const bool is_min = words.first() == "min";
  const bool keeps_nan = words.take("NaN");
  const Type type = words.take_type();
  if (is_float(type)) {
    const Act act =
        is_min ? (keeps_nan ? Act::kMinNan : Act::kMin) : (keeps_nan ? Act::kMaxNan : Act::kMax);
    return emit_float(act, type, take_float_mode(words), 2);
  }
  const std::int32_t a = read(operand(1), type);
  const std::int32_t b = read(operand(2), type);
  emit2(level_.integer(is_min ? Act::kMin : Act::kMax, type), write(operand(0), type), a, b);
}

void Decoder::unary_math(Words& words) {
  static constexpr std::pair<std::string_view, Act> kActs[] = {
      {"neg", Act::kNeg}, {"abs", Act::kAbs},  {"sqrt", Act::kSqrt}, {"rsqrt", Act::kRsqrt},
      {"rcp", Act::kRcp}, {"sin", Act::kSin},  {"cos", Act::kCos},   {"lg2", Act::kLg2},
      {"ex2", Act::kEx2}, {"tanh", Act::kTanh}};
  Act act = Act::kNeg;
  for (const auto& [name, value] : kActs) {
    if (name == words.first()) act = value;
  }
  const Type type = words.take_type();
  if (is_float(type)) return emit_float(act, type, take_float_mode(words), 1);
  if (act != Act::kNeg && act != Act::kAbs) unknown();
  emit1(level_.integer(act, type), write(operand(0), type), read(operand(1), type));
}

void Decoder::bitwise(Words& words) {
  static constexpr std::pair<std::string_view, Act> kActs[] = {{"and", Act::kAnd},
                                                               {"or", Act::kOr},
                                                               {"xor", Act::kXor},
                                                               {"not", Act::kNot},
                                                               {"cnot", Act::kCnot}};
  Act act = Act::kAnd;
  for (const auto& [name, value] : kActs) {
    if (name == words.first()) act = value;
  }
  const Type type = words.take_type();
  if (type == Type::kNone) unknown();
  const std::int32_t a = read(operand(1), type);
  const bool is_unary = act == Act::kNot || act == Act::kCnot;
  const std::int32_t b = is_unary ? kNoOperand : read(operand(2), type);
  emit2(level_.integer(act, type), write(operand(0), type), a, b);
}

void Decoder::shift(Words& words) {
  const Type type = words.take_type();
  if (type == Type::kNone) unknown();
  const std::int32_t a = read(operand(1), type);
  const std::int32_t b = read(operand(2), Type::kU32);
  emit2(level_.integer(words.first() == "shl" ? Act::kShl : Act::kShr, type),
        write(operand(0), type), a, b);
}

void Decoder::bit_search(Words& words) {
  const Type type = words.take_type();
  if (type == Type::kNone) unknown();
  Act act = Act::kPopc;
  if (words.first() == "clz") act = Act::kClz;
  if (words.first() == "brev") act = Act::kBrev;
  if (words.first() == "bfind") act = words.take("shiftamt") ? Act::kBfindShift : Act::kBfind;
  const std::int32_t a = read(operand(1), type);
  emit1(level_.integer(act, type), write(operand(0), act == Act::kBrev ? type : Type::kU32), a);
}

void Decoder::bit_field(Words& words) {
  const Type type = words.take_type();
  if (type == Type::kNone) unknown();
  if (words.first() == "bmsk") {
    if (!words.take("clamp")) unknown();
    return emit2(level_.integer(Act::kBmsk, type), write(operand(0), type), read(operand(1), type),
                 read(operand(2), type));
  }
  if (words.first() == "bfe") {
    const std::int32_t a = read(operand(1), type);
    const std::int32_t b = read(operand(2), Type::kU32);
    const std::int32_t c = read(operand(3), Type::kU32);
    return emit3(level_.integer(Act::kBfe, type), write(operand(0), type), a, b, c);
  }
  const std::int32_t a = read(operand(1), type);
  const std::int32_t b = read(operand(2), type);
  const std::int32_t c = read(operand(3), Type::kU32);
  const std::int32_t* const length = keep_list({read(operand(4), Type::kU32)});
  Op& op = emit(level_.integer(Act::kBfi, type));
  op.d = write(operand(0), type);
  op.a = a;
  op.b = b;
  op.c = c;
  op.list = length;
  op.list_size = 1;
}

void Decoder::funnel_shift(Words& words) {
  const bool is_left = words.take("l");
  if (!is_left && !words.take("r")) unknown();
  const bool wraps = words.take("wrap");
  if (!wraps && !words.take("clamp")) unknown();
  const Type type = words.take_type();
  const Act act = is_left ? (wraps ? Act::kShfLeftWrap : Act::kShfLeftClamp)
                          : (wraps ? Act::kShfRightWrap : Act::kShfRightClamp);
  const std::int32_t a = read(operand(1), type);
  const std::int32_t b = read(operand(2), type);
  const std::int32_t c = read(operand(3), Type::kU32);
  emit3(level_.integer(act, type), write(operand(0), type), a, b, c);
}

void Decoder::permute(Words& words) {
  const std::size_t mode = words.take_one({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  const Type type = words.take_type();
  if (bytes_of(type) != 4) unknown();
  const std::int32_t a = read(operand(1), type);
  const std::int32_t b = read(operand(2), type);
  const std::int32_t c = read(operand(3), type);
  emit3(level_.integer(Act::kPrmt, type), write(operand(0), type), a, b, c);
  code_.ops.back().mode = static_cast<std::uint8_t>(mode == std::string_view::npos ? 0 : mode + 1);
}

void Decoder::dot_product(Words& words) {
  const bool is_dp4a = words.first() == "dp4a";
  const bool high = !is_dp4a && words.take("hi");
  if (!is_dp4a && !high && !words.take("lo")) unknown();
  const Type b_type = words.take_type();
  const Type a_type = words.take_type();
  if (bytes_of(a_type) != 4 || bytes_of(b_type) != 4) unknown();
  static constexpr Act kActs[] = {Act::kDp4aUU, Act::kDp4aUS, Act::kDp4aSU, Act::kDp4aSS,
                                  Act::kDp2aUU, Act::kDp2aUS, Act::kDp2aSU, Act::kDp2aSS};
  const int index = (is_dp4a ? 0 : 4) + (is_signed(a_type) ? 2 : 0) + (is_signed(b_type) ? 1 : 0);
  const std::int32_t a = read(operand(1), Type::kB32);
  const std::int32_t b = read(operand(2), Type::kB32);
  const std::int32_t c = read(operand(3), Type::kB32);
  emit3(level_.integer(kActs[index], Type::kU32), write(operand(0), Type::kB32), a, b, c);
  code_.ops.back().imm = high ? 1 : 0;
}

void Decoder::logic3(Words& words) {
  const Type type = words.take_type();
  if (type != Type::kB32 || operand(4).kind != Operand::Kind::kInteger) unknown();
  const std::int32_t a = read(operand(1), type);
  const std::int32_t b = read(operand(2), type);
  const std::int32_t c = read(operand(3), type);
  emit3(level_.integer(Act::kLop3, type), write(operand(0), type), a, b, c);
  code_.ops.back().imm = static_cast<std::int64_t>(operand(4).bits & 0xff);
}

void Decoder::sad(Words& words) {
  const Type type = words.take_type();
  const std::int32_t a = read(operand(1), type);
  const std::int32_t b = read(operand(2), type);
  const std::int32_t c = read(operand(3), type);
  emit3(level_.integer(Act::kSad, type), write(operand(0), type), a, b, c);
}

void Decoder::copysign(Words& words) { emit_float(Act::kCopysign, words.take_type(), {}, 2); }

}  // namespace plexrl::simgpu::ptx
