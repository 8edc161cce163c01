#include "tools/simgpu/driver/pool_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace plexrl::simgpu {
namespace {

constexpr char kFolder[] = "/dev/shm";
constexpr std::uint64_t kSpareBytes = 64ull << 20;  // left to others

std::string user_prefix() { return "plexrl-simgpu." + std::to_string(getuid()) + "."; }

/// Removes the file if `flags` get its exclusive lock: nobody has it, and it is still that file.
void remove_unheld(const std::string& path, int flags) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return;
  struct stat held {
  }, named{};
  if (flock(fd, flags) == 0 && fstat(fd, &held) == 0 && stat(path.c_str(), &named) == 0 &&
      held.st_ino == named.st_ino) {
    unlink(path.c_str());
  }
  close(fd);
}

}  // namespace

std::string pool_file_path(const std::string& folder, const std::string& name, int index,
                           std::uint64_t bytes) {
  struct statvfs room {};
  const bool in_memory = statvfs(kFolder, &room) == 0 && access(kFolder, W_OK) == 0 &&
                         room.f_bavail * room.f_frsize > bytes + kSpareBytes;
  if (!in_memory) return folder + "/pool" + std::to_string(index);
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : folder) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ull;
  char place[17];
  std::snprintf(place, sizeof place, "%016llx", static_cast<unsigned long long>(hash));
  return std::string(kFolder) + "/" + user_prefix() + place + "." + name + "." +
         std::to_string(index);
}

int make_pool_file(const std::string& path, std::uint64_t bytes) {
  remove_unheld(path, LOCK_EX);  // waits for one who is just removing it
  for (;;) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    struct stat held {};
    const bool made = flock(fd, LOCK_SH) == 0 && fstat(fd, &held) == 0 &&
                      ftruncate(fd, static_cast<off_t>(bytes)) == 0;
    if (made && held.st_nlink > 0) return fd;
    const int error = errno;
    close(fd);
    if (made) continue;  // removed as abandoned before it was locked
    unlink(path.c_str());
    errno = error;
    return -1;
  }
}

int open_pool_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd >= 0 && flock(fd, LOCK_SH) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

void remove_abandoned_pool_files() {
  DIR* const folder = opendir(kFolder);
  if (folder == nullptr) return;
  const std::string prefix = user_prefix();
  while (const dirent* entry = readdir(folder)) {
    if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) == 0)
      remove_unheld(std::string(kFolder) + "/" + entry->d_name, LOCK_EX | LOCK_NB);
  }
  closedir(folder);
}

}  // namespace plexrl::simgpu
