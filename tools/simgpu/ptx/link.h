#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tools/simgpu/ptx/executor.h"
#include "tools/simgpu/ptx/syntax.h"

namespace plexrl::simgpu::ptx {

/// What a module-scope name stands for.
struct Symbol {
  const syntax::Variable* variable = nullptr;
  const syntax::Function* function = nullptr;
  std::size_t source = 0;   ///< where it is defined
  std::size_t number = 0;   ///< functions: index in Linker::functions
  std::string unique_name;  ///< variables: as in Module::variables
};

/// Joins several parsed sources: finds definitions of .extern names, tells same-named private
/// symbols apart, and lays out static shared memory.
///
/// Shared memory: variables that device functions use have one place for the whole module, because
/// those functions are decoded once; variables that only kernels use are placed after them, for
/// each kernel anew.
class Linker {
 public:
  /// The sources must outlive the linker. Throws Failure for duplicate or missing definitions.
  explicit Linker(const std::vector<syntax::Source>& sources);

  struct Body {
    const syntax::Function* function;
    std::size_t source;
  };
  /// Functions with a body, in source order.
  const std::vector<Body>& functions() const { return functions_; }
  /// Global and const variables, in source order.
  std::vector<Variable> variables() const;

  /// nullptr when the name is neither defined in the source nor visible from another one.
  const Symbol* find(std::size_t source, std::string_view name) const;

  /// Offset of a shared variable as `function` sees it. Open-ended ones (dynamic shared memory)
  /// have none: they begin at dynamic_base.
  std::size_t shared_offset(const syntax::Function& function,
                            const syntax::Variable& variable) const;
  std::size_t static_shared_bytes(const syntax::Function& kernel) const;
  std::size_t dynamic_base(const syntax::Function& kernel) const;

 private:
  struct Uses {
    std::vector<const syntax::Variable*> shared;  ///< in order of first use; no duplicates
    std::vector<const syntax::Function*> calls;
    bool calls_indirectly = false;
  };
  struct Layout {
    std::unordered_map<const syntax::Variable*, std::size_t> offsets;
    std::size_t bytes = 0;
    std::size_t dynamic_alignment = 16;
  };
  void add_variable(std::size_t source, const syntax::Variable& variable);
  void add_function(std::size_t source, const syntax::Function& function);
  Uses uses_of(const Body& body) const;
  void lay_out_shared();

  const std::vector<syntax::Source>& sources_;
  std::deque<Symbol> symbols_;
  std::vector<std::unordered_map<std::string_view, const Symbol*>> by_source_;
  std::unordered_map<std::string_view, Symbol*> visible_;
  std::unordered_set<std::string> names_;
  std::vector<Body> functions_;
  std::vector<const Symbol*> variables_;
  Layout common_;
  std::unordered_map<const syntax::Function*, Layout> kernels_;
};

}  // namespace plexrl::simgpu::ptx
