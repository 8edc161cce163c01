#include "tools/simgpu/driver/module.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "tools/simgpu/driver/device_memory.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/image.h"

namespace plexrl::simgpu {
namespace {

// Living handles. A handle is looked at only if it is in here (functions: see module.h).
struct Registry {
  std::mutex mutex;
  std::unordered_set<const void*> modules;
  std::unordered_set<const void*> libraries;
  std::unordered_map<const ptx::Kernel*, Function*> functions;
  /// What still has the handle of one of these gets an error.
  std::vector<std::unique_ptr<Function>> unloaded;
  std::vector<std::unique_ptr<Kernel>> unloaded_kernels;
};

Registry& registry() {
  static Registry* const instance = new Registry;  // used by threads that outlive static objects
  return *instance;
}

bool write_device(int device, CUdeviceptr address, const std::byte* bytes, std::size_t count) {
  while (count > 0) {
    std::uint64_t contiguous = 0;
    std::byte* const host = driver()->addresses.translate(device, address, &contiguous);
    if (host == nullptr) return false;
    const std::size_t part = std::min<std::size_t>(count, contiguous);
    std::memcpy(host, bytes, part);
    address += part;
    bytes += part;
    count -= part;
  }
  return true;
}

}  // namespace

CUresult Image::create(Context* context, std::unique_ptr<ptx::Module> code,
                       std::shared_ptr<ManagedVariables> managed, std::shared_ptr<Image>* image) {
  std::shared_ptr<Image> made(new Image(context, std::move(code), std::move(managed)));
  if (const CUresult result = made->place_variables(); result != CUDA_SUCCESS) return result;
  *image = std::move(made);
  return CUDA_SUCCESS;
}

Image::~Image() {
  // A destroyed context has taken its memory along.
  if (!context_->alive.load(std::memory_order_acquire)) return;
  for (const Global& global : globals_) {
    if (!global.is_managed) free_device(global.address);
  }
}

CUresult Image::place_variable(const ptx::Variable& variable, CUdeviceptr* address, bool* is_new) {
  if (variable.is_managed)
    return managed_->place(variable.name, variable.bytes, context_->device, address, is_new);
  *is_new = true;
  std::uint64_t made = 0;
  const std::size_t bytes = std::max<std::size_t>(variable.bytes, 1);
  const CUresult result = allocate_device(context_, bytes, &made);
  if (result == CUDA_SUCCESS) *address = made;
  return result;
}

CUresult Image::place_variables() {
  std::vector<const ptx::Variable*> unfilled;
  for (const ptx::Variable& variable : code_->variables()) {
    CUdeviceptr address = 0;
    bool is_new = false;
    const CUresult result = place_variable(variable, &address, &is_new);
    if (result != CUDA_SUCCESS) return result;
    globals_.push_back({variable.name, address, variable.bytes, variable.is_managed});
    code_->set_address(variable.name, address);
    if (is_new) unfilled.push_back(&variable);
  }
  for (const ptx::Variable* variable : unfilled) {
    const CUresult result = fill_variable(*variable, address_of(variable->name));
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult Image::fill_variable(const ptx::Variable& variable, CUdeviceptr address) const {
  std::vector<std::byte> bytes = variable.initial;
  bytes.resize(variable.bytes);
  for (const ptx::Variable::Relocation& relocation : variable.relocations) {
    const std::uint64_t value = address_of(relocation.symbol) + relocation.addend;
    if (relocation.offset + sizeof(value) > bytes.size()) return CUDA_ERROR_INVALID_PTX;
    std::memcpy(bytes.data() + relocation.offset, &value, sizeof(value));
  }
  const bool is_written = write_device(context_->device, address, bytes.data(), bytes.size());
  return is_written ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

const Image::Global* Image::find_global(std::string_view name) const {
  const auto found = std::ranges::find(globals_, name, &Global::name);
  return found == globals_.end() ? nullptr : &*found;
}

CUdeviceptr Image::address_of(const std::string& symbol) const {
  const Global* const global = find_global(symbol);
  return global != nullptr ? global->address : code_->function_address(symbol);
}

CUresult make_module(Context* context, std::unique_ptr<ptx::Module> code,
                     std::shared_ptr<ManagedVariables> managed, Module** module) {
  auto made = std::make_unique<Module>();
  const CUresult result = Image::create(context, std::move(code), std::move(managed), &made->image);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(registry().mutex);
  for (const ptx::Kernel* kernel : made->image->code().kernels()) {
    auto* const function = new Function;
    function->module = made.get();
    function->kernel = kernel;
    function->image = made->image;
    made->functions.emplace(ptx::info(*kernel).name, function);
    registry().functions[kernel] = function;
  }
  registry().modules.insert(made.get());
  *module = made.release();
  return CUDA_SUCCESS;
}

CUresult load_module(Context* context, const std::vector<std::string>& sources,
                     std::shared_ptr<ManagedVariables> managed, std::string* log, Module** module) {
  std::unique_ptr<ptx::Module> code;
  const CUresult result = load_ptx(sources, driver()->machine->spec().sm, &code, log);
  if (result != CUDA_SUCCESS) return result;
  const CUresult made = make_module(context, std::move(code), std::move(managed), module);
  if (made != CUDA_SUCCESS) return made;
  const NativeKernel* const native = native_kernel(sources);
  for (const auto& [name, function] : (*module)->functions) function->native = native;
  return CUDA_SUCCESS;
}

void unload_module(Module* module) {
  std::shared_ptr<Image> last;  // goes after the lock
  {
    const std::lock_guard lock(registry().mutex);
    registry().modules.erase(module);
    for (const auto& [name, function] : module->functions) {
      registry().functions.erase(function->kernel);
      function->image.reset();
      function->module = nullptr;
      registry().unloaded.emplace_back(function);
    }
    last = std::move(module->image);
  }
  delete module;
}

Module* find_module(CUmodule handle) {
  const std::lock_guard lock(registry().mutex);
  return registry().modules.contains(handle) ? reinterpret_cast<Module*>(handle) : nullptr;
}

void add_library(Library* library) {
  const std::lock_guard lock(registry().mutex);
  registry().libraries.insert(library);
}

void remove_library(Library* library) {
  const std::lock_guard lock(registry().mutex);
  registry().libraries.erase(library);
  for (Kernel* const kernel : library->kernels) {
    kernel->library = nullptr;
    registry().unloaded_kernels.emplace_back(kernel);
  }
  library->kernels.clear();
}

Library* find_library(CUlibrary handle) {
  const std::lock_guard lock(registry().mutex);
  return registry().libraries.contains(handle) ? reinterpret_cast<Library*>(handle) : nullptr;
}

CUresult library_module(Library* library, Context* context, Module** module) {
  const std::lock_guard lock(library->mutex);
  if (const auto found = library->modules.find(context); found != library->modules.end()) {
    *module = found->second;
    return CUDA_SUCCESS;
  }
  std::string log;
  const CUresult result =
      library->spare != nullptr
          ? make_module(context, std::move(library->spare), library->managed, module)
          : load_module(context, library->sources, library->managed, &log, module);
  if (result != CUDA_SUCCESS) return result;
  (*module)->library = library;
  library->modules.emplace(context, *module);
  return CUDA_SUCCESS;
}

CUresult find_function(CUfunction handle, Context* context, Function** function) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto tag = *reinterpret_cast<const FunctionTag*>(handle);
  if (tag == FunctionTag::kFunction) {
    auto* const found = reinterpret_cast<Function*>(handle);
    if (found->image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *function = found;
    return CUDA_SUCCESS;
  }
  Kernel* const kernel = find_kernel(reinterpret_cast<CUkernel>(handle));
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Module* module = nullptr;
  const CUresult result = library_module(kernel->library, context, &module);
  if (result != CUDA_SUCCESS) return result;
  *function = module->functions.find(kernel->name)->second;
  return CUDA_SUCCESS;
}

Kernel* find_kernel(CUkernel handle) {
  if (handle == nullptr) return nullptr;
  auto* const kernel = reinterpret_cast<Kernel*>(handle);
  return kernel->tag == FunctionTag::kKernel && kernel->library != nullptr ? kernel : nullptr;
}

Function* function_of(const ptx::Kernel* kernel) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().functions.find(kernel);
  return found == registry().functions.end() ? nullptr : found->second;
}

}  // namespace plexrl::simgpu
