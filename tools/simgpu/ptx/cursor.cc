#include "tools/simgpu/ptx/cursor.h"

#include <bit>
#include <charconv>
#include <cstdlib>
#include <string>

#include "tools/simgpu/ptx/failure.h"
#include "tools/simgpu/ptx/half.h"

namespace plexrl::simgpu::ptx {

using syntax::Operand;

bool Cursor::accept(std::string_view text) {
  if (!at(text)) return false;
  take();
  return true;
}

void Cursor::expect(std::string_view text) {
  if (!accept(text)) {
    fail("expected '" + std::string(text) + "' before '" + std::string(peek().text) + "'");
  }
}

std::string_view Cursor::expect_word(std::string_view what) {
  if (peek().kind != Token::Kind::kWord) {
    fail("expected " + std::string(what) + " before '" + std::string(peek().text) + "'");
  }
  return take().text;
}

std::int64_t Cursor::expect_integer() {
  const Operand number = expect_number();
  if (number.kind != Operand::Kind::kInteger) fail("expected an integer");
  return static_cast<std::int64_t>(number.bits);
}

Operand Cursor::expect_number() {
  bool is_negative = false;
  while (at("-") || at("+")) is_negative ^= take().is("-");
  if (peek().kind != Token::Kind::kNumber) {
    fail("expected a number before '" + std::string(peek().text) + "'");
  }
  std::string_view text = take().text;
  Operand number;
  number.kind = Operand::Kind::kInteger;
  auto parse = [&](std::string_view digits, int base) {
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), number.bits, base);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      fail("'" + std::string(text) + "' is no number");
    }
  };
  const char second = text.size() > 1 ? static_cast<char>(text[1] | 0x20) : '\0';
  const bool is_hex = text[0] == '0' && second == 'x';
  const bool has_bits = text[0] == '0' && ((second == 'f' && text.size() == 10) ||
                                           (second == 'd' && text.size() == 18));
  if (has_bits) {
    parse(text.substr(2), 16);
    number.kind = Operand::Kind::kFloat;
    number.is_single = second == 'f';
    if (is_negative) number.bits ^= 1ull << (number.is_single ? 31 : 63);
    return number;
  }
  if (!is_hex && text.find_first_of(".eE") != std::string_view::npos) {
    const double value = std::strtod(std::string(text).c_str(), nullptr);
    number.kind = Operand::Kind::kFloat;
    number.bits = std::bit_cast<std::uint64_t>(is_negative ? -value : value);
    return number;
  }
  std::string_view digits = text;
  if (digits.back() == 'U' || digits.back() == 'u') digits.remove_suffix(1);
  if (is_hex) {
    parse(digits.substr(2), 16);
  } else if (second == 'b' && text[0] == '0') {
    parse(digits.substr(2), 2);
  } else {
    parse(digits, digits.size() > 1 && digits[0] == '0' ? 8 : 10);
  }
  if (is_negative) number.bits = 0 - number.bits;
  return number;
}

void Cursor::skip_line() {
  const int start = line();
  while (!at_end() && line() == start) take();
}

void Cursor::skip_past_semicolon() {
  while (!at_end() && !at(";")) take();
  expect(";");
}

void Cursor::skip_braces() {
  expect("{");
  for (int depth = 1; depth > 0;) {
    if (at_end()) fail("missing '}'");
    const Token& token = take();
    if (token.is("{")) ++depth;
    if (token.is("}")) --depth;
  }
}

void Cursor::fail(std::string_view message) const {
  throw Failure(LoadError::kInvalidPtx, line(), message);
}

std::uint64_t encode_number(const Operand& number, Type type) {
  if (number.kind == Operand::Kind::kInteger) {
    // An integer constant in a float context: ptxas takes it as a value only for .f32/.f64
    // operands.
    if (type == Type::kF32) {
      return std::bit_cast<std::uint32_t>(
          static_cast<float>(static_cast<std::int64_t>(number.bits)));
    }
    if (type == Type::kF64) {
      return std::bit_cast<std::uint64_t>(
          static_cast<double>(static_cast<std::int64_t>(number.bits)));
    }
    return number.bits;
  }
  const double value =
      number.is_single
          ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(number.bits)))
          : std::bit_cast<double>(number.bits);
  switch (type) {
    case Type::kF64:
      return std::bit_cast<std::uint64_t>(value);
    case Type::kF16:
      return half_from_double(value);
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
      return number.bits;
    default:
      if (number.is_single) return number.bits;
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  }
}

}  // namespace plexrl::simgpu::ptx
