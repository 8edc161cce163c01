#pragma once

#include <span>
#include <string_view>

/// What cuGetProcAddress can hand out. The rows come from NVIDIA's headers (entry_points.py), so a
/// new function of cuda.h needs none here.
namespace plexrl::simgpu {

/// The version that cuDriverGetVersion reports: that of the headers this driver was built with.
int driver_version() noexcept;

/// One form of a function: "cuMemAlloc" since 3020 is the exported symbol cuMemAlloc_v2.
struct EntryPoint {
  std::string_view base;
  int since;           ///< 1000 * major + 10 * minor
  bool is_per_thread;  ///< a _ptds or _ptsz form
  const char* symbol;
  void* address;  ///< in this library
};

/// Sorted by base name.
std::span<const EntryPoint> entry_points() noexcept;

enum class Lookup { kFound, kNotFound, kVersionNotSufficient };

/// The newest form of `base` that is not newer than `version`; a per-thread form is preferred when
/// those are asked for. *found is written on kFound only.
Lookup find_entry_point(std::string_view base, int version, bool wants_per_thread,
                        const EntryPoint** found) noexcept;

}  // namespace plexrl::simgpu
