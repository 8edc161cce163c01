#include "tools/simgpu/driver/table_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <new>

namespace plexrl::simgpu {

TableLock::~TableLock() {
  if (fd_ >= 0) close(fd_);
}

bool TableLock::open(const std::string& path, bool make) {
  if (fd_ >= 0) close(fd_);
  fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
  struct stat opened {};
  if (fd_ < 0 || fstat(fd_, &opened) != 0) return false;
  path_ = path;
  device_ = opened.st_dev;
  inode_ = opened.st_ino;
  return true;
}

void TableLock::lock() {
  mutex_.lock();
  if (fd_ < 0) {  // a child of fork; where the file has gone there is nobody to lock against
    const int fd = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    struct stat opened {};
    if (fd >= 0 && fstat(fd, &opened) == 0 && opened.st_dev == device_ && opened.st_ino == inode_)
      fd_ = fd;
    else if (fd >= 0)
      close(fd);
  }
  while (fd_ >= 0 && flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

void TableLock::unlock() {
  if (fd_ >= 0) flock(fd_, LOCK_UN);
  mutex_.unlock();
}

bool TableLock::is_current() const {
  struct stat named {};
  return fd_ >= 0 && stat(path_.c_str(), &named) == 0 && named.st_dev == device_ &&
         named.st_ino == inode_;
}

void TableLock::become_child() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  // A thread that the child doesn't have may have held it.
  new (&mutex_) std::mutex;
}

}  // namespace plexrl::simgpu
