#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tools/simgpu/ptx/lexer.h"
#include "tools/simgpu/ptx/syntax.h"

namespace plexrl::simgpu::ptx {

/// A position in a token list, with the small steps that both parsers (directives, function bodies)
/// take. All functions that expect something throw Failure naming the line.
class Cursor {
 public:
  explicit Cursor(const std::vector<Token>& tokens) : tokens_(tokens) {}

  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& take() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool at(std::string_view text) const { return peek().is(text); }
  bool at_end() const { return peek().kind == Token::Kind::kEnd; }
  int line() const { return peek().line; }

  /// Takes the token if it is `text`.
  bool accept(std::string_view text);
  void expect(std::string_view text);
  std::string_view expect_word(std::string_view what);
  /// A constant integer, with an optional sign.
  std::int64_t expect_integer();
  /// A constant, with an optional sign, as an operand of kind kInteger or kFloat.
  syntax::Operand expect_number();

  void skip_line();  ///< the rest of the current line (.loc, .file)
  void skip_past_semicolon();
  void skip_braces();  ///< a balanced { } block, from its opening brace
  [[noreturn]] void fail(std::string_view message) const;

 private:
  const std::vector<Token>& tokens_;
  std::size_t at_ = 0;
};

/// The bits of a constant in a type of `bytes` bytes: integers are cut, floats are converted when
/// the type is a float.
std::uint64_t encode_number(const syntax::Operand& number, Type type);

}  // namespace plexrl::simgpu::ptx
