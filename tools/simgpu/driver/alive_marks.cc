#include "tools/simgpu/driver/alive_marks.h"

#include <fcntl.h>
#include <unistd.h>

namespace plexrl::simgpu {
namespace {

struct flock byte_of(int mark) {
  struct flock byte {};
  byte.l_type = F_WRLCK;
  byte.l_whence = SEEK_SET;
  byte.l_start = mark;
  byte.l_len = 1;
  return byte;
}

}  // namespace

bool AliveMarks::open(const std::string& path) {
  close();
  const std::lock_guard no_fork(ForkWatch::forks());
  path_ = path;
  fd_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
  return fd_ >= 0;
}

void AliveMarks::become_child() {
  if (fd_ < 0) return;
  ::close(fd_);
  fd_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
}

void AliveMarks::close() {
  const std::lock_guard no_fork(ForkWatch::forks());
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool AliveMarks::take(int mark) {
  struct flock byte = byte_of(mark);
  return fcntl(fd_, F_OFD_SETLK, &byte) == 0;
}

bool AliveMarks::is_taken(int mark) const {
  struct flock byte = byte_of(mark);
  return fcntl(fd_, F_OFD_GETLK, &byte) != 0 || byte.l_type != F_UNLCK;
}

}  // namespace plexrl::simgpu
