#include "tools/simgpu/ptx/parser.h"

#include <algorithm>
#include <string>

#include "tools/simgpu/ptx/body_parser.h"
#include "tools/simgpu/ptx/cursor.h"
#include "tools/simgpu/ptx/declaration.h"
#include "tools/simgpu/ptx/failure.h"

namespace plexrl::simgpu::ptx {
namespace {

using syntax::Function;
using syntax::Source;

struct Linkage {
  bool is_extern = false;
  bool is_visible = false;
  bool is_weak = false;
};

int parse_target(Cursor& in) {
  int target = 0;
  do {
    const std::string_view name = in.expect_word("a target");
    if (name.starts_with("sm_")) {
      target = 0;
      for (char c : name.substr(3)) {
        if (c < '0' || c > '9') break;
        target = target * 10 + (c - '0');
      }
    }
  } while (in.accept(","));
  return target;
}

int parse_version(Cursor& in) {
  const std::string text(in.take().text);
  const std::size_t dot = text.find('.');
  if (dot == std::string::npos || dot + 1 >= text.size()) in.fail("bad .version");
  return std::atoi(text.c_str()) * 10 + std::atoi(text.c_str() + dot + 1);
}

/// .maxntid and its like, between a function's parameters and its body.
void parse_function_directives(Cursor& in, Function& function) {
  while (!in.at("{") && !in.at(";") && !in.at_end()) {
    const std::string_view name = in.expect_word("a function directive");
    if (name == ".maxntid" || name == ".reqntid") {
      std::int64_t threads = 1;
      do threads *= in.expect_integer();
      while (in.accept(","));
      function.max_threads = static_cast<int>(std::clamp<std::int64_t>(threads, 1, 1024));
    } else if (name == ".pragma") {
      in.skip_past_semicolon();
    } else if (name.starts_with(".")) {
      while (in.peek().kind == Token::Kind::kNumber || in.at(",")) in.take();
    } else {
      in.fail("unexpected '" + std::string(name) + "'");
    }
  }
}

std::vector<syntax::Variable> parse_formals(Cursor& in) {
  std::vector<syntax::Variable> formals;
  in.expect("(");
  while (!in.accept(")")) {
    formals.push_back(parse_formal(in));
    if (!in.at(")")) in.expect(",");
  }
  return formals;
}

Function parse_function(Cursor& in, bool is_entry, const Linkage& linkage) {
  Function function;
  function.is_entry = is_entry;
  function.is_extern = linkage.is_extern;
  function.is_visible = linkage.is_visible || linkage.is_weak;
  function.is_weak = linkage.is_weak;
  function.line = in.line();
  if (in.at("(")) function.signature.results = parse_formals(in);
  function.name = in.expect_word("a function name");
  if (in.at("(")) function.signature.parameters = parse_formals(in);
  parse_function_directives(in, function);
  if (in.accept(";")) return function;
  function.has_body = true;
  parse_body(in, function);
  return function;
}

}  // namespace

Source parse(std::string_view text) {
  const std::vector<Token> tokens = tokenize(text);
  Cursor in(tokens);
  Source source;
  Linkage linkage;
  while (!in.at_end()) {
    if (in.accept(";")) continue;
    const Token& token = in.take();
    if (token.is(".version")) {
      source.version = parse_version(in);
    } else if (token.is(".target")) {
      source.target = parse_target(in);
    } else if (token.is(".address_size")) {
      if (in.expect_integer() != 64) in.fail("only .address_size 64 is supported");
    } else if (token.is(".file") || token.is(".loc") || token.text.starts_with("@@")) {
      const int line = token.line;
      while (!in.at_end() && in.line() == line) in.take();
    } else if (token.is(".section")) {
      in.expect_word("a section name");
      in.skip_braces();
    } else if (token.is(".pragma")) {
      in.skip_past_semicolon();
    } else if (token.is(".extern")) {
      linkage.is_extern = true;
    } else if (token.is(".visible") || token.is(".common")) {
      linkage.is_visible = true;
    } else if (token.is(".weak")) {
      linkage.is_weak = true;
    } else if (token.is(".entry") || token.is(".func")) {
      while (in.at(".noreturn")) in.take();
      source.functions.push_back(parse_function(in, token.is(".entry"), linkage));
      linkage = {};
    } else if (token.is(".global") || token.is(".const") || token.is(".shared")) {
      for (syntax::Variable& variable : parse_variables(in, token.text)) {
        variable.is_extern = linkage.is_extern;
        variable.is_visible = linkage.is_visible || linkage.is_weak;
        variable.is_weak = linkage.is_weak;
        source.variables.push_back(std::move(variable));
      }
      linkage = {};
    } else {
      throw Failure(LoadError::kInvalidPtx, token.line,
                    "unexpected '" + std::string(token.text) + "'");
    }
  }
  if (source.version == 0) throw Failure(LoadError::kInvalidPtx, 1, "no .version directive");
  if (source.target == 0) throw Failure(LoadError::kInvalidPtx, 1, "no .target directive");
  return source;
}

}  // namespace plexrl::simgpu::ptx
