#include "tools/simgpu/driver/entry_points.h"

#include "tools/simgpu/driver/cuda_api.h"
// Needs the switches of cuda_api.h.
#include <cudaTypedefs.h>

#include <algorithm>
#include <iterator>
#include <type_traits>

namespace plexrl::simgpu {
namespace {

#define ENTRY(base, since, is_per_thread, symbol, type)    \
  static_assert(std::is_same_v<decltype(&(symbol)), type>, \
                #symbol " is not the form that " #type " describes");
#include "tools/simgpu/driver/entry_points.inc"
#undef ENTRY

#define ENTRY(base, since, is_per_thread, symbol, type) \
  {base, since, is_per_thread, #symbol, reinterpret_cast<void*>(&(symbol))},
const EntryPoint kEntryPoints[] = {
#include "tools/simgpu/driver/entry_points.inc"
};
#undef ENTRY

}  // namespace

int driver_version() noexcept { return CUDA_VERSION; }

std::span<const EntryPoint> entry_points() noexcept { return kEntryPoints; }

Lookup find_entry_point(std::string_view base, int version, bool wants_per_thread,
                        const EntryPoint** found) noexcept {
  const EntryPoint* best = nullptr;
  bool is_known = false;
  const EntryPoint* const end = std::end(kEntryPoints);
  const EntryPoint* next = std::ranges::lower_bound(kEntryPoints, base, {}, &EntryPoint::base);
  for (; next != end && next->base == base; ++next) {
    const EntryPoint& row = *next;
    if (row.is_per_thread && !wants_per_thread) continue;
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
