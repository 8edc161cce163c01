#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace plexrl::simgpu {

/// The lock of a machine's tables: this process's mutex, then an flock that all its processes
/// share. The kernel releases an flock when the last descriptor of its open file goes, however its
/// holder ends. A child of fork has such a descriptor too, so that it would keep the lock of a
/// parent that is killed at work: `become_child` closes it, and the child opens the file for itself
/// when it first locks.
///
/// A process that is stopped (SIGSTOP, Ctrl-Z) while it has the lock would stop all others. In a
/// kernel driver that can't be: a stop takes effect when the call is over. So does it here: who
/// waits continues the holder and stops it again when it has let go.
///
/// Threads: lock and unlock from any; the rest before threads use it, or in a child of fork.
/// Has the names of BasicLockable, for std::lock_guard.
class TableLock {
 public:
  TableLock() = default;
  ~TableLock();
  TableLock(const TableLock&) = delete;
  TableLock& operator=(const TableLock&) = delete;

  /// Opens the file, in place of one that was open before. False with errno on failure.
  bool open(const std::string& path, bool make);
  void lock();
  void unlock();
  /// Whether `path` still names the open file; without that it belongs to a machine that has gone.
  /// To be asked with the lock.
  bool is_current() const;

  /// In a child of fork, before anything else there.
  void become_child();

 private:
  void close_file();
  void lock_file();
  pid_t stopped_holder() const;  ///< 0: nobody has it, or its holder is not stopped

  std::string path_;
  std::mutex mutex_;
  int fd_ = -1;
  /// In the file: counts unlocks, so that a wait can have an end, as flock(2) has none. The flock
  /// alone says who has the lock; null: only that.
  std::atomic<std::uint32_t>* unlocks_ = nullptr;
  dev_t device_ = 0;  ///< with inode_: the file that was opened
  ino_t inode_ = 0;
};

}  // namespace plexrl::simgpu
