#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace plexrl::nodemgr {

/// Host memory that slabs can still take: what is available (MemAvailable of /proc/meminfo,
/// proc(5)), or what the cgroup (v2 or v1) of this process, and each that it is in, still allows,
/// whichever is less. Bytes. `root` is "" or a test's folder that holds proc/ and sys/.
std::uint64_t host_bytes_left(const std::string& root = "");

/// What slabs may take when the user sets no budget: 80 % of what is left.
std::uint64_t default_host_budget(const std::string& root = "");

/// Of which a process has so much mapped as slabs, of whichever manager, by its /proc/PID/maps. 0
/// where that can't be read.
std::uint64_t mapped_slab_bytes(pid_t pid, const std::string& root = "");

}  // namespace plexrl::nodemgr
