#include "tools/simgpu/ptx/decoder.h"
#include "tools/simgpu/ptx/failure.h"
#include "tools/simgpu/ptx/launch.h"

/// Branches, calls, barriers, and what lanes do together.
namespace plexrl::simgpu::ptx {

using syntax::Space;

void Decoder::branch(Words& words) {
  words.take("uni");
  const Operand& target = operand(0);
  if (target.kind != Operand::Kind::kSymbol) fail("expected a label");
  branches_.push_back({code_.ops.size(), target.name, instruction_->scope});
  emit(level_.branch());
}

void Decoder::indexed_branch(Words& words) {
  if (!words.take("idx")) unknown();
  words.take("uni");
  const std::string_view name = operand(1).name;
  const syntax::BranchTargets* targets = nullptr;
  for (const syntax::BranchTargets& list : function_.branch_targets) {
    if (list.name == name) targets = &list;
  }
  if (targets == nullptr) fail("no .branchtargets '" + std::string(name) + "'");
  const std::int32_t index = read(operand(0), Type::kU32);
  const std::size_t table = code_.lists.size();
  code_.lists.emplace_back();
  for (std::string_view label : targets->labels)
    tables_.push_back({code_.ops.size(), table, label, targets->scope});
  Op& op = emit(indexed_branch_op());
  op.a = index;
  op.extra = &code_.lists[table];
}

/// Where an argument or result of a call is in the parameter block. Registers and constants get a
/// place of their own.
ParamRange Decoder::argument(const Operand& operand, const syntax::Variable* formal) {
  if (operand.kind == Operand::Kind::kVariable) {
    const auto id = static_cast<std::size_t>(operand.reg);
    return {variable_offset_[id], static_cast<std::uint32_t>(function_.variables[id].bytes())};
  }
  Type type = formal != nullptr ? formal->type : Type::kNone;
  if (operand.kind == Operand::Kind::kRegister) type = type_of(operand.reg);
  if (type == Type::kNone || type == Type::kPred) fail("bad argument of a call");
  const ParamRange range{code_.param_bytes, static_cast<std::uint32_t>(bytes_of(type))};
  code_.param_bytes += 16;
  return range;
}

void Decoder::call(Words& words) {
  words.take("uni");
  const std::vector<Operand>& operands = instruction_->operands;
  std::size_t at = 0;
  static const std::vector<Operand> kNone;
  const std::vector<Operand>* results = &kNone;
  const std::vector<Operand>* arguments = &kNone;
  if (at < operands.size() && operands[at].kind == Operand::Kind::kList)
    results = &operands[at++].children;
  const Operand& target = operand(at++);
  if (at < operands.size() && operands[at].kind == Operand::Kind::kList)
    arguments = &operands[at++].children;

  OpFn fn = call_op();
  CallSite& site = code_.call_sites.emplace_back();
  const syntax::Signature* signature = nullptr;
  std::int32_t address = kNoOperand;
  if (target.kind == Operand::Kind::kSymbol) {
    const Symbol* const symbol = linker_.find(source_, target.name);
    if (symbol != nullptr && symbol->function != nullptr) {
      site.callee = program_.functions[symbol->number].get();
      signature = &symbol->function->signature;
    } else if (target.name == "vprintf") {
      fn = print_op();
      if (arguments->size() != 2) fail("vprintf takes two arguments");
    } else if (target.name == "__assertfail") {
      fn = assert_op();
      if (arguments->size() != 5) fail("__assertfail takes five arguments");
    } else {
      throw Failure(LoadError::kUnresolvedSymbol, instruction_->line,
                    "function '" + std::string(target.name) + "' is not defined");
    }
  } else {
    address = read(target, Type::kU64);
    if (at < operands.size()) {
      for (const syntax::Prototype& prototype : function_.prototypes) {
        if (prototype.name == operands[at].name) signature = &prototype.signature;
      }
    }
  }
  for (std::size_t i = 0; i < arguments->size(); ++i) {
    const Operand& value = (*arguments)[i];
    const bool known = signature != nullptr && i < signature->parameters.size();
    const syntax::Variable* const formal = known ? &signature->parameters[i] : nullptr;
    const ParamRange range = argument(value, formal);
    site.arguments.push_back(range);
    if (value.kind == Operand::Kind::kVariable) continue;
    const Type type = value.kind == Operand::Kind::kRegister ? type_of(value.reg) : formal->type;
    const std::int32_t from = read(value, type);
    Op& op = emit(level_.store(bytes_of(type), register_width(type)));
    op.a = constant(range.offset, 8);
    op.b = from;
    op.mode = static_cast<std::uint8_t>(Place::kFrameParam);
  }
  for (const Operand& result : *results) site.results.push_back(argument(result, nullptr));
  Op& op = emit(fn);
  op.a = address;
  op.extra = &site;
  for (std::size_t i = 0; i < results->size(); ++i) {
    const Operand& result = (*results)[i];
    if (result.kind != Operand::Kind::kRegister) continue;
    const Type type = type_of(result.reg);
    Op& load = emit(level_.load(unsigned_of(bytes_of(type)), register_width(type)));
    load.d = result.reg;
    load.a = constant(site.results[i].offset, 8);
    load.mode = static_cast<std::uint8_t>(Place::kFrameParam);
  }
}

void Decoder::leave(Words& words) {
  words.take("uni");
  if (words.first() == "exit") {
    emit(exit_op());
    return;
  }
  const std::size_t results = function_.signature.results.size();
  for (std::size_t id = 0; id < results; ++id) {
    const std::int32_t reg = function_.formal_registers[id];
    if (reg < 0) continue;
    const Type type = type_of(reg);
    Op& op = emit(level_.store(bytes_of(type), register_width(type)));
    op.a = constant(variable_offset_[id], 8);
    op.b = reg;
    op.mode = static_cast<std::uint8_t>(Place::kFrameParam);
  }
  emit(return_op());
}

void Decoder::trap(Words&) { emit(trap_op()); }

void Decoder::sleep(Words& words) {
  if (words.take_type() != Type::kU32) unknown();
  const std::int32_t ns = read(operand(0), Type::kU32);
  emit(sleep_op()).a = ns;
}

void Decoder::barrier(Words& words) {
  words.take("cta");
  words.take("aligned");
  const bool is_warp = words.take("warp");
  const std::size_t form = words.take_one({"sync", "arrive", "red"});
  if (form > 2) unknown();
  if (is_warp) {
    const std::int32_t members = read(operand(0), Type::kB32);
    emit(warp_barrier_op()).a = members;
    return;
  }
  std::size_t at = 0;
  std::uint8_t mode = static_cast<std::uint8_t>(form);
  std::int32_t d = kNoOperand, vote = kNoOperand;
  if (form == 2) {
    const Type type = words.take_type();
    const std::size_t which = words.take_one({"popc", "and", "or"});
    if (which > 2) unknown();
    mode = static_cast<std::uint8_t>(2 + which);
    d = write(operand(0), which == 0 ? Type::kU32 : Type::kPred);
    if ((which == 0) != (type == Type::kU32)) unknown();
    vote = read_predicate(operand(operand_count() - 1));
    at = 1;
  }
  const std::int32_t id = read(operand(at), Type::kU32);
  const std::size_t values = operand_count() - at - (form == 2 ? 1 : 0);
  const std::int32_t count = values > 1 ? read(operand(at + 1), Type::kU32) : kNoOperand;
  Op& op = emit(barrier_op());
  op.a = id;
  op.b = count;
  op.c = vote;
  op.d = d;
  op.mode = mode;
}

void Decoder::fence(Words& words) {
  static constexpr std::string_view kWords[] = {"cta",   "gl",      "gpu",     "sys",     "cluster",
                                                "sc",    "acq_rel", "acquire", "release", "proxy",
                                                "alias", "async",   "generic", "global"};
  for (std::string_view word : kWords) words.take(word);
  emit(fence_op());
}

void Decoder::shuffle(Words& words) {
  if (!words.take("sync")) unknown();
  const std::size_t mode = words.take_one({"up", "down", "bfly", "idx"});
  const Type type = words.take_type();
  if (mode > 3 || bytes_of(type) != 4) unknown();
  const std::int32_t a = read(operand(1), type);
  const std::int32_t b = read(operand(2), Type::kU32);
  const std::int32_t c = read(operand(3), Type::kU32);
  const std::int32_t* const members = keep_list({read(operand(4), Type::kU32)});
  Op& op = emit(level_.shuffle());
  op.d = write(operand(0), type);
  if (!operand(0).other.empty()) op.e = write(operand(0).other[0], Type::kPred);
  op.a = a;
  op.b = b;
  op.c = c;
  op.list = members;
  op.list_size = 1;
  op.mode = static_cast<std::uint8_t>(mode);
}

void Decoder::vote(Words& words) {
  if (!words.take("sync")) unknown();
  const std::size_t mode = words.take_one({"all", "any", "uni", "ballot"});
  const Type type = words.take_type();
  if (mode > 3 || (mode == 3) != (type == Type::kB32)) unknown();
  const std::int32_t a = read_predicate(operand(1));
  const std::int32_t members = read(operand(2), Type::kB32);
  emit2(vote_op(), write(operand(0), type), a, members);
  code_.ops.back().mode = static_cast<std::uint8_t>(mode);
}

void Decoder::match(Words& words) {
  const std::size_t mode = words.take_one({"any", "all"});
  if (!words.take("sync") || mode > 1) unknown();
  const Type type = words.take_type();
  if (bytes_of(type) < 4) unknown();
  const std::int32_t a = read(operand(1), type);
  const std::int32_t members = read(operand(2), Type::kB32);
  emit2(match_op(), write(operand(0), Type::kB32), a, members);
  Op& op = code_.ops.back();
  if (!operand(0).other.empty()) op.e = write(operand(0).other[0], Type::kPred);
  op.mode = static_cast<std::uint8_t>(mode);
  op.imm = bytes_of(type);
}

void Decoder::active_mask(Words& words) {
  if (words.take_type() != Type::kB32) unknown();
  emit(active_mask_op()).d = write(operand(0), Type::kB32);
}

void Decoder::reduce(Words& words) {
  if (!words.take("sync")) unknown();
  const std::size_t mode = words.take_one({"add", "min", "max", "and", "or", "xor"});
  const Type type = words.take_type();
  if (mode > 5 || bytes_of(type) != 4) unknown();
  const std::int32_t a = read(operand(1), type);
  const std::int32_t members = read(operand(2), Type::kB32);
  emit2(redux_op(), write(operand(0), type), a, members);
  code_.ops.back().mode = static_cast<std::uint8_t>(mode);
  code_.ops.back().imm = is_signed(type) ? 1 : 0;
}

/// mma.sync.aligned.m16n8k8.row.col.{f32.f16.f16.f32, f16.f16.f16.f16}
void Decoder::matrix(Words& words) {
  const Type c = words.take_type();
  const Type b = words.take_type();
  const Type a = words.take_type();
  const Type d = words.take_type();
  const bool is_known = words.take("sync") && words.take("aligned") && words.take("m16n8k8") &&
                        words.take("row") && words.take("col");
  if (!is_known || a != Type::kF16 || b != Type::kF16 || c != d ||
      (d != Type::kF32 && d != Type::kF16))
    unknown();
  const bool is_single = d == Type::kF32;
  const std::size_t results = is_single ? 4 : 2;
  std::vector<std::int32_t> list;
  auto add = [&](std::size_t index, std::size_t count, Type type, bool is_result) {
    const Operand& vector = operand(index);
    if (vector.kind != Operand::Kind::kVector || vector.children.size() != count)
      fail("wrong fragment size");
    for (const Operand& element : vector.children)
      list.push_back(is_result ? write(element, type) : read(element, type));
  };
  const Type accumulator = is_single ? Type::kF32 : Type::kB32;
  add(0, results, accumulator, true);
  add(1, 2, Type::kB32, false);
  add(2, 1, Type::kB32, false);
  add(3, results, accumulator, false);
  const std::size_t size = list.size();
  const std::int32_t* const kept = keep_list(std::move(list));
  Op& op = emit(level_.mma(is_single));
  op.list = kept;
  op.list_size = static_cast<std::uint8_t>(size);
  op.list_results = static_cast<std::uint8_t>(results);
}

}  // namespace plexrl::simgpu::ptx
