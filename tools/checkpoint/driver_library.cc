#include "tools/checkpoint/driver_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

namespace plexrl::checkpoint {
namespace {

std::string library_path() {
  if (std::getenv("PLEXRL_SIMGPU") == nullptr) return "libcuda.so.1";
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  for (auto folder = program.parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    const auto library = folder / "lib/plexrl/simgpu/libcuda.so.1";
    if (std::filesystem::exists(library, error)) return library;
  }
  return "lib/plexrl/simgpu/libcuda.so.1";
}

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

bool open_driver(DriverLibrary* library, std::string* why) {
  const std::string path = library_path();
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    *why = ::dlerror();
    return false;
  }
  if (!find(handle, "cuInit", library->init) ||
      !find(handle, "cuGetErrorName", library->error_name) ||
      !find(handle, "cuCheckpointProcessGetState", library->state) ||
      !find(handle, "cuCheckpointProcessLock", library->lock) ||
      !find(handle, "cuCheckpointProcessCheckpoint", library->checkpoint) ||
      !find(handle, "cuCheckpointProcessRestore", library->restore) ||
      !find(handle, "cuCheckpointProcessUnlock", library->unlock)) {
    *why = "the driver has no checkpoints: CUDA 12.8 (driver 570) is the first that has";
    return false;
  }
  // A restore needs an initialised driver, or persistence mode (cuda.h).
  if (const CUresult result = library->init(0); result != CUDA_SUCCESS) {
    *why = "cuInit: error " + std::to_string(result);
    return false;
  }
  return true;
}

}  // namespace plexrl::checkpoint
