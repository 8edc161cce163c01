#include "tools/simgpu/driver/process_start.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace plexrl::simgpu {

std::uint64_t start_ticks(pid_t pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[1024];
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  if (size <= 0) return 0;
  text[size] = 0;
  const char* at = std::strrchr(text, ')');  // the command's name may hold blanks
  if (at == nullptr) return 0;
  char state = 0;
  std::uint64_t ticks = 0;
  std::sscanf(at + 1,
              " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lu",
              &state, &ticks);
  return state == 'Z' || state == 'X' ? 0 : ticks;
}

}  // namespace plexrl::simgpu
