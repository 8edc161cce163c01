#include "tests/workloads/rlvr/driver.h"

#include <dlfcn.h>

namespace plexrl::workloads::rlvr {
namespace {

// The version decides which signature cuGetProcAddress hands out; it is the one cuda.h declares.
constexpr int kVersion = 12000;

Driver load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) throw DriverError(std::string("no CUDA driver: ") + dlerror());
  auto lookup =
      reinterpret_cast<decltype(&::cuGetProcAddress)>(dlsym(library, "cuGetProcAddress_v2"));
  if (lookup == nullptr) throw DriverError("libcuda.so.1 is older than CUDA 12");
  Driver d;
#define X(name)                                                                                 \
  if (lookup(#name, reinterpret_cast<void**>(&d.name), kVersion, 0, nullptr) != CUDA_SUCCESS || \
      d.name == nullptr)                                                                        \
    throw DriverError("libcuda.so.1 has no " #name);
  PLEXRL_RLVR_CALLS(X)
#undef X
  return d;
}

}  // namespace

const Driver& driver() {
  static const Driver d = load();
  return d;
}

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (driver().cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr)
    name = "unknown error";
  throw DriverError(std::string(call) + ": " + name);
}

}  // namespace plexrl::workloads::rlvr
