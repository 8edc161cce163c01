#include "tools/simgpu/ptx/declaration.h"

#include <algorithm>
#include <bit>
#include <string>

#include "tools/simgpu/ptx/failure.h"

namespace plexrl::simgpu::ptx {
namespace {

using syntax::Initial;
using syntax::Operand;
using syntax::Space;

constexpr std::size_t kMaxElements = std::size_t{1} << 36;
constexpr int kMaxDepth = 32;  ///< of nested braces in an initialiser

Space space_from_name(Cursor& in, std::string_view name) {
  if (name == ".global") return Space::kGlobal;
  if (name == ".const") return Space::kConst;
  if (name == ".shared") return Space::kShared;
  if (name == ".local") return Space::kLocal;
  if (name == ".param") return Space::kParam;
  if (name == ".reg") return Space::kReg;
  in.fail(std::string(name) + " is no state space");
}

/// Alignment, vector width, attributes and type: all that stands between the state space and the
/// name.
void parse_type(Cursor& in, syntax::Variable& variable, std::size_t& vector) {
  vector = 1;
  while (in.peek().kind == Token::Kind::kWord && in.peek().text[0] == '.') {
    const std::string_view word = in.take().text;
    if (word == ".align") {
      variable.alignment = static_cast<std::size_t>(in.expect_integer());
      if (!std::has_single_bit(variable.alignment) || variable.alignment > 65536) {
        in.fail("bad .align");
      }
    } else if (word == ".attribute") {
      in.expect("(");
      while (!in.accept(")")) {
        if (in.at_end()) in.fail("missing ')'");
        if (in.take().text == ".managed") variable.is_managed = true;
      }
    } else if (word == ".ptr") {
      // What a pointer parameter points to: `.ptr .global .align 4`. No effect on execution.
      while (in.at(".global") || in.at(".const") || in.at(".local") || in.at(".shared")) in.take();
      if (in.accept(".align")) in.expect_integer();
    } else if (word == ".v2" || word == ".v4") {
      vector = word == ".v2" ? 2 : 4;
    } else {
      variable.type = type_from_name(word.substr(1));
      if (variable.type == Type::kNone) in.fail("unknown type " + std::string(word));
    }
  }
  if (variable.type == Type::kNone) in.fail("missing type");
}

/// Name and array dimensions. An open dimension (`[]`) gives 0 elements.
void parse_name(Cursor& in, syntax::Variable& variable, std::size_t vector) {
  variable.line = in.line();
  variable.name = in.expect_word("a name");
  variable.elements = vector;
  while (in.accept("[")) {
    if (in.accept("]")) {
      variable.elements = 0;
    } else {
      const std::int64_t count = in.expect_integer();
      if (count < 0 || count > static_cast<std::int64_t>(kMaxElements)) in.fail("bad array size");
      variable.elements *= static_cast<std::size_t>(count);
      if (variable.elements > kMaxElements) in.fail("array is too large");
      in.expect("]");
    }
  }
  variable.alignment = std::max<std::size_t>(
      variable.alignment, static_cast<std::size_t>(bytes_of(variable.type)) * vector);
}

Initial parse_symbol_initial(Cursor& in) {
  Initial initial;
  std::string_view name = in.expect_word("a symbol");
  if (name == "generic" && in.accept("(")) {
    initial.symbol = in.expect_word("a symbol");
    if (in.at("+") || in.at("-")) initial.addend = in.expect_integer();
    in.expect(")");
  } else {
    initial.symbol = name;
  }
  if (in.at("+") || in.at("-")) initial.addend = in.expect_integer();
  return initial;
}

void parse_initial(Cursor& in, const syntax::Variable& variable, std::vector<Initial>& out,
                   int depth = 0) {
  if (in.accept("{")) {
    if (depth > kMaxDepth) in.fail("braces are nested too deeply");
    while (!in.accept("}")) {
      parse_initial(in, variable, out, depth + 1);
      if (!in.at("}")) in.expect(",");
    }
    return;
  }
  if (in.peek().kind == Token::Kind::kWord) {
    out.push_back(parse_symbol_initial(in));
    return;
  }
  const Operand number = in.expect_number();
  if (in.accept("(")) {  // 0xFF00(symbol): one byte of an address
    Initial initial = parse_symbol_initial(in);
    in.expect(")");
    initial.is_byte_of_symbol = true;
    initial.byte_mask_shift = static_cast<std::uint8_t>(std::countr_zero(number.bits));
    out.push_back(initial);
    return;
  }
  out.push_back(Initial{encode_number(number, variable.type), {}, 0, 0, false});
}

}  // namespace

std::vector<syntax::Variable> parse_variables(Cursor& in, std::string_view space) {
  syntax::Variable common;
  common.space = space_from_name(in, space);
  std::size_t vector = 1;
  parse_type(in, common, vector);
  std::vector<syntax::Variable> variables;
  do {
    syntax::Variable variable = common;
    parse_name(in, variable, vector);
    if (in.accept("=")) {
      parse_initial(in, variable, variable.initial);
      if (variable.elements == 0) variable.elements = variable.initial.size();
    }
    variables.push_back(std::move(variable));
  } while (in.accept(","));
  in.expect(";");
  return variables;
}

syntax::Variable parse_formal(Cursor& in) {
  syntax::Variable variable;
  variable.space = space_from_name(in, in.expect_word("a state space"));
  std::size_t vector = 1;
  parse_type(in, variable, vector);
  parse_name(in, variable, vector);
  return variable;
}

}  // namespace plexrl::simgpu::ptx
