#include "tools/simgpu/ptx/body_parser.h"

#include <string>
#include <unordered_map>

#include "tools/simgpu/ptx/declaration.h"
#include "tools/simgpu/ptx/failure.h"

namespace plexrl::simgpu::ptx {
namespace {

using syntax::Function;
using syntax::Instruction;
using syntax::Operand;
using syntax::Space;
using syntax::Variable;

/// What a name means in one `{ }` scope.
struct Meaning {
  bool is_register = false;
  std::int32_t id = 0;     ///< register or variable; the first of a range
  std::int32_t count = 0;  ///< length of a range (`%r<10>`), else 0
};

struct Scope {
  int id;
  std::unordered_map<std::string_view, Meaning> names;
  std::unordered_map<std::string_view, Meaning> ranges;  ///< by prefix
};

class BodyParser {
 public:
  BodyParser(Cursor& in, Function& function) : in_(in), function_(function) {}

  void run() {
    open_scope();
    for (const auto* list : {&function_.signature.results, &function_.signature.parameters}) {
      for (const Variable& formal : *list) declare_formal(formal);
    }
    in_.expect("{");
    while (!scopes_.empty()) statement();
  }

 private:
  void open_scope() {
    const int parent = scopes_.empty() ? -1 : scopes_.back().id;
    scopes_.push_back(Scope{static_cast<int>(function_.scope_parent.size()), {}, {}});
    function_.scope_parent.push_back(parent);
  }

  void declare_formal(const Variable& formal) {
    const auto id = static_cast<std::int32_t>(function_.variables.size());
    function_.variables.push_back(formal);
    std::int32_t reg = -1;
    if (formal.space == Space::kReg) {
      reg = static_cast<std::int32_t>(function_.registers.size());
      function_.registers.push_back({formal.type});
      scopes_.back().names[formal.name] = Meaning{true, reg, 0};
    } else {
      scopes_.back().names[formal.name] = Meaning{false, id, 0};
    }
    function_.formal_registers.push_back(reg);
  }

  void statement() {
    const Token& token = in_.peek();
    if (in_.at_end())
      in_.fail("missing '}' at the end of function '" + std::string(function_.name) + "'");
    if (in_.accept(";")) return;
    if (in_.accept("{")) return open_scope();
    if (in_.accept("}")) return scopes_.pop_back();
    if (token.kind == Token::Kind::kWord && in_.peek(1).is(":")) return label();
    if (token.kind == Token::Kind::kWord && token.text[0] == '.') return directive();
    instruction();
  }

  void label() {
    const std::string_view name = in_.take().text;
    in_.expect(":");
    if (in_.accept(".branchtargets")) {
      syntax::BranchTargets targets{name, scopes_.back().id, {}};
      do targets.labels.push_back(in_.expect_word("a label"));
      while (in_.accept(","));
      in_.expect(";");
      function_.branch_targets.push_back(std::move(targets));
    } else if (in_.accept(".callprototype")) {
      function_.prototypes.push_back(prototype(name));
    } else if (in_.at(".calltargets")) {
      in_.skip_past_semicolon();
    } else {
      function_.labels.push_back({name, scopes_.back().id, function_.instructions.size()});
    }
  }

  syntax::Prototype prototype(std::string_view name) {
    syntax::Prototype prototype{name, {}};
    auto formals = [&](std::vector<Variable>& out) {
      in_.expect("(");
      while (!in_.accept(")")) {
        out.push_back(parse_formal(in_));
        if (!in_.at(")")) in_.expect(",");
      }
    };
    if (in_.at("(")) formals(prototype.signature.results);
    in_.expect("_");
    if (in_.at("(")) formals(prototype.signature.parameters);
    while (in_.peek().text.starts_with(".")) in_.take();  // .noreturn, .abi_preserve …
    in_.expect(";");
    return prototype;
  }

  void directive() {
    const std::string_view name = in_.peek().text;
    if (name == ".loc" || name == ".file") return in_.skip_line();
    if (name == ".pragma") return in_.skip_past_semicolon();
    if (name == ".section") {
      in_.take();
      in_.expect_word("a section name");
      return in_.skip_braces();
    }
    in_.take();
    if (name == ".reg") return declare_registers();
    const bool is_extern = name == ".extern";
    for (Variable& variable : parse_variables(in_, is_extern ? in_.take().text : name)) {
      variable.is_extern = is_extern;
      const auto id = static_cast<std::int32_t>(function_.variables.size());
      scopes_.back().names[variable.name] = Meaning{false, id, 0};
      function_.variables.push_back(std::move(variable));
    }
  }

