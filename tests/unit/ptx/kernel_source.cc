#include "tests/unit/ptx/kernel_source.h"

#include <dlfcn.h>

#include <fstream>
#include <map>
#include <sstream>

namespace plexrl::simgpu::ptx {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return in ? text.str() : std::string();
}

/// The few NVRTC functions that are needed, by name; nvrtcProgram is an opaque pointer, results are
/// ints, 0 is success.
struct Nvrtc {
  void* library = nullptr;
  int (*create)(void**, const char*, const char*, int, const char* const*,
                const char* const*) = nullptr;
  int (*compile)(void*, int, const char* const*) = nullptr;
  int (*log_size)(void*, std::size_t*) = nullptr;
  int (*log)(void*, char*) = nullptr;
  int (*ptx_size)(void*, std::size_t*) = nullptr;
  int (*ptx)(void*, char*) = nullptr;
  int (*destroy)(void**) = nullptr;

  Nvrtc() {
    for (const char* name : {PLEXRL_NVRTC, PLEXRL_CUDA_HOME "/lib64/libnvrtc.so"}) {
      if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == nullptr) return;
    find(create, "nvrtcCreateProgram");
    find(compile, "nvrtcCompileProgram");
    find(log_size, "nvrtcGetProgramLogSize");
    find(log, "nvrtcGetProgramLog");
    find(ptx_size, "nvrtcGetPTXSize");
    find(ptx, "nvrtcGetPTX");
    find(destroy, "nvrtcDestroyProgram");
  }
  template <typename F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(library, name));
    if (function == nullptr) library = nullptr;
  }
};

std::string compile_with_nvrtc(const std::string& name, bool for_debugging, std::string* reason) {
  static Nvrtc nvrtc;
  if (nvrtc.library == nullptr) {
    *reason = "no libnvrtc in " PLEXRL_CUDA_HOME;
    return {};
  }
  const std::string source = read_file(PLEXRL_PTX_KERNEL_SOURCES "/" + name + ".cu");
  void* program = nullptr;
  if (nvrtc.create(&program, source.c_str(), name.c_str(), 0, nullptr, nullptr) != 0) {
    *reason = "nvrtcCreateProgram failed";
    return {};
  }
  std::vector<const char*> options = {"--gpu-architecture=compute_75",
                                      "-I" PLEXRL_CUDA_HOME "/include",
                                      "-I" PLEXRL_CUDA_HOME "/include/cccl"};
  if (for_debugging) options.push_back("-G");
  const int result = nvrtc.compile(program, static_cast<int>(options.size()), options.data());
  std::size_t size = 0;
  std::string text;
  if (result != 0) {
    nvrtc.log_size(program, &size);
    text.resize(size);
    nvrtc.log(program, text.data());
    *reason = "NVRTC can't compile " + name + ": " + text;
    text.clear();
  } else {
    nvrtc.ptx_size(program, &size);
    text.resize(size);
    nvrtc.ptx(program, text.data());
  }
  nvrtc.destroy(&program);
  return text;
}

}  // namespace

std::vector<std::string> compile_variants() { return {"O3", "G", "nvrtc", "nvrtcG"}; }

std::string kernel_ptx(const std::string& name, const std::string& variant, std::string* reason) {
  static std::map<std::string, std::string> known;
  std::string& text = known[variant + "/" + name];
  if (!text.empty()) return text;
  if (variant.starts_with("nvrtc")) {
    text = compile_with_nvrtc(name, variant == "nvrtcG", reason);
  } else {
    text = read_file(PLEXRL_PTX_KERNEL_DIR "/" + name + "." + variant + ".ptx");
    if (text.empty()) *reason = "no nvcc when the tests were built";
  }
  return text;
}

}  // namespace plexrl::simgpu::ptx
