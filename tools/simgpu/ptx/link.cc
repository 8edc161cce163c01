#include "tools/simgpu/ptx/link.h"

#include <algorithm>
#include <cstring>

#include "tools/simgpu/ptx/failure.h"

namespace plexrl::simgpu::ptx {
namespace {

using syntax::Operand;
using syntax::Space;

std::size_t round_up(std::size_t value, std::size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

template <typename F>
void each_symbol(const std::vector<Operand>& operands, F f) {
  for (const Operand& operand : operands) {
    if (operand.kind == Operand::Kind::kSymbol) f(operand);
    each_symbol(operand.children, f);
    each_symbol(operand.other, f);
  }
}

template <typename F>
void each_variable(const std::vector<Operand>& operands, F f) {
  for (const Operand& operand : operands) {
    if (operand.kind == Operand::Kind::kVariable) f(operand.reg);
    each_variable(operand.children, f);
  }
}

std::vector<std::byte> encode(const syntax::Variable& variable) {
  const auto element = static_cast<std::size_t>(bytes_of(variable.type));
  std::vector<std::byte> bytes(std::min(variable.initial.size() * element, variable.bytes()));
  for (std::size_t i = 0; (i + 1) * element <= bytes.size(); ++i) {
    std::memcpy(bytes.data() + i * element, &variable.initial[i].bits, element);
  }
  return bytes;
}

}  // namespace

Linker::Linker(const std::vector<syntax::Source>& sources)
    : sources_(sources), by_source_(sources.size()) {
  for (std::size_t s = 0; s < sources.size(); ++s) {
    for (const syntax::Variable& variable : sources[s].variables) add_variable(s, variable);
    for (const syntax::Function& function : sources[s].functions) add_function(s, function);
  }
  lay_out_shared();
}

void Linker::add_variable(std::size_t source, const syntax::Variable& variable) {
  if (variable.is_extern && variable.space != Space::kShared)
    return;  // defined elsewhere, or an error when used
  const auto known = visible_.find(variable.name);
  const bool is_shared_extern = variable.is_extern;
  if (variable.is_visible && known != visible_.end()) {
    const Symbol& other = *known->second;
    if (variable.is_weak || (other.variable != nullptr && other.variable->is_weak)) {
      by_source_[source][variable.name] = known->second;
      return;
    }
    throw Failure(LoadError::kInvalidPtx, variable.line,
                  "'" + std::string(variable.name) + "' is defined twice");
  }
  Symbol& symbol = symbols_.emplace_back();
  symbol.variable = &variable;
  symbol.source = source;
  symbol.unique_name = variable.name;
  if (!is_shared_extern && variable.space != Space::kShared) {
    for (int n = 1; !names_.insert(symbol.unique_name).second; ++n) {
      symbol.unique_name =
          std::string(variable.name) + "@" + std::to_string(source) + "." + std::to_string(n);
    }
    variables_.push_back(&symbol);
  }
  by_source_[source][variable.name] = &symbol;
  if (variable.is_visible) visible_[variable.name] = &symbol;
}

void Linker::add_function(std::size_t source, const syntax::Function& function) {
  if (!function.has_body) return;
  // Functions without linkage of their own are private, but for kernels, which the driver looks up
  // by name.
  const bool is_visible = function.is_visible || function.is_entry;
  const auto known = visible_.find(function.name);
  if (is_visible && known != visible_.end()) {
    if (!function.is_weak &&
        (known->second->function == nullptr || !known->second->function->is_weak)) {
      throw Failure(LoadError::kInvalidPtx, function.line,
                    "'" + std::string(function.name) + "' is defined twice");
    }
    by_source_[source][function.name] = known->second;
    return;
  }
  Symbol& symbol = symbols_.emplace_back();
  symbol.function = &function;
  symbol.source = source;
  symbol.number = functions_.size();
  functions_.push_back({&function, source});
  by_source_[source][function.name] = &symbol;
  if (is_visible) visible_[function.name] = &symbol;
}

const Symbol* Linker::find(std::size_t source, std::string_view name) const {
  if (const auto it = by_source_[source].find(name); it != by_source_[source].end())
    return it->second;
  const auto it = visible_.find(name);
  return it != visible_.end() ? it->second : nullptr;
}

std::vector<Variable> Linker::variables() const {
  std::vector<Variable> out;
  for (const Symbol* symbol : variables_) {
    const syntax::Variable& from = *symbol->variable;
    Variable variable;
    variable.name = symbol->unique_name;
    variable.bytes = from.bytes();
    variable.alignment = from.alignment;
    variable.is_managed = from.is_managed;
    variable.is_const = from.space == Space::kConst;
    variable.initial = encode(from);
    const auto element = static_cast<std::size_t>(bytes_of(from.type));
    for (std::size_t i = 0; i < from.initial.size(); ++i) {
      const syntax::Initial& initial = from.initial[i];
      // An address given byte by byte: the lowest byte stands for all eight.
      if (initial.symbol.empty() || (initial.is_byte_of_symbol && initial.byte_mask_shift != 0))
        continue;
      const Symbol* const target = find(symbol->source, initial.symbol);
      if (target == nullptr) {
        throw Failure(LoadError::kUnresolvedSymbol, from.line,
                      "'" + std::string(initial.symbol) + "' is not defined");
      }
      variable.relocations.push_back(
          {i * element,
           target->function != nullptr ? std::string(initial.symbol) : target->unique_name,
           initial.addend});
    }
    out.push_back(std::move(variable));
  }
  return out;
}

Linker::Uses Linker::uses_of(const Body& body) const {
  Uses uses;
  auto add_shared = [&](const syntax::Variable* variable) {
    if (variable->space != Space::kShared) return;
    if (std::find(uses.shared.begin(), uses.shared.end(), variable) == uses.shared.end())
      uses.shared.push_back(variable);
  };
  for (const syntax::Instruction& instruction : body.function->instructions) {
    each_symbol(instruction.operands, [&](const Operand& operand) {
      const Symbol* const symbol = find(body.source, operand.name);
      if (symbol == nullptr) return;
      if (symbol->variable != nullptr) add_shared(symbol->variable);
      if (symbol->function != nullptr) uses.calls.push_back(symbol->function);
    });
    each_variable(instruction.operands, [&](std::int32_t id) {
      add_shared(&body.function->variables[static_cast<std::size_t>(id)]);
    });
    if (instruction.opcode.starts_with("call")) {
      for (const Operand& operand : instruction.operands) {
        uses.calls_indirectly |= operand.kind == Operand::Kind::kRegister;
      }
    }
  }
  return uses;
}

void Linker::lay_out_shared() {
  auto place = [](Layout& layout, const syntax::Variable* variable) {
    if (variable->elements == 0) {
      layout.dynamic_alignment = std::max(layout.dynamic_alignment, variable->alignment);
      return;
    }
    if (layout.offsets.contains(variable)) return;
    layout.bytes = round_up(layout.bytes, variable->alignment);
    layout.offsets[variable] = layout.bytes;
    layout.bytes += variable->bytes();
  };
  std::unordered_map<const syntax::Function*, Uses> uses;
  for (const Body& body : functions_) uses.emplace(body.function, uses_of(body));
  for (const Body& body : functions_) {
    if (body.function->is_entry) continue;
    for (const syntax::Variable* variable : uses[body.function].shared) place(common_, variable);
  }
  for (const Body& body : functions_) {
    if (!body.function->is_entry) continue;
    std::unordered_set<const syntax::Function*> reached = {body.function};
    std::vector<const syntax::Function*> todo = {body.function};
    bool needs_common = false;
    std::size_t dynamic_alignment = 16;
    while (!todo.empty()) {
      const syntax::Function* const function = todo.back();
      todo.pop_back();
      const Uses& own = uses[function];
      for (const syntax::Variable* variable : own.shared) {
        if (variable->elements == 0) {
          dynamic_alignment = std::max(dynamic_alignment, variable->alignment);
        } else {
          needs_common |= !function->is_entry;
        }
      }
      auto visit = [&](const syntax::Function* callee) {
        if (reached.insert(callee).second) todo.push_back(callee);
      };
      for (const syntax::Function* callee : own.calls) visit(callee);
      if (own.calls_indirectly) {
        for (const Body& other : functions_) {
          if (!other.function->is_entry) visit(other.function);
        }
      }
    }
    Layout layout;
    if (needs_common) layout = common_;
    layout.dynamic_alignment = dynamic_alignment;
    for (const syntax::Variable* variable : uses[body.function].shared) place(layout, variable);
    kernels_.emplace(body.function, std::move(layout));
  }
}

std::size_t Linker::shared_offset(const syntax::Function& function,
                                  const syntax::Variable& variable) const {
  const Layout& layout = function.is_entry ? kernels_.at(&function) : common_;
  return layout.offsets.at(&variable);
}

std::size_t Linker::static_shared_bytes(const syntax::Function& kernel) const {
  return kernels_.at(&kernel).bytes;
}

std::size_t Linker::dynamic_base(const syntax::Function& kernel) const {
  const Layout& layout = kernels_.at(&kernel);
  return round_up(layout.bytes, layout.dynamic_alignment);
}

}  // namespace plexrl::simgpu::ptx
