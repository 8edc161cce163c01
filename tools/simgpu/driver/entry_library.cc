#include <algorithm>
#include <cstring>

#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/function_attributes.h"
#include "tools/simgpu/driver/image.h"
#include "tools/simgpu/driver/module.h"

// "Library Management" of the driver API: code that belongs to no context.

namespace plexrl::simgpu {
namespace {

CUresult make_library(std::vector<std::string> sources, const JitOptions& options,
                      CUlibrary* handle) {
  auto library = std::make_unique<Library>();
  std::string log;
  const CUresult result = load_ptx(sources, driver()->machine->spec().sm, &library->spare, &log);
  options.report(log, "", 0);
  if (result != CUDA_SUCCESS) return result;
  library->sources = std::move(sources);
  for (const ptx::Kernel* code : library->spare->kernels()) {
    auto* const kernel = new Kernel;
    kernel->library = library.get();
    kernel->name = ptx::info(*code).name;
    library->kernels.push_back(kernel);
  }
  add_library(library.get());
  *handle = reinterpret_cast<CUlibrary>(library.release());
  return CUDA_SUCCESS;
}

CUresult load_library(CUlibrary* library, const void* image, std::size_t bytes,
                      const JitOptions& options) {
  std::vector<std::string> sources;
  const CUresult result = read_image(image, bytes, driver()->machine->spec().sm, &sources);
  return result != CUDA_SUCCESS ? result : make_library(std::move(sources), options, library);
}

// The function that a kernel is in the current context.
CUresult current_function(CUkernel kernel, Context* context, Function** function) {
  if (find_kernel(kernel) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return find_function(reinterpret_cast<CUfunction>(kernel), context, function);
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* code,
                                                 CUjit_option* jitOptions, void** jitOptionsValues,
                                                 unsigned int numJitOptions, CUlibraryOption*,
                                                 void**, unsigned int) {
  SIMGPU_ENTER(cuLibraryLoadData);
  const JitOptions options(numJitOptions, jitOptions, jitOptionsValues);
  if (library == nullptr || code == nullptr || !options.is_valid()) return CUDA_ERROR_INVALID_VALUE;
  return load_library(library, code, 0, options);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary* library, const char* fileName,
                                                     CUjit_option* jitOptions,
                                                     void** jitOptionsValues,
                                                     unsigned int numJitOptions, CUlibraryOption*,
                                                     void**, unsigned int) {
  SIMGPU_ENTER(cuLibraryLoadFromFile);
  const JitOptions options(numJitOptions, jitOptions, jitOptionsValues);
  if (library == nullptr || !options.is_valid()) return CUDA_ERROR_INVALID_VALUE;
  std::string bytes;
  if (const CUresult result = read_file(fileName, &bytes); result != CUDA_SUCCESS) return result;
  if (bytes.empty()) return CUDA_ERROR_INVALID_IMAGE;
  return load_library(library, bytes.data(), bytes.size(), options);
}

SIMGPU_EXPORT CUresult CUDAAPI cuLibraryUnload(CUlibrary handle) {
  SIMGPU_ENTER(cuLibraryUnload);
  Library* const library = find_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  remove_library(library);
  for (const auto& [context, module] : library->modules) unload_module(module);
  delete library;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuLibraryGetKernel(CUkernel* pKernel, CUlibrary handle,
                                                  const char* name) {
  SIMGPU_ENTER(cuLibraryGetKernel);
  if (pKernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Library* const library = find_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto found =
      std::ranges::find(library->kernels, name, [](const Kernel* kernel) { return kernel->name; });
  if (found == library->kernels.end()) return CUDA_ERROR_NOT_FOUND;
  *pKernel = reinterpret_cast<CUkernel>(*found);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  SIMGPU_ENTER(cuLibraryGetKernelCount);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Library* const library = find_library(lib);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(library->kernels.size());
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels,
                                                         CUlibrary lib) {
  SIMGPU_ENTER(cuLibraryEnumerateKernels);
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Library* const library = find_library(lib);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::size_t count = std::min<std::size_t>(numKernels, library->kernels.size());
  for (std::size_t i = 0; i < count; ++i) {
    kernels[i] = reinterpret_cast<CUkernel>(library->kernels[i]);
  }
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuLibraryGetModule(CUmodule* pMod, CUlibrary handle) {
  SIMGPU_ENTER_CONTEXT(cuLibraryGetModule);
  if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Library* const library = find_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Module* module = nullptr;
  const CUresult result = library_module(library, context, &module);
  if (result == CUDA_SUCCESS) *pMod = reinterpret_cast<CUmodule>(module);
  return result;
}

SIMGPU_EXPORT CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes,
                                                  CUlibrary handle, const char* name) {
  SIMGPU_ENTER_CONTEXT(cuLibraryGetGlobal);
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  Library* const library = find_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Module* module = nullptr;
  const CUresult result = library_module(library, context, &module);
  if (result != CUDA_SUCCESS) return result;
  const Image::Global* const global = module->image->find_global(name);
  if (global == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (dptr != nullptr) *dptr = global->address;
  if (bytes != nullptr) *bytes = global->bytes;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes,
                                                   CUlibrary handle, const char* name) {
  SIMGPU_ENTER(cuLibraryGetManaged);
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const Library* const library = find_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // "Shared across devices and … registered when the library is loaded into at least one context"
  ManagedVariables::Variable variable;
  if (!library->managed->find(name, &variable)) return CUDA_ERROR_NOT_FOUND;
  if (dptr != nullptr) *dptr = variable.address;
  if (bytes != nullptr) *bytes = variable.bytes;
  return CUDA_SUCCESS;
}

// PTX has no unified functions.
SIMGPU_EXPORT CUresult CUDAAPI cuLibraryGetUnifiedFunction(void** fptr, CUlibrary library,
                                                           const char* symbol) {
  SIMGPU_ENTER(cuLibraryGetUnifiedFunction);
  if (fptr == nullptr || symbol == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return find_library(library) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_FOUND;
}

SIMGPU_EXPORT CUresult CUDAAPI cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  SIMGPU_ENTER_CONTEXT(cuKernelGetFunction);
  if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Function* function = nullptr;
  const CUresult result = current_function(kernel, context, &function);
  if (result == CUDA_SUCCESS) *pFunc = reinterpret_cast<CUfunction>(function);
  return result;
}

SIMGPU_EXPORT CUresult CUDAAPI cuKernelGetLibrary(CUlibrary* pLib, CUkernel handle) {
  SIMGPU_ENTER(cuKernelGetLibrary);
  if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Kernel* const kernel = find_kernel(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pLib = reinterpret_cast<CUlibrary>(kernel->library);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuKernelGetName(const char** name, CUkernel handle) {
  SIMGPU_ENTER(cuKernelGetName);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Kernel* const kernel = find_kernel(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex,
                                                    size_t* paramOffset, size_t* paramSize) {
  SIMGPU_ENTER_CONTEXT(cuKernelGetParamInfo);
  Function* function = nullptr;
  const CUresult result = current_function(kernel, context, &function);
  return result != CUDA_SUCCESS ? result
                                : parameter_info(*function, paramIndex, paramOffset, paramSize);
}

SIMGPU_EXPORT CUresult CUDAAPI cuKernelGetAttribute(int* pi, CUfunction_attribute attrib,
                                                    CUkernel kernel, CUdevice) {
  SIMGPU_ENTER_CONTEXT(cuKernelGetAttribute);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Function* function = nullptr;
  const CUresult result = current_function(kernel, context, &function);
  return result != CUDA_SUCCESS ? result : get_attribute(*function, attrib, pi);
}

SIMGPU_EXPORT CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attrib, int val,
                                                    CUkernel kernel, CUdevice) {
  SIMGPU_ENTER_CONTEXT(cuKernelSetAttribute);
  Function* function = nullptr;
  const CUresult result = current_function(kernel, context, &function);
  return result != CUDA_SUCCESS ? result : set_attribute(function, attrib, val);
}

SIMGPU_EXPORT CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config,
                                                      CUdevice) {
  SIMGPU_ENTER(cuKernelSetCacheConfig);
  if (find_kernel(kernel) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
