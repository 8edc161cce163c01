#pragma once

#include <sys/types.h>

#include <cstdint>

namespace plexrl::simgpu {

/// When a process started, in clock ticks since boot (field 22 of /proc/PID/stat, proc(5)): with
/// the pid, what tells one process from a later one. 0 when there is none, or only its corpse.
std::uint64_t start_ticks(pid_t pid);

}  // namespace plexrl::simgpu
