#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/simgpu/ptx/type.h"

/// What the parser makes of one PTX text. Names are views into the source, which must outlive these
/// objects.
namespace plexrl::simgpu::ptx::syntax {

enum class Space : std::uint8_t { kReg, kGlobal, kConst, kShared, kLocal, kParam };

/// One element of an initialiser: a number (already encoded in the element's type) or a symbol's
/// address.
struct Initial {
  std::uint64_t bits = 0;
  std::string_view symbol;  ///< empty: a number
  std::int64_t addend = 0;
  std::uint8_t byte_mask_shift = 0;  ///< for mask(symbol): the byte taken, times 8
  bool is_byte_of_symbol = false;
};

/// A variable of any state space but .reg, at module scope or in a function.
struct Variable {
  std::string_view name;
  Space space = Space::kGlobal;
  Type type = Type::kNone;
  std::size_t elements = 1;  ///< 0: size left open (`dyn[]`)
  std::size_t alignment = 1;
  bool is_extern = false;
  bool is_visible = false;  ///< .visible, .weak or .common: other sources may refer to it
  bool is_weak = false;
  bool is_managed = false;  ///< .attribute(.managed)
  int line = 0;
  std::vector<Initial> initial;

  std::size_t bytes() const { return elements * static_cast<std::size_t>(bytes_of(type)); }
};

struct Operand {
  enum class Kind : std::uint8_t {
    kRegister,  ///< `reg`
    kInteger,   ///< `bits`, two's complement
    kFloat,     ///< `bits` as f32 (is_single) or f64
    kVariable,  ///< function-scope variable `reg` plus `bits`
    kSymbol,    ///< module variable, function or label `name` plus `bits`
    kSpecial,   ///< special register `name`
    kAddress,   ///< [children[0] + bits]; more children: the other parts of a texture-like address
    kVector,    ///< {children}
    kList,      ///< (children)
    kSink,      ///< _
  };
  Kind kind = Kind::kSink;
  bool is_negated = false;  ///< `!p`
  bool is_single = false;
  std::int32_t reg = -1;
  std::uint64_t bits = 0;
  std::string_view name;
  std::vector<Operand> children;
  /// The second destination of `p|q`, if any (at most one).
  std::vector<Operand> other;
};

struct Instruction {
  int line = 0;
  int scope = 0;            ///< where its labels are looked up
  std::int32_t guard = -1;  ///< register id, or -1
  bool guard_is_negated = false;
  std::string_view opcode;  ///< with all modifiers
  std::vector<Operand> operands;
};

struct Register {
  Type type;
};

struct Label {
  std::string_view name;
  int scope;
  std::size_t instruction;  ///< index of the instruction that follows it
};

struct BranchTargets {
  std::string_view name;
  int scope;
  std::vector<std::string_view> labels;
};

/// `.param` list of a function declaration, in order. A `.reg` parameter has space kReg.
struct Signature {
  std::vector<Variable> results;
  std::vector<Variable> parameters;
};

struct Prototype {
  std::string_view name;
  Signature signature;
};

struct Function {
  std::string_view name;
  bool is_entry = false;
  bool has_body = false;
  bool is_extern = false;
  bool is_visible = false;
  bool is_weak = false;
  int line = 0;
  Signature signature;
  int max_threads = 0;              ///< product of .maxntid or .reqntid; 0: not given
  std::vector<Register> registers;  ///< by id
  std::vector<Variable>
      variables;  ///< by id: function-scope variables, formals first (results, parameters)
  std::vector<std::int32_t>
      formal_registers;  ///< per formal: register id when it is a .reg formal, else -1
  std::vector<Instruction> instructions;
  std::vector<Label> labels;
  std::vector<int> scope_parent;  ///< by scope; the function's own scope is 0 with parent -1
  std::vector<BranchTargets> branch_targets;
  std::vector<Prototype> prototypes;
};

struct Source {
  int version = 0;  ///< .version 7.5 is 75
  int target = 0;   ///< .target sm_75 is 75
  std::vector<Variable> variables;
  std::vector<Function> functions;
};

}  // namespace plexrl::simgpu::ptx::syntax
