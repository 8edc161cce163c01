#pragma once

#include <cstdint>
#include <string>

namespace plexrl::simgpu {

/// The file that is one device's memory. Each process of its machine keeps it open with a shared
/// flock, which the kernel releases however the process ends: a file without one is abandoned, and
/// any process that makes a machine removes those of its user. (A killed test would otherwise leave
/// a GPU's worth of memory taken for good.)

/// Where to put the memory of device `index`: /dev/shm when it has room for `bytes`, else `folder`,
/// the machine's state folder, which also tells machines of one name apart.
std::string pool_file_path(const std::string& folder, const std::string& name, int index,
                           std::uint64_t bytes);
/// Makes the file anew, in place of one that no process holds. Returns a descriptor with the flock,
/// or -1 with errno.
int make_pool_file(const std::string& path, std::uint64_t bytes);
/// Opens a file that other processes hold. Returns a descriptor with the flock, or -1 with errno.
int open_pool_file(const std::string& path);
/// Removes this user's files in /dev/shm that no process holds.
void remove_abandoned_pool_files();

}  // namespace plexrl::simgpu
