#include "tools/simgpu/ptx/lexer.h"

#include <algorithm>

namespace plexrl::simgpu::ptx {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool starts_word(char c) { return is_letter(c) || c == '_' || c == '$' || c == '%' || c == '.'; }
bool continues_word(char c) { return starts_word(c) || is_digit(c) || c == ':'; }

/// Moves past white space and comments, counting lines.
std::size_t skip_blank(std::string_view s, std::size_t i, int& line) {
  while (i < s.size()) {
    if (s[i] == '\n') {
      ++line;
      ++i;
    } else if (s[i] == ' ' || s[i] == '\t' || s[i] == '\r' || s[i] == '\0') {
      ++i;
    } else if (s.substr(i, 2) == "//") {
      i = std::min(s.find('\n', i), s.size());
    } else if (s.substr(i, 2) == "/*") {
      const std::size_t end = std::min(s.find("*/", i + 2), s.size());
      line += static_cast<int>(std::count(s.begin() + i, s.begin() + end, '\n'));
      i = std::min(end + 2, s.size());
    } else {
      break;
    }
  }
  return i;
}

std::size_t number_end(std::string_view s, std::size_t i) {
  const bool is_hex = s[i] == '0' && i + 1 < s.size() && (s[i + 1] == 'x' || s[i + 1] == 'X');
  while (i < s.size() && (is_digit(s[i]) || is_letter(s[i]) || s[i] == '.')) {
    const bool is_exponent = !is_hex && (s[i] == 'e' || s[i] == 'E');
    ++i;
    if (is_exponent && i + 1 < s.size() && (s[i] == '+' || s[i] == '-') && is_digit(s[i + 1])) ++i;
  }
  return i;
}

/// "cp::async" style modifiers keep their colons; a label's single colon is a token of its own.
/// Directives may be written without a space between them (".reg.b32 f").
std::size_t word_end(std::string_view s, std::size_t i) {
  const bool is_directive = s[i] == '.';
  if (is_directive) ++i;
  while (i < s.size() && continues_word(s[i])) {
    if (is_directive && s[i] == '.') break;
    if (s[i] == ':') {
      if (s.substr(i, 2) != "::") break;
      ++i;
    }
    ++i;
  }
  return i;
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  std::vector<Token> tokens;
  tokens.reserve(source.size() / 4 + 1);
  int line = 1;
  std::size_t i = 0;
  while ((i = skip_blank(source, i, line)) < source.size()) {
    Token token{Token::Kind::kPunctuation, line, source.substr(i, 1)};
    std::size_t end = i + 1;
    if (is_digit(source[i])) {
      token.kind = Token::Kind::kNumber;
      end = number_end(source, i);
      token.text = source.substr(i, end - i);
    } else if (starts_word(source[i])) {
      token.kind = Token::Kind::kWord;
      end = word_end(source, i);
      token.text = source.substr(i, end - i);
    } else if (source[i] == '"') {
      token.kind = Token::Kind::kString;
      while (end < source.size() && source[end] != '"') end += source[end] == '\\' ? 2 : 1;
      end = std::min(end, source.size());
      token.text = source.substr(i + 1, end - i - 1);
      line += static_cast<int>(std::count(token.text.begin(), token.text.end(), '\n'));
      end = std::min(end + 1, source.size());
    }
    tokens.push_back(token);
    i = end;
  }
  tokens.push_back(Token{Token::Kind::kEnd, line, {}});
  return tokens;
}

}  // namespace plexrl::simgpu::ptx
