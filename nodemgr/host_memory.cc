#include "nodemgr/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>

#include "nodemgr/settings/cat.h"
#include "nodemgr/slabs.h"

namespace plexrl::nodemgr {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

std::uint64_t read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? number : kNoLimit;  // "max" reads as no limit, as does no file
}

std::uint64_t available_bytes(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t kib = 0;
    if (words >> name >> kib && name == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

/// The files of a cgroup's folder (cgroup-v2.rst and cgroup-v1/memory.rst of the kernel).
struct Names {
  const char* limit;
  const char* used;
  const char* prefix;  ///< in memory.stat, of the sums that include the cgroups inside
};
constexpr Names kV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_"};
constexpr Names kV2 = {"memory.max", "memory.current", ""};

/// The files' pages that a cgroup caches, which the kernel drops before it lacks memory. Memory of
/// slabs is on other lists.
std::uint64_t cached_bytes(const std::string& folder, const std::string& prefix) {
  std::ifstream file(folder + "/memory.stat");
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t sum = 0;
  while (file >> name >> bytes) {
    if (name == prefix + "inactive_file" || name == prefix + "active_file") sum += bytes;
  }
  return sum;
}

/// What a cgroup leaves of its limit.
std::uint64_t left_in(const std::string& folder, const Names& names) {
  const std::uint64_t limit = read_number(cat(folder, "/", names.limit));
  if (limit == kNoLimit) return kNoLimit;
  std::uint64_t used = read_number(cat(folder, "/", names.used));
  if (used == kNoLimit) return limit;
  used -= std::min(used, cached_bytes(folder, names.prefix));
  return limit > used ? limit - used : 0;
}

/// What a cgroup and all that it is in leave, of whose limits each counts. `path` as in
/// /proc/self/cgroup, below `mount`.
std::uint64_t left_on_the_way(const std::string& mount, std::string path, const Names& names) {
  std::uint64_t least = kNoLimit;
  while (true) {
    if (path == "/") path.clear();
    least = std::min(least, left_in(mount + path, names));
    if (path.empty()) return least;
    const std::size_t slash = path.rfind('/');
    path.erase(slash == std::string::npos ? 0 : slash);
  }
}

std::uint64_t cgroup_bytes(const std::string& root) {
  std::uint64_t least = kNoLimit;
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    std::size_t first = line.find(':');
    std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    const std::string mount = root + "/sys/fs/cgroup";
    if (controllers.empty()) {
      least = std::min(least, left_on_the_way(mount, path, kV2));
    } else if (controllers == "memory") {
      least = std::min(least, left_on_the_way(mount + "/memory", path, kV1));
    }
  }
  return least;
}

}  // namespace

std::uint64_t host_bytes_left(const std::string& root) {
  return std::min(available_bytes(root), cgroup_bytes(root));
}

std::uint64_t default_host_budget(const std::string& root) { return host_bytes_left(root) / 5 * 4; }

std::uint64_t mapped_slab_bytes(pid_t pid, const std::string& root) {
  const std::string slab = cat("/memfd:", kSlabName, " ");  // " (deleted)" follows
  std::ifstream file(cat(root, "/proc/", pid, "/maps"));
  std::string line;
  std::uint64_t sum = 0;
  while (std::getline(file, line)) {
    if (line.find(slab) == std::string::npos) continue;
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    const char* const last = line.data() + line.size();
    const auto [dash, error] = std::from_chars(line.data(), last, start, 16);
    if (error != std::errc{} || dash == last) continue;
    std::from_chars(dash + 1, last, end, 16);
    if (end > start) sum += end - start;
  }
  return sum;
}

}  // namespace plexrl::nodemgr
