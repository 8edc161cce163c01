#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace plexrl::nodemgr::disk {

/// One read or write of a file, tried once: it may move less than it was asked to.
struct Attempt {
  enum class Way { kRead, kWrite };
  Way way = Way::kRead;
  int fd = -1;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t offset = 0;  ///< in the file
  ssize_t result = 0;        ///< bytes moved, or −errno; valid once it has ended
  bool has_ended = false;
};

/// How bytes get to a file and back. For one thread; `data` of an attempt stays its caller's, who
/// leaves it alone between `start` and the return of `finish`.
class FileIo {
 public:
  virtual ~FileIo() = default;
  /// Begins; may end it at once.
  virtual void start(Attempt* attempt) = 0;
  /// Waits until it has ended.
  virtual void finish(Attempt* attempt) = 0;
};

/// io_uring, for at most `depth` attempts that have not been finished. Null: the kernel has none,
/// or forbids it here (containers often do).
std::unique_ptr<FileIo> make_ring_io(unsigned depth);
/// pread(2) and pwrite(2), done in `start`.
std::unique_ptr<FileIo> make_plain_io();

}  // namespace plexrl::nodemgr::disk
