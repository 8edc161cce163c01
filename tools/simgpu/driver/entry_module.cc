#include <chrono>

#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/image.h"
#include "tools/simgpu/driver/module.h"
#include "tools/simgpu/driver/stream.h"

// "Module Management" of the driver API. Texture and surface references have gone from what CUDA 13
// compiles; their lookups answer NOT_SUPPORTED.

namespace plexrl::simgpu {
namespace {

class StopWatch {
 public:
  float milliseconds() const {
    return std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

CUresult load(Context* context, const void* image, std::size_t bytes, const JitOptions& options,
              CUmodule* handle) {
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  const StopWatch watch;
  std::vector<std::string> sources;
  CUresult result = read_image(image, bytes, driver()->machine->spec().sm, &sources);
  Module* module = nullptr;
  std::string log;
  if (result == CUDA_SUCCESS) {
    result = load_module(context, sources, std::make_shared<ManagedVariables>(), &log, &module);
  }
  options.report(log, "", watch.milliseconds());
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUmodule>(module);
  return result;
}

CUresult load_data(Context* context, CUmodule* module, const void* image,
                   const JitOptions& options) {
  if (module == nullptr || image == nullptr || !options.is_valid()) return CUDA_ERROR_INVALID_VALUE;
  return load(context, image, 0, options, module);
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char* fname) {
  SIMGPU_ENTER_CONTEXT(cuModuleLoad);
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string bytes;
  if (const CUresult result = read_file(fname, &bytes); result != CUDA_SUCCESS) return result;
  if (bytes.empty()) return CUDA_ERROR_INVALID_IMAGE;
  return load(context, bytes.data(), bytes.size(), {}, module);
}

SIMGPU_EXPORT CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  SIMGPU_ENTER_CONTEXT(cuModuleLoadData);
  return load_data(context, module, image, {});
}

SIMGPU_EXPORT CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image,
                                                  unsigned int numOptions, CUjit_option* options,
                                                  void** optionValues) {
  SIMGPU_ENTER_CONTEXT(cuModuleLoadDataEx);
  return load_data(context, module, image, {numOptions, options, optionValues});
}

SIMGPU_EXPORT CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  SIMGPU_ENTER_CONTEXT(cuModuleLoadFatBinary);
  return load_data(context, module, fatCubin, {});
}

SIMGPU_EXPORT CUresult CUDAAPI cuModuleUnload(CUmodule hmod) {
  SIMGPU_ENTER(cuModuleUnload);
  Module* const module = find_module(hmod);
  // A library's modules go with the library.
  if (module == nullptr || module->library != nullptr) return CUDA_ERROR_INVALID_HANDLE;
  unload_module(module);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  SIMGPU_ENTER(cuModuleGetLoadingMode);
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod,
                                                   const char* name) {
  SIMGPU_ENTER_CONTEXT(cuModuleGetFunction);
  if (hfunc == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Module* const module = find_module(hmod);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto found = module->functions.find(name);
  if (found == module->functions.end()) return CUDA_ERROR_NOT_FOUND;
  *hfunc = reinterpret_cast<CUfunction>(found->second);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  SIMGPU_ENTER(cuModuleGetFunctionCount);
  const Module* const module = find_module(mod);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(module->functions.size());
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuModuleEnumerateFunctions(CUfunction* functions,
                                                          unsigned int numFunctions, CUmodule mod) {
  SIMGPU_ENTER(cuModuleEnumerateFunctions);
  const Module* const module = find_module(mod);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& [name, function] : module->functions) {
    if (numFunctions-- == 0) break;
    *functions++ = reinterpret_cast<CUfunction>(function);
  }
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod,
                                                    const char* name) {
  SIMGPU_ENTER_CONTEXT(cuModuleGetGlobal_v2);
  // "If one of them is NULL, it is ignored"; nothing asked for is an error.
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const Module* const module = find_module(hmod);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Image::Global* const global = module->image->find_global(name);
  if (global == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (dptr != nullptr) *dptr = global->address;
  if (bytes != nullptr) *bytes = global->bytes;
  return CUDA_SUCCESS;
}
