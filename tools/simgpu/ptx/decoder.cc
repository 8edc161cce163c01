#include "tools/simgpu/ptx/decoder.h"

#include <algorithm>
#include <unordered_map>

#include "tools/simgpu/ptx/cursor.h"
#include "tools/simgpu/ptx/failure.h"
#include "tools/simgpu/ptx/launch.h"

namespace plexrl::simgpu::ptx {
namespace {

constexpr std::size_t kMaxLocalBytes = 512 << 10;  ///< of a variable; as on real devices
constexpr std::size_t kMaxParamBytes = 64 << 10;

}  // namespace

using syntax::Space;

Words::Words(std::string_view opcode) {
  while (true) {
    const std::size_t dot = opcode.find('.');
    words_.push_back(opcode.substr(0, dot));
    if (dot == std::string_view::npos) break;
    opcode.remove_prefix(dot + 1);
  }
}

bool Words::take(std::string_view word) {
  const auto it = std::find(words_.begin() + 1, words_.end(), word);
  if (it == words_.end()) return false;
  words_.erase(it);
  return true;
}

std::size_t Words::take_one(std::initializer_list<std::string_view> words) {
  std::size_t index = 0;
  for (std::string_view word : words) {
    if (take(word)) return index;
    ++index;
  }
  return std::string_view::npos;
}

Type Words::take_type() {
  if (words_.size() == 1) return Type::kNone;
  const Type type = type_from_name(words_.back());
  if (type != Type::kNone) words_.pop_back();
  return type;
}

Decoder::Decoder(const Linker& linker, const Level& level, Program& program, std::size_t source,
                 const syntax::Function& function, Code& code)
    : linker_(linker),
      level_(level),
      program_(program),
      source_(source),
      function_(function),
      code_(code) {}

void Decoder::run() {
  code_.name = function_.name;
  code_.is_entry = function_.is_entry;
  code_.source_line = function_.line;
  for (const syntax::Register& reg : function_.registers) registers_.push_back(reg.type);
  lay_out_params();
  load_register_formals();
  for (const syntax::Instruction& instruction : function_.instructions) {
    op_of_instruction_.push_back(static_cast<std::uint32_t>(code_.ops.size()));
    decode(instruction);
  }
  op_of_instruction_.push_back(static_cast<std::uint32_t>(code_.ops.size()));
  instruction_ = nullptr;
  emit_always(return_op());
  fix_branches();
  allocate_registers(code_, registers_);
}

std::vector<Parameter> lay_out_parameters(const syntax::Signature& signature) {
  std::vector<Parameter> out;
  std::size_t end = 0;
  for (const syntax::Variable& formal : signature.parameters) {
    const std::size_t offset = (end + formal.alignment - 1) / formal.alignment * formal.alignment;
    out.push_back({offset, formal.bytes()});
    end = offset + formal.bytes();
  }
  return out;
}

/// Places the function's parameters, the arguments of its calls, and its local variables. Variables
/// of separate call sequences share no space; blocks stay small because a function has few calls.
void Decoder::lay_out_params() {
  auto check_size = [](const syntax::Variable& variable, std::size_t limit) {
    if (variable.bytes() <= limit) return;
    throw Failure(LoadError::kInvalidPtx, variable.line,
                  "'" + std::string(variable.name) + "' is too large");
  };
  std::uint32_t params = 0, local = 0;
  const std::size_t results = function_.signature.results.size();
  const std::size_t formals = results + function_.signature.parameters.size();
  const std::vector<Parameter> kernel_params = lay_out_parameters(function_.signature);
  for (std::size_t id = 0; id < function_.variables.size(); ++id) {
    const syntax::Variable& variable = function_.variables[id];
    const auto alignment = static_cast<std::uint32_t>(variable.alignment);
    const auto bytes = static_cast<std::uint32_t>(variable.bytes());
    std::uint32_t offset = 0;
    if (variable.space == Space::kLocal) {
      local = (local + alignment - 1) / alignment * alignment;
      check_size(variable, kMaxLocalBytes);
      offset = local;
      local += bytes;
    } else if (function_.is_entry && id < formals) {
      offset = static_cast<std::uint32_t>(kernel_params[id - results].offset);
    } else if (variable.space == Space::kParam || variable.space == Space::kReg) {
      const std::uint32_t step = std::max<std::uint32_t>(alignment, 8);
      params = (params + step - 1) / step * step;
      check_size(variable, kMaxParamBytes);
      offset = params;
      params += std::max<std::uint32_t>(bytes, 1);
      if (id < formals)
        (id < results ? code_.results : code_.parameters).push_back({offset, bytes});
    }
    variable_offset_.push_back(offset);
  }
  code_.param_bytes = (params + 15) / 16 * 16;
  code_.local_bytes = (local + 15) / 16 * 16;
}

/// `.reg` parameters arrive in the parameter block like all others.
void Decoder::load_register_formals() {
  const std::size_t results = function_.signature.results.size();
  for (std::size_t id = results; id < function_.formal_registers.size(); ++id) {
    const std::int32_t reg = function_.formal_registers[id];
    if (reg < 0) continue;
    const Type type = type_of(reg);
    Op& op = emit_always(level_.load(unsigned_of(bytes_of(type)), register_width(type)));
    op.d = reg;
    op.a = constant(variable_offset_[id], 8);
    op.mode = static_cast<std::uint8_t>(Place::kFrameParam);
  }
}

void Decoder::decode(const syntax::Instruction& instruction) {
  instruction_ = &instruction;
  if (instruction.guard >= 0 && type_of(instruction.guard) != Type::kPred)
    fail("the guard is no predicate");
  Words words(instruction.opcode);
  const Handler handle = handler(words.first());
  if (handle == nullptr) unknown();
  (this->*handle)(words);
  if (!words.empty()) unknown();
}

std::size_t Decoder::find_label(std::string_view name, int scope) const {
  for (; scope >= 0; scope = function_.scope_parent[static_cast<std::size_t>(scope)]) {
    for (const syntax::Label& label : function_.labels) {
      if (label.scope == scope && label.name == name) return op_of_instruction_[label.instruction];
    }
  }
  throw Failure(LoadError::kInvalidPtx, function_.line, "no label '" + std::string(name) + "'");
}

void Decoder::fix_branches() {
  // find_label is linear: with many labels and branches, an index by scope and name.
  std::unordered_map<std::string, std::size_t> known;
  auto find = [&](std::string_view name, int scope) {
    const auto [it, is_new] = known.try_emplace(std::to_string(scope) + ":" + std::string(name), 0);
    if (is_new) it->second = find_label(name, scope);
    return it->second;
  };
  for (const BranchFixup& fixup : branches_) {
    code_.ops[fixup.op].target = static_cast<std::int32_t>(find(fixup.label, fixup.scope)) -
                                 static_cast<std::int32_t>(fixup.op);
  }
  for (const TableFixup& fixup : tables_) {
    code_.lists[fixup.table].push_back(static_cast<std::int32_t>(find(fixup.label, fixup.scope)) -
                                       static_cast<std::int32_t>(fixup.op));
  }
}

void Decoder::fail(std::string_view what) const {
  throw Failure(LoadError::kInvalidPtx, instruction_->line,
                std::string(what) + " in '" + std::string(instruction_->opcode) + "'");
}

void Decoder::unknown() const {
  throw Failure(LoadError::kUnsupportedInstruction,
                instruction_ != nullptr ? instruction_->line : function_.line,
                "unknown instruction '" +
                    std::string(instruction_ != nullptr ? instruction_->opcode : "parameter") +
                    "'");
}

const syntax::Operand& Decoder::operand(std::size_t index) const {
  if (index >= instruction_->operands.size()) fail("missing operand");
  return instruction_->operands[index];
}

Op& Decoder::emit_always(OpFn fn) {
  if (fn == nullptr) unknown();
  Op& op = code_.ops.emplace_back();
  op.fn = fn;
  op.guard = program_.pool.predicate(true);
  op.line = instruction_ != nullptr ? instruction_->line : function_.line;
  return op;
}

Op& Decoder::emit(OpFn fn) {
  Op& op = emit_always(fn);
  if (instruction_->guard >= 0) {
    op.guard = instruction_->guard;
    op.guard_flip = instruction_->guard_is_negated ? kAllLanes : 0;
  }
  return op;
}

void Decoder::emit1(OpFn fn, std::int32_t d, std::int32_t a) {
  Op& op = emit(fn);
  op.d = d;
  op.a = a;
}

void Decoder::emit2(OpFn fn, std::int32_t d, std::int32_t a, std::int32_t b) {
  Op& op = emit(fn);
  op.d = d;
  op.a = a;
  op.b = b;
}

void Decoder::emit3(OpFn fn, std::int32_t d, std::int32_t a, std::int32_t b, std::int32_t c) {
  Op& op = emit(fn);
  op.d = d;
  op.a = a;
  op.b = b;
  op.c = c;
}

std::int32_t Decoder::temp(Type type) {
  registers_.push_back(type);
  return static_cast<std::int32_t>(registers_.size() - 1);
}

int Decoder::width_of(const Operand& operand) const {
  return operand.kind == Operand::Kind::kRegister ? register_width(type_of(operand.reg)) : 0;
}

const std::int32_t* Decoder::keep_list(std::vector<std::int32_t> list) {
  return code_.lists.emplace_back(std::move(list)).data();
}

std::int32_t Decoder::carry_register() {
  if (carry_ == kNoOperand) carry_ = temp(Type::kPred);
  return carry_;
}

/// The operand with subnormals flushed to zero.
std::int32_t Decoder::flushed(std::int32_t operand, Type type) {
  const std::int32_t result = temp(type);
  emit1(level_.floating(Act::kFlush, type), result, operand);
  return result;
}

std::int32_t Decoder::read_predicate(const Operand& operand) {
  if (operand.kind == Operand::Kind::kInteger) {
    return program_.pool.predicate((operand.bits != 0) != operand.is_negated);
  }
  if (operand.kind != Operand::Kind::kRegister || type_of(operand.reg) != Type::kPred)
    fail("expected a predicate");
  if (!operand.is_negated) return operand.reg;
  const std::int32_t result = temp(Type::kPred);
  emit1(level_.integer(Act::kPredNot, Type::kPred), result, operand.reg);
  return result;
}

std::int32_t Decoder::read(const Operand& operand, Type type) {
  if (type == Type::kPred) return read_predicate(operand);
  const int width = register_width(type);
  switch (operand.kind) {
    case Operand::Kind::kRegister:
      if (type_of(operand.reg) == Type::kPred || width_of(operand) != width)
        fail("operand has the wrong size");
      return operand.reg;
    case Operand::Kind::kInteger:
    case Operand::Kind::kFloat:
      return constant(encode_number(operand, type), width);
    case Operand::Kind::kSpecial:
      return special_register(operand.name, width);
    case Operand::Kind::kVariable:
    case Operand::Kind::kSymbol:
      return read_address_value(operand, width);
    default:
      fail("unexpected operand");
  }
}

/// The address of a variable or function, in its own state space.
std::int32_t Decoder::read_address_value(const Operand& operand, int width) {
  const syntax::Variable* variable = nullptr;
  const auto addend = static_cast<std::int64_t>(operand.bits);
  if (operand.kind == Operand::Kind::kVariable) {
    variable = &function_.variables[static_cast<std::size_t>(operand.reg)];
    const std::uint64_t offset =
        variable_offset_[static_cast<std::size_t>(operand.reg)] + operand.bits;
    if (variable->space == Space::kLocal && !function_.is_entry) {
      const std::int32_t result = temp(unsigned_of(width));
      Op& op = emit(local_address_op());
      op.d = result;
      op.imm = static_cast<std::int64_t>(offset);
      op.mode = static_cast<std::uint8_t>(width);
      return result;
    }
    if (variable->space != Space::kShared) return constant(offset, width);
  } else {
    const Symbol* const symbol = linker_.find(source_, operand.name);
    if (symbol == nullptr) {
      throw Failure(LoadError::kUnresolvedSymbol, instruction_->line,
                    "'" + std::string(operand.name) + "' is not defined");
    }
    if (symbol->function != nullptr) {
      return constant(kFunctionWindow + symbol->number * kFunctionStep + operand.bits, width);
    }
    variable = symbol->variable;
    if (variable->space != Space::kShared)
      return program_.pool.symbol(symbol->unique_name, addend, width);
  }
  if (variable->elements != 0)
    return constant(linker_.shared_offset(function_, *variable) + operand.bits, width);
  if (function_.is_entry) return constant(linker_.dynamic_base(function_) + operand.bits, width);
  const std::int32_t result = temp(unsigned_of(width));
  Op& op = emit(shared_base_op());
  op.d = result;
  op.imm = addend;
  op.mode = static_cast<std::uint8_t>(width);
  return result;
}

/// A destination whose register must have exactly the type's width.
std::int32_t Decoder::write(const Operand& operand, Type type) const {
  if (operand.kind == Operand::Kind::kSink) return kNoOperand;
  if (operand.kind != Operand::Kind::kRegister) fail("the destination is no register");
  const bool is_predicate = type_of(operand.reg) == Type::kPred;
  if (is_predicate != (type == Type::kPred) || width_of(operand) != register_width(type)) {
    fail("the destination has the wrong size");
  }
  return operand.reg;
}

std::int32_t Decoder::special_register(std::string_view name, int width) {
  using S = SpecialRegister;
  static const std::unordered_map<std::string_view, S> kNames = {
      {"%tid.x", S::kTidX},
      {"%tid.y", S::kTidY},
      {"%tid.z", S::kTidZ},
      {"%ntid.x", S::kNtidX},
      {"%ntid.y", S::kNtidY},
      {"%ntid.z", S::kNtidZ},
      {"%ctaid.x", S::kCtaidX},
      {"%ctaid.y", S::kCtaidY},
      {"%ctaid.z", S::kCtaidZ},
      {"%nctaid.x", S::kNctaidX},
      {"%nctaid.y", S::kNctaidY},
      {"%nctaid.z", S::kNctaidZ},
      {"%laneid", S::kLaneId},
      {"%warpid", S::kWarpId},
      {"%nwarpid", S::kNwarpId},
      {"%smid", S::kSmId},
      {"%nsmid", S::kNsmId},
      {"%gridid", S::kGridId},
      {"%lanemask_eq", S::kLaneMaskEq},
      {"%lanemask_lt", S::kLaneMaskLt},
      {"%lanemask_le", S::kLaneMaskLe},
      {"%lanemask_gt", S::kLaneMaskGt},
      {"%lanemask_ge", S::kLaneMaskGe},
      {"%clock", S::kClock},
      {"%clock_hi", S::kClockHi},
      {"%clock64", S::kClock64},
      {"%globaltimer", S::kGlobalTimer},
      {"%globaltimer_lo", S::kGlobalTimerLo},
      {"%globaltimer_hi", S::kGlobalTimerHi},
      {"%dynamic_smem_size", S::kDynamicShared},
      {"%total_smem_size", S::kTotalShared},
      {"%envreg1", S::kEnvReg1},
      {"%envreg2", S::kEnvReg2},
      {"%envreg0", S::kZero}};
  if (name == "WARP_SZ") return constant(kLanes, width);
  const auto it = kNames.find(name);
  if (it == kNames.end()) {
    throw Failure(LoadError::kUnsupportedInstruction, instruction_->line,
                  "unknown register '" + std::string(name) + "'");
  }
  const std::int32_t result = temp(unsigned_of(width));
  Op& op = emit(special_register_op());
  op.d = result;
  op.imm = static_cast<std::int64_t>(it->second);
  op.mode = static_cast<std::uint8_t>(width);
  return result;
}

Decoder::Handler Decoder::handler(std::string_view opcode) {
  using D = Decoder;
  static const std::unordered_map<std::string_view, Handler> kHandlers = {
      {"add", &D::add_sub},
      {"sub", &D::add_sub},
      {"addc", &D::add_sub},
      {"subc", &D::add_sub},
      {"mul", &D::multiply},
      {"mad", &D::multiply_add},
      {"madc", &D::multiply_add},
      {"fma", &D::multiply_add},
      {"mul24", &D::multiply24},
      {"mad24", &D::multiply24},
      {"div", &D::divide},
      {"rem", &D::divide},
      {"min", &D::min_max},
      {"max", &D::min_max},
      {"neg", &D::unary_math},
      {"abs", &D::unary_math},
      {"sqrt", &D::unary_math},
      {"rsqrt", &D::unary_math},
      {"rcp", &D::unary_math},
      {"sin", &D::unary_math},
      {"cos", &D::unary_math},
      {"lg2", &D::unary_math},
      {"ex2", &D::unary_math},
      {"tanh", &D::unary_math},
      {"and", &D::bitwise},
      {"or", &D::bitwise},
      {"xor", &D::bitwise},
      {"not", &D::bitwise},
      {"cnot", &D::bitwise},
      {"shl", &D::shift},
      {"shr", &D::shift},
      {"popc", &D::bit_search},
      {"clz", &D::bit_search},
      {"brev", &D::bit_search},
      {"bfind", &D::bit_search},
      {"bfe", &D::bit_field},
      {"bfi", &D::bit_field},
      {"bmsk", &D::bit_field},
      {"shf", &D::funnel_shift},
      {"prmt", &D::permute},
      {"dp4a", &D::dot_product},
      {"dp2a", &D::dot_product},
      {"lop3", &D::logic3},
      {"sad", &D::sad},
      {"copysign", &D::copysign},
      {"setp", &D::set_predicate},
      {"set", &D::set_value},
      {"selp", &D::select},
      {"slct", &D::select_by_sign},
      {"testp", &D::test_property},
      {"mov", &D::move},
      {"cvt", &D::convert},
      {"cvta", &D::convert_address},
      {"isspacep", &D::is_address_space},
      {"ld", &D::load},
      {"ldu", &D::load},
      {"st", &D::store},
      {"atom", &D::atomic},
      {"red", &D::atomic},
      {"multimem", &D::multicast},
      {"tex", &D::texture},
      {"tld4", &D::texture},
      {"suld", &D::surface},
      {"sust", &D::surface},
      {"prefetch", &D::nothing},
      {"prefetchu", &D::nothing},
      {"pmevent", &D::nothing},
      {"bra", &D::branch},
      {"brx", &D::indexed_branch},
      {"call", &D::call},
      {"ret", &D::leave},
      {"exit", &D::leave},
      {"trap", &D::trap},
      {"brkpt", &D::trap},
      {"nanosleep", &D::sleep},
      {"bar", &D::barrier},
      {"barrier", &D::barrier},
      {"membar", &D::fence},
      {"fence", &D::fence},
      {"shfl", &D::shuffle},
      {"vote", &D::vote},
      {"match", &D::match},
      {"activemask", &D::active_mask},
      {"redux", &D::reduce},
      {"mma", &D::matrix}};
  const auto it = kHandlers.find(opcode);
  return it != kHandlers.end() ? it->second : nullptr;
}

}  // namespace plexrl::simgpu::ptx
