#include <algorithm>

#include "tools/simgpu/ptx/decoder.h"
#include "tools/simgpu/ptx/executor.h"
#include "tools/simgpu/ptx/failure.h"
#include "tools/simgpu/ptx/kernel.h"
#include "tools/simgpu/ptx/link.h"
#include "tools/simgpu/ptx/parser.h"

namespace plexrl::simgpu::ptx {

struct Module::Impl {
  Program program;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<Variable> variables;
  std::unordered_map<std::string, std::uint64_t> function_addresses;
};

namespace {

int declared_registers(const syntax::Function& function) {
  std::int64_t words = 0;
  for (const syntax::Register& reg : function.registers) words += bytes_of(reg.type) == 8 ? 2 : 1;
  return static_cast<int>(std::min<std::int64_t>(words, 255));
}

std::unique_ptr<Kernel> make_kernel(const Linker& linker, const syntax::Function& function,
                                    const Code* code, const Program* program) {
  auto kernel = std::make_unique<Kernel>();
  kernel->info.name = function.name;
  kernel->info.parameters = lay_out_parameters(function.signature);
  if (!kernel->info.parameters.empty()) {
    const Parameter& last = kernel->info.parameters.back();
    kernel->info.parameter_bytes = last.offset + last.bytes;
  }
  kernel->info.static_shared_bytes = linker.static_shared_bytes(function);
  kernel->info.local_bytes = code->local_bytes;
  kernel->info.registers = declared_registers(function);
  if (function.max_threads != 0) kernel->info.max_threads = function.max_threads;
  kernel->dynamic_base = linker.dynamic_base(function);
  kernel->code = code;
  kernel->program = program;
  return kernel;
}

}  // namespace

std::unique_ptr<Module> Module::load(std::span<const std::string_view> sources, int sm,
                                     LoadError* error, std::string* log) {
  try {
    auto impl = std::make_unique<Impl>();
    std::vector<syntax::Source> parsed;
    parsed.reserve(sources.size());
    for (std::string_view text : sources) {
      parsed.push_back(parse(text));
      if (parsed.back().target > sm) {
        throw Failure(LoadError::kTargetTooNew,
                      "target sm_" + std::to_string(parsed.back().target) +
                          " is above the device's sm_" + std::to_string(sm));
      }
    }
    const Linker linker(parsed);
    Program& program = impl->program;
    for (std::size_t i = 0; i < linker.functions().size(); ++i) {
      program.functions.push_back(std::make_unique<Code>());
      program.by_address.push_back(program.functions.back().get());
    }
    const Level& level = best_level();
    for (std::size_t i = 0; i < linker.functions().size(); ++i) {
      const Linker::Body& body = linker.functions()[i];
      Code& code = *program.functions[i];
      Decoder(linker, level, program, body.source, *body.function, code).run();
      impl->function_addresses.try_emplace(std::string(body.function->name),
                                           kFunctionWindow + i * kFunctionStep);
      if (body.function->is_entry) {
        impl->kernels.push_back(make_kernel(linker, *body.function, &code, &program));
        impl->kernels.back()->run = level.run;
      }
    }
    impl->variables = linker.variables();
    program.pool.freeze();
    *error = LoadError::kNone;
    return std::unique_ptr<Module>(new Module(std::move(impl)));
  } catch (const Failure& failure) {
    *error = failure.error;
    if (log != nullptr) *log = failure.message;
    return nullptr;
  }
}

Module::Module(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Module::~Module() = default;

const Kernel* Module::find_kernel(std::string_view name) const {
  for (const auto& kernel : impl_->kernels) {
    if (kernel->info.name == name) return kernel.get();
  }
  return nullptr;
}

std::vector<const Kernel*> Module::kernels() const {
  std::vector<const Kernel*> out;
  for (const auto& kernel : impl_->kernels) out.push_back(kernel.get());
  return out;
}

const std::vector<Variable>& Module::variables() const { return impl_->variables; }

void Module::set_address(std::string_view variable, std::uint64_t device_address) {
  impl_->program.pool.set_symbol(std::string(variable), device_address);
}

std::uint64_t Module::function_address(std::string_view name) const {
  const auto it = impl_->function_addresses.find(std::string(name));
  return it != impl_->function_addresses.end() ? it->second : 0;
}

const KernelInfo& info(const Kernel& kernel) { return kernel.info; }

}  // namespace plexrl::simgpu::ptx
