#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace plexrl::simgpu {

/// One piece of work that a device did, as a line of the device log; or a call that was made to
/// fail
/// (`fail=`).
struct LogEntry {
  int device = 0;
  std::uint64_t context = 0;
  std::uint64_t stream = 0;
  std::string_view kind;  ///< kernel h2d d2h d2d h2h memset host; failure
  std::string_view name;  ///< of a kernel, or the call that failed; else empty
  std::uint64_t bytes = 0;
  std::uint64_t start_ns = 0;  ///< CLOCK_BOOTTIME
  std::uint64_t end_ns = 0;
  std::uint64_t lag_ns = 0;  ///< how much longer it took than the model says
};

/// Appends JSON lines to the file that `log=` names. One write(2) with O_APPEND a line, so that
/// processes share a file. Threads: any. Does nothing where there is no file.
class DeviceLog {
 public:
  /// Returns false when the file can't be opened (errno is set).
  bool open(const std::string& path);
  bool is_open() const { return fd_ >= 0; }
  void write(const LogEntry& entry);

 private:
  int fd_ = -1;
};

}  // namespace plexrl::simgpu
