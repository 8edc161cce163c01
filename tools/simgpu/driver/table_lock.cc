#include "tools/simgpu/driver/table_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <sstream>

namespace plexrl::simgpu {
namespace {

constexpr long kPatienceNs = 20'000'000;  ///< then a waiter looks at who has the lock
constexpr off_t kFileBytes = 4096;

}  // namespace

TableLock::~TableLock() { close_file(); }

void TableLock::close_file() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  if (unlocks_ != nullptr) munmap(unlocks_, kFileBytes);
  unlocks_ = nullptr;
}

bool TableLock::open(const std::string& path, bool make) {
  close_file();
  fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
  struct stat opened {};
  if (fd_ < 0 || fstat(fd_, &opened) != 0) return false;
  path_ = path;
  device_ = opened.st_dev;
  inode_ = opened.st_ino;
  if (make && opened.st_size == 0 && ftruncate(fd_, kFileBytes) != 0) return false;
  // By an open file of its own: a mapping keeps its open file, and a child's copy of this one would
  // keep the lock.
  if (const int mapped = ::open(path.c_str(), O_RDWR | O_CLOEXEC); mapped >= 0) {
    void* const word =
        fstat(mapped, &opened) == 0 && opened.st_ino == inode_ && opened.st_size >= kFileBytes
            ? mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0)
            : MAP_FAILED;
    if (word != MAP_FAILED) unlocks_ = static_cast<std::atomic<std::uint32_t>*>(word);
    close(mapped);
  }
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
  if (fd_ >= 0) lock_file();
}

void TableLock::lock_file() {
  for (;;) {
    const std::uint32_t seen = unlocks_ != nullptr ? unlocks_->load() : 0;
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
    if (errno != EWOULDBLOCK && errno != EINTR) return;
    const timespec patience = {0, kPatienceNs};
    if (unlocks_ == nullptr) {
      nanosleep(&patience, nullptr);
    } else if (syscall(SYS_futex, unlocks_, FUTEX_WAIT, seen, &patience, nullptr, 0) == 0 ||
               errno != ETIMEDOUT) {
      continue;
    }
    const pid_t holder = stopped_holder();
    if (holder == 0 || kill(holder, SIGCONT) != 0) continue;
    while (flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
    kill(holder, SIGSTOP);
    return;
  }
}

pid_t TableLock::stopped_holder() const {
  // "1: FLOCK  ADVISORY  WRITE 4711 00:1a:133 0 EOF": device and inode of the file (proc(5)).
  char file[64];
  std::snprintf(file, sizeof file, "%02x:%02x:%llu", major(device_), minor(device_),
                static_cast<unsigned long long>(inode_));
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream fields(line);
    std::string number, kind, advisory, write, holder, held;
    fields >> number >> kind >> advisory >> write >> holder >> held;
    if (kind != "FLOCK" || held != file) continue;
    std::ifstream stat_file("/proc/" + holder + "/stat");
    std::string text;
    std::getline(stat_file, text);
    const std::size_t end = text.rfind(')');
    const bool is_stopped = end != std::string::npos && text.compare(end, 3, ") T") == 0;
    return is_stopped ? static_cast<pid_t>(std::strtol(holder.c_str(), nullptr, 10)) : 0;
  }
  return 0;
}

void TableLock::unlock() {
  if (fd_ >= 0) {
    flock(fd_, LOCK_UN);
    if (unlocks_ != nullptr) {
      unlocks_->fetch_add(1);
      syscall(SYS_futex, unlocks_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
  }
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
