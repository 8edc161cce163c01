#include "tools/simgpu/ptx/decoder.h"

/// Comparisons and selections.
namespace plexrl::simgpu::ptx {
namespace {

using syntax::Operand;

struct ComparisonName {
  std::string_view name;
  Act act;
  bool swap;  ///< as the mirrored comparison, for types that have only half of them
};

constexpr ComparisonName kComparisons[] = {
    {"eq", Act::kSetEq, false},   {"ne", Act::kSetNe, false},   {"lt", Act::kSetLt, false},
    {"le", Act::kSetLe, false},   {"gt", Act::kSetLt, true},    {"ge", Act::kSetLe, true},
    {"lo", Act::kSetLt, false},   {"ls", Act::kSetLe, false},   {"hi", Act::kSetLt, true},
    {"hs", Act::kSetLe, true},    {"equ", Act::kSetEqu, false}, {"neu", Act::kSetNeu, false},
    {"ltu", Act::kSetLtu, false}, {"leu", Act::kSetLeu, false}, {"gtu", Act::kSetLtu, true},
    {"geu", Act::kSetLeu, true},  {"num", Act::kSetNum, false}, {"nan", Act::kSetNan, false}};

bool is_pair(Type type) { return type == Type::kF16x2 || type == Type::kBf16x2; }
Type element_of(Type type) {
  return type == Type::kF16x2 ? Type::kF16 : type == Type::kBf16x2 ? Type::kBf16 : type;
}

}  // namespace

Decoder::Comparison Decoder::take_comparison(Words& words, Type) {
  for (const ComparisonName& known : kComparisons) {
    if (words.take(known.name)) return {known.act, known.swap};
  }
  unknown();
}

std::int32_t Decoder::emit_comparison(const Comparison& comparison, Type type, std::int32_t a,
                                      std::int32_t b) {
  const std::int32_t result = temp(Type::kPred);
  const OpFn fn =
      is_float(type) ? level_.floating(comparison.act, type) : level_.integer(comparison.act, type);
  emit2(fn, result, comparison.swap ? b : a, comparison.swap ? a : b);
  return result;
}

/// `which` from take_one({"and", "or", "xor"}): the comparison combined with the predicate operand.
std::int32_t Decoder::combine(std::int32_t result, std::size_t which, std::size_t operand_index) {
  static constexpr Act kActs[] = {Act::kPredAnd, Act::kPredOr, Act::kPredXor};
  if (which > 2) return result;
  const std::int32_t combined = temp(Type::kPred);
  emit2(level_.integer(kActs[which], Type::kPred), combined, result,
        read_predicate(operand(operand_index)));
  return combined;
}

std::int32_t Decoder::half_of_pair(std::int32_t pair, bool is_high) {
  std::int32_t from = pair;
  if (is_high) {
    from = temp(Type::kB32);
    emit2(level_.integer(Act::kShr, Type::kU32), from, pair, constant(16, 4));
  }
  const std::int32_t half = temp(Type::kB16);
  emit1(level_.extend(Type::kU16, 4, 2), half, from);
  return half;
}

void Decoder::set_predicate(Words& words) {
  const Type type = words.take_type();
  if (type == Type::kNone) unknown();
  const Comparison comparison = take_comparison(words, type);
  const std::size_t which = words.take_one({"and", "or", "xor"});
  const bool flush = words.take("ftz");
  std::int32_t a = read(operand(1), type);
  std::int32_t b = read(operand(2), type);
  const Operand& first = operand(0);
  const OpFn copy = level_.integer(Act::kPredMove, Type::kPred);
  if (is_pair(type)) {
    for (int half = 0; half < 2; ++half) {
      if (half == 1 && first.other.empty()) break;
      const std::int32_t result = emit_comparison(
          comparison, element_of(type), half_of_pair(a, half == 1), half_of_pair(b, half == 1));
      const std::int32_t to = write(half == 0 ? first : first.other[0], Type::kPred);
      if (to != kNoOperand) emit1(copy, to, combine(result, which, 3));
    }
    return;
  }
  if (flush && (type == Type::kF32 || type == Type::kF16)) {
    a = flushed(a, type);
    b = flushed(b, type);
  }
  const std::int32_t d = write(first, Type::kPred);
  if (which > 2 && first.other.empty() && d != kNoOperand) {  // the usual form: no temporary
    const OpFn fn = is_float(type) ? level_.floating(comparison.act, type)
                                   : level_.integer(comparison.act, type);
    return emit2(fn, d, comparison.swap ? b : a, comparison.swap ? a : b);
  }
  const std::int32_t result = emit_comparison(comparison, type, a, b);
  std::int32_t inverse = kNoOperand;
  if (!first.other.empty()) {
    const std::int32_t negated = temp(Type::kPred);
    emit1(level_.integer(Act::kPredNot, Type::kPred), negated, result);
    inverse = combine(negated, which, 3);
  }
  const std::int32_t combined = combine(result, which, 3);
  if (d != kNoOperand) emit1(copy, d, combined);
  if (inverse != kNoOperand) {
    const std::int32_t q = write(first.other[0], Type::kPred);
    if (q != kNoOperand) emit1(copy, q, inverse);
  }
}

void Decoder::set_value(Words& words) {
  const Type type = words.take_type();
  const Type result_type = words.take_type();
  if (type == Type::kNone || result_type == Type::kNone) unknown();
  const Comparison comparison = take_comparison(words, type);
  const std::size_t which = words.take_one({"and", "or", "xor"});
  const bool flush = words.take("ftz");
  std::int32_t a = read(operand(1), type);
  std::int32_t b = read(operand(2), type);
  const std::int32_t d = write(operand(0), result_type);
  if (is_pair(type)) {
    const bool is_bits = is_integer(result_type);
    const std::uint64_t one = is_bits ? 0xffff : type == Type::kF16x2 ? 0x3c00 : 0x3f80;
    std::int32_t parts[2];
    for (int half = 0; half < 2; ++half) {
      const std::int32_t result = emit_comparison(
          comparison, element_of(type), half_of_pair(a, half == 1), half_of_pair(b, half == 1));
      parts[half] = temp(Type::kB32);
      emit3(level_.integer(Act::kSelect, Type::kB32), parts[half],
            constant(half == 1 ? one << 16 : one, 4), constant(0, 4), combine(result, which, 3));
    }
    return emit2(level_.integer(Act::kOr, Type::kB32), d, parts[0], parts[1]);
  }
  if (flush && (type == Type::kF32 || type == Type::kF16)) {
    a = flushed(a, type);
    b = flushed(b, type);
  }
  const std::int32_t combined = combine(emit_comparison(comparison, type, a, b), which, 3);
  const int width = register_width(result_type);
  std::uint64_t one = ~0ull;
  if (result_type == Type::kF32) one = 0x3f800000;
  if (result_type == Type::kF16) one = 0x3c00;
  if (result_type == Type::kBf16) one = 0x3f80;
  emit3(level_.integer(Act::kSelect, unsigned_of(width)), d, constant(one, width),
        constant(0, width), combined);
}

void Decoder::select(Words& words) {
  const Type type = words.take_type();
  if (type == Type::kNone) unknown();
  const std::int32_t a = read(operand(1), type);
  const std::int32_t b = read(operand(2), type);
  const std::int32_t c = read_predicate(operand(3));
  const Type bits = type == Type::kPred ? type : unsigned_of(register_width(type));
  emit3(level_.integer(Act::kSelect, bits), write(operand(0), type), a, b, c);
}

void Decoder::select_by_sign(Words& words) {
  const Type by = words.take_type();
  const Type type = words.take_type();
  if (type == Type::kNone || (by != Type::kS32 && by != Type::kF32)) unknown();
  words.take("ftz");  // -subnormal and 0 select alike only when flushed
  const std::int32_t a = read(operand(1), type);
  const std::int32_t b = read(operand(2), type);
  const std::int32_t c = read(operand(3), by);
  emit3(level_.integer(by == Type::kS32 ? Act::kSlct : Act::kSlctFloat,
                       unsigned_of(register_width(type))),
        write(operand(0), type), a, b, c);
}

void Decoder::test_property(Words& words) {
  const Type type = words.take_type();
  const std::size_t mode =
      words.take_one({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  if (mode > 5 || !is_float(type)) unknown();
  emit1(level_.floating(Act::kTestp, type), write(operand(0), Type::kPred), read(operand(1), type));
  code_.ops.back().mode = static_cast<std::uint8_t>(mode);
}

}  // namespace plexrl::simgpu::ptx
