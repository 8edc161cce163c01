#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace plexrl::simgpu::ptx {

struct Token {
  enum class Kind : std::uint8_t { kWord, kNumber, kString, kPunctuation, kEnd };
  Kind kind = Kind::kEnd;
  int line = 0;           ///< from 1
  std::string_view text;  ///< into the source; a string without its quotes

  bool is(std::string_view what) const { return text == what && kind != Kind::kString; }
};

/// Splits PTX text into tokens and drops comments. A word is an opcode, directive, label, register
/// or symbol with all its dots ("ld.global.f32", ".reg", "%tid.x"). Punctuation is always one
/// character. The last token is kEnd. Characters that PTX doesn't have become punctuation, so that
/// the parser can report them with their line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace plexrl::simgpu::ptx