  void declare_registers() {
    int vector = 1;
    if (in_.at(".v2") || in_.at(".v4")) vector = in_.take().is(".v2") ? 2 : 4;
    const std::string_view name = in_.expect_word("a register type");
    const Type type = type_from_name(name.substr(1));
    if (type == Type::kNone) in_.fail("unknown register type '" + std::string(name) + "'");
    if (vector != 1) in_.fail("vector registers are not supported");
    do {
      Meaning meaning{true, static_cast<std::int32_t>(function_.registers.size()), 0};
      const std::string_view reg = in_.expect_word("a register name");
      if (in_.accept("<")) {
        const std::int64_t count = in_.expect_integer();
        if (count < 0 || count > 1'000'000) in_.fail("bad register count");
        meaning.count = static_cast<std::int32_t>(count);
        in_.expect(">");
        function_.registers.resize(function_.registers.size() + static_cast<std::size_t>(count),
                                   syntax::Register{type});
        scopes_.back().ranges[reg] = meaning;
      } else {
        function_.registers.push_back({type});
        scopes_.back().names[reg] = meaning;
      }
      if (function_.registers.size() > kMaxRegisters) in_.fail("too many registers");
    } while (in_.accept(","));
    in_.expect(";");
  }

  /// Looks a name up from the innermost scope outwards. False when it is no register or variable of
  /// this function.
  bool resolve(std::string_view name, Meaning& out) const {
    std::size_t prefix = name.size();
    while (prefix > 0 && name[prefix - 1] >= '0' && name[prefix - 1] <= '9') --prefix;
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto it = scope->names.find(name); it != scope->names.end()) {
        out = it->second;
        return true;
      }
      // `%r12` may belong to `%r<20>` or, less usual, to `%r1<5>`: try every split.
      for (std::size_t split = prefix; split < name.size(); ++split) {
        const auto it = scope->ranges.find(name.substr(0, split));
        if (it == scope->ranges.end()) continue;
        std::int64_t index = 0;
        for (char c : name.substr(split))
          index = std::min<std::int64_t>(index * 10 + (c - '0'), 1 << 30);
        if (index >= it->second.count) continue;
        out = Meaning{true, it->second.id + static_cast<std::int32_t>(index), 0};
        return true;
      }
    }
    return false;
  }

  std::int32_t expect_register() {
    const std::string_view name = in_.expect_word("a predicate");
    Meaning meaning;
    if (!resolve(name, meaning) || !meaning.is_register) {
      in_.fail("unknown register '" + std::string(name) + "'");
    }
    return meaning.id;
  }

  void instruction() {
    Instruction out;
    out.line = in_.line();
    out.scope = scopes_.back().id;
    if (in_.accept("@")) {
      out.guard_is_negated = in_.accept("!");
      out.guard = expect_register();
    }
    out.opcode = in_.expect_word("an instruction");
    while (!in_.accept(";")) {
      out.operands.push_back(operand());
      if (!in_.at(";")) {
        // `tex`-like and call operands are separated by commas as well; nothing else may follow.
        in_.expect(",");
      }
    }
    function_.instructions.push_back(std::move(out));
  }

  std::vector<Operand> children(std::string_view end) {
    std::vector<Operand> list;
    while (!in_.accept(end)) {
      list.push_back(operand());
      if (!in_.at(end)) in_.expect(",");
    }
    return list;
  }

  Operand operand() {
    if (++depth_ > kMaxDepth) in_.fail("operands are nested too deeply");
    Operand out;
    const bool is_negated = in_.accept("!");
    if (in_.accept("{")) {
      out.kind = Operand::Kind::kVector;
      out.children = children("}");
    } else if (in_.accept("(")) {
      out.kind = Operand::Kind::kList;
      out.children = children(")");
    } else if (in_.accept("[")) {
      out.kind = Operand::Kind::kAddress;
      out.children = children("]");
    } else if (in_.peek().kind == Token::Kind::kWord) {
      out = named_operand();
    } else {
      out = in_.expect_number();
    }
    out.is_negated = is_negated;
    if (in_.accept("|")) out.other.push_back(operand());
    --depth_;
    return out;
  }

  Operand named_operand() {
    Operand out;
    out.name = in_.take().text;
    if (out.name == "_") return out;
    Meaning meaning;
    if (resolve(out.name, meaning)) {
      out.kind = meaning.is_register ? Operand::Kind::kRegister : Operand::Kind::kVariable;
      out.reg = meaning.id;
    } else if (out.name[0] == '%') {
      out.kind = Operand::Kind::kSpecial;
    } else {
      out.kind = Operand::Kind::kSymbol;
    }
    if (in_.accept("[")) {  // local0[4]: an element of a byte array
      out.bits = static_cast<std::uint64_t>(in_.expect_integer());
      in_.expect("]");
      if (out.kind == Operand::Kind::kVariable) {
        const Variable& variable = function_.variables[static_cast<std::size_t>(out.reg)];
        out.bits *= static_cast<std::uint64_t>(bytes_of(variable.type));
      }
    }
    while (in_.at("+") || in_.at("-")) {
      out.bits += static_cast<std::uint64_t>(in_.expect_integer());
    }
    return out;
  }

  Cursor& in_;
  Function& function_;
  std::vector<Scope> scopes_;

  static constexpr int kMaxDepth = 8;
  static constexpr std::size_t kMaxRegisters = 1'000'000;
  int depth_ = 0;  ///< of nested operands
};

}  // namespace

void parse_body(Cursor& in, Function& function) { BodyParser(in, function).run(); }

}  // namespace plexrl::simgpu::ptx
