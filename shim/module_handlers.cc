#include "interpose/driver.h"
#include "interpose/handlers.h"
#include "shim/room.h"

/// Modules and libraries. They take HBM that the driver owns (part of a process's overhead, which
/// is agreed on at admission), and need no lease as long as there is room: loading submits nothing
/// of the job's. What loads late is of class room, or a launch.

namespace plexrl::shim {

CUresult cuModuleLoad(CUmodule* module, const char* fname) noexcept {
  return call_with_room([&] { return driver.cuModuleLoad(module, fname); });
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) noexcept {
  return call_with_room([&] { return driver.cuModuleLoadData(module, image); });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) noexcept {
  return call_with_room(
      [&] { return driver.cuModuleLoadDataEx(module, image, numOptions, options, optionValues); });
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) noexcept {
  return call_with_room([&] { return driver.cuModuleLoadFatBinary(module, fatCubin); });
}

CUresult cuModuleUnload(CUmodule hmod) noexcept { return driver.cuModuleUnload(hmod); }

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption* libraryOptions, void** libraryOptionValues,
                           unsigned int numLibraryOptions) noexcept {
  return call_with_room([&] {
    return driver.cuLibraryLoadData(library, code, jitOptions, jitOptionsValues, numJitOptions,
                                    libraryOptions, libraryOptionValues, numLibraryOptions);
  });
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption* libraryOptions, void** libraryOptionValues,
                               unsigned int numLibraryOptions) noexcept {
  return call_with_room([&] {
    return driver.cuLibraryLoadFromFile(library, fileName, jitOptions, jitOptionsValues,
                                        numJitOptions, libraryOptions, libraryOptionValues,
                                        numLibraryOptions);
  });
}

CUresult cuLibraryUnload(CUlibrary library) noexcept { return driver.cuLibraryUnload(library); }

}  // namespace plexrl::shim
