#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tools/simgpu/driver/context.h"
#include "tools/simgpu/driver/cuda_api.h"
#include "tools/simgpu/driver/managed.h"
#include "tools/simgpu/driver/native_kernel.h"
#include "tools/simgpu/ptx/executor.h"

/// Modules, libraries and their functions: what CUmodule, CUlibrary, CUfunction and CUkernel point
/// to.
///
/// Handles are addresses of these objects. Functions and kernels are never freed (they are small),
/// so that a handle from before an unload is recognised: it has lost its image.
namespace plexrl::simgpu {

struct Library;

/// Loaded code in one context, with the device memory of its variables. Shared by the module and by
/// the launches in flight: the last one gives the memory back.
class Image {
 public:
  struct Global {
    std::string name;
    CUdeviceptr address;
    std::size_t bytes;
    bool is_managed;
  };

  /// Takes device memory for the variables and fills them. Managed variables are shared by all who
  /// have `managed`.
  static CUresult create(Context* context, std::unique_ptr<ptx::Module> code,
                         std::shared_ptr<ManagedVariables> managed, std::shared_ptr<Image>* image);
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  Context* context() const { return context_; }
  const ptx::Module& code() const { return *code_; }
  const Global* find_global(std::string_view name) const;

 private:
  Image(Context* context, std::unique_ptr<ptx::Module> code,
        std::shared_ptr<ManagedVariables> managed)
      : context_(context), code_(std::move(code)), managed_(std::move(managed)) {}
  CUresult place_variables();
  CUresult place_variable(const ptx::Variable& variable, CUdeviceptr* address, bool* is_new);
  CUresult fill_variable(const ptx::Variable& variable, CUdeviceptr address) const;
  CUdeviceptr address_of(const std::string& symbol) const;

  Context* const context_;
  std::unique_ptr<ptx::Module> code_;
  std::shared_ptr<ManagedVariables> managed_;
  std::vector<Global> globals_;
};

/// What cuFuncSetAttribute and cuFuncSetCacheConfig keep.
struct FunctionSettings {
  std::atomic<int> max_dynamic_shared{48 << 10};
  std::atomic<int> carveout{-1};
};

struct Module;

/// First word of everything that a CUfunction may point to.
enum class FunctionTag : std::uint32_t { kFunction = 0x4e554621, kKernel = 0x4e52454b };

/// What the calls before cuLaunchKernel (cuParamSet*, cuFuncSetBlockShape …) have set for the next
/// launch. They were never safe to use from several threads at once.
struct OldLaunch {
  std::vector<std::byte> arguments;
  std::size_t argument_bytes = 0;
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
};

/// A CUfunction: a kernel of one module.
struct Function {
  const FunctionTag tag = FunctionTag::kFunction;
  Module* module = nullptr;
  const ptx::Kernel* kernel = nullptr;
  const NativeKernel* native = nullptr;  ///< that runs instead
  std::shared_ptr<Image> image;          ///< nullptr after the module was unloaded
  FunctionSettings settings;
  OldLaunch old_launch;
};

/// A CUmodule.
struct Module {
  std::shared_ptr<Image> image;
  std::map<std::string, Function*, std::less<>> functions;  ///< every kernel, by name
  Library* library = nullptr;                               ///< of which this is one context's part
};

/// A CUkernel: a kernel of a library, in whatever context.
struct Kernel {
  const FunctionTag tag = FunctionTag::kKernel;
  Library* library = nullptr;  ///< nullptr after the library was unloaded
  std::string name;
};

/// A CUlibrary: code that becomes a module in each context that uses it.
struct Library {
  std::vector<std::string> sources;
  std::unique_ptr<ptx::Module> spare;  ///< loaded to check the sources; the first context takes it
  std::vector<Kernel*> kernels;
  std::mutex mutex;
  std::map<Context*, Module*> modules;
  std::shared_ptr<ManagedVariables> managed = std::make_shared<ManagedVariables>();
};

/// Loads PTX texts into a context as a module. `log` gets what is wrong with them.
CUresult load_module(Context* context, const std::vector<std::string>& sources,
                     std::shared_ptr<ManagedVariables> managed, std::string* log, Module** module);
CUresult make_module(Context* context, std::unique_ptr<ptx::Module> code,
                     std::shared_ptr<ManagedVariables> managed, Module** module);
/// Takes the handle out of use; the code stays until its last launch has ended.
void unload_module(Module* module);
/// A living module of this process, or nullptr.
Module* find_module(CUmodule handle);

void add_library(Library* library);
/// Takes the library's handle and its kernels' out of use.
void remove_library(Library* library);
Library* find_library(CUlibrary handle);
/// The library's module in `context`, loaded on first use.
CUresult library_module(Library* library, Context* context, Module** module);

/// The function that a CUfunction, or a CUkernel passed for one, means in `context`. INVALID_HANDLE
/// for null and for what was unloaded.
CUresult find_function(CUfunction handle, Context* context, Function** function);
/// A CUkernel that lives, or nullptr.
Kernel* find_kernel(CUkernel handle);
/// The function whose code this is; nullptr when its module is gone.
Function* function_of(const ptx::Kernel* kernel);

}  // namespace plexrl::simgpu
