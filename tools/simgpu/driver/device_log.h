#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace plexrl::simgpu {

/// One piece of work that a device did, as a line of the device log.
struct LogEntry {
  int device;
  std::uint64_t context;
  std::uint64_t stream;
  std::string_view kind;  ///< kernel h2d d2h d2d h2h memset host
  std::string_view name;  ///< of a kernel, else empty
  std::uint64_t bytes;
  std::uint64_t start_ns;  ///< CLOCK_BOOTTIME
  std::uint64_t end_ns;
  std::uint64_t lag_ns;  ///< how much longer it took than the model says
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
