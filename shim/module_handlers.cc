#include "interpose/driver.h"
#include "interpose/handlers.h"
#include "shim/contexts.h"
#include "shim/guarded.h"
#include "shim/room.h"

/// Modules and libraries. They take HBM that the driver owns (part of a process's overhead, which
/// is agreed on at admission), and need no lease as long as there is room: loading submits nothing
/// of the job's. With lazy loading (CUDA_MODULE_LOADING) the first question for a function or a
/// variable is what loads it.

namespace plexrl::shim {
namespace {

template <typename Load>
CUresult load(Load call) noexcept {
  return guarded([&] {
    const auto current = current_context();
    return current ? with_room(current->device, call) : call();
  });
}

/// Mostly there is nothing left to load, and nothing else to do.
template <typename Find>
CUresult find(Find call) noexcept {
  const CUresult result = call();
  return result == CUDA_ERROR_OUT_OF_MEMORY ? load(call) : result;
}

}  // namespace

CUresult cuModuleLoad(CUmodule* module, const char* fname) noexcept {
  return load([&] { return driver.cuModuleLoad(module, fname); });
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) noexcept {
  return load([&] { return driver.cuModuleLoadData(module, image); });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) noexcept {
  return load(
      [&] { return driver.cuModuleLoadDataEx(module, image, numOptions, options, optionValues); });
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) noexcept {
  return load([&] { return driver.cuModuleLoadFatBinary(module, fatCubin); });
}

CUresult cuModuleUnload(CUmodule hmod) noexcept { return driver.cuModuleUnload(hmod); }

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption* libraryOptions, void** libraryOptionValues,
                           unsigned int numLibraryOptions) noexcept {
  return load([&] {
    return driver.cuLibraryLoadData(library, code, jitOptions, jitOptionsValues, numJitOptions,
                                    libraryOptions, libraryOptionValues, numLibraryOptions);
  });
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption* libraryOptions, void** libraryOptionValues,
                               unsigned int numLibraryOptions) noexcept {
  return load([&] {
    return driver.cuLibraryLoadFromFile(library, fileName, jitOptions, jitOptionsValues,
                                        numJitOptions, libraryOptions, libraryOptionValues,
                                        numLibraryOptions);
  });
}

CUresult cuLibraryUnload(CUlibrary library) noexcept { return driver.cuLibraryUnload(library); }

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) noexcept {
  return find([&] { return driver.cuModuleGetFunction(hfunc, hmod, name); });
}

CUresult cuModuleGetGlobal(CUdeviceptr_v1* dptr, unsigned int* bytes, CUmodule hmod,
                           const char* name) noexcept {
  return find([&] { return driver.cuModuleGetGlobal(dptr, bytes, hmod, name); });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod,
                              const char* name) noexcept {
  return find([&] { return driver.cuModuleGetGlobal_v2(dptr, bytes, hmod, name); });
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) noexcept {
  return find([&] { return driver.cuLibraryGetModule(pMod, library); });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                            const char* name) noexcept {
  return find([&] { return driver.cuLibraryGetGlobal(dptr, bytes, library, name); });
}

CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                             const char* name) noexcept {
  return find([&] { return driver.cuLibraryGetManaged(dptr, bytes, library, name); });
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) noexcept {
  return find([&] { return driver.cuKernelGetFunction(pFunc, kernel); });
}

CUresult cuFuncLoad(CUfunction function) noexcept {
  return find([&] { return driver.cuFuncLoad(function); });
}

}  // namespace plexrl::shim
