// What makes the simulated libcuda.so.1 a newer one than the preload's table knows: it says that it
// is of CUDA 13.2, and has a launch function of a new name (cuLaunchWave) and a newer form of an
// old one (cuLaunchKernel_v2). Linked with the simulated driver's objects in place of
// entry_points.cc.

#include "tools/simgpu/driver/cuda_api.h"
// Needs the switches of cuda_api.h.
#include <cudaTypedefs.h>

#include <iterator>

#include "tools/simgpu/driver/entry_points.h"

#define NEWER_EXPORT [[gnu::visibility("default")]]

extern "C" {

NEWER_EXPORT CUresult CUDAAPI cuLaunchWave(CUfunction f, unsigned int blocks, unsigned int threads,
                                           CUstream stream, void** params) {
  return cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, stream, params, nullptr);
}

NEWER_EXPORT CUresult CUDAAPI cuLaunchKernel_v2(CUfunction f, unsigned int blocks,
                                                unsigned int threads, CUstream stream,
                                                void** params, unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, stream, params, nullptr);
}

}  // extern "C"

namespace plexrl::simgpu {
namespace {

constexpr int kNewer = 13020;

#define ENTRY(base, since, is_per_thread, symbol, type) \
  {base, since, is_per_thread, #symbol, reinterpret_cast<void*>(&(symbol))},
const EntryPoint kEntryPoints[] = {
    // Newest first: the first that is old enough is the one asked for.
    {"cuLaunchKernel", kNewer, false, "cuLaunchKernel_v2",
     reinterpret_cast<void*>(&cuLaunchKernel_v2)},
    {"cuLaunchWave", kNewer, false, "cuLaunchWave", reinterpret_cast<void*>(&cuLaunchWave)},
#include "tools/simgpu/driver/entry_points.inc"
};
#undef ENTRY

}  // namespace

int driver_version() noexcept { return kNewer; }

std::span<const EntryPoint> entry_points() noexcept { return kEntryPoints; }

Lookup find_entry_point(std::string_view base, int version, bool wants_per_thread,
                        const EntryPoint** found) noexcept {
  const EntryPoint* best = nullptr;
  bool is_known = false;
  for (const EntryPoint& row : kEntryPoints) {
    if (row.base != base || (row.is_per_thread && !wants_per_thread)) continue;
    is_known = true;
    if (row.since > version) continue;
    const bool is_better = best == nullptr || (row.is_per_thread && !best->is_per_thread) ||
                           (row.is_per_thread == best->is_per_thread && row.since > best->since);
    if (is_better) best = &row;
  }
  if (!is_known) return Lookup::kNotFound;
  if (best == nullptr) return Lookup::kVersionNotSufficient;
  *found = best;
  return Lookup::kFound;
}

}  // namespace plexrl::simgpu
