#include "tools/simgpu/driver/device_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace plexrl::simgpu {

bool DeviceLog::open(const std::string& path) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  return fd_ >= 0;
}

void DeviceLog::write(const LogEntry& entry) {
  if (fd_ < 0) return;
  std::string name;  // a kernel's name comes from PTX: letters, digits, '_', '$'; anything else
                     // would break the line
  for (const char c : entry.name.substr(0, 200)) {
    name += c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  char line[640];
  const int size = std::snprintf(
      line, sizeof line,
      "{\"pid\":%d,\"gpu\":%d,\"ctx\":%llu,\"stream\":%llu,\"kind\":\"%.*s\",\"name\":\"%s\","
      "\"bytes\":%llu,"
      "\"start_ns\":%llu,\"end_ns\":%llu,\"lag_ns\":%llu}\n",
      static_cast<int>(getpid()), entry.device, static_cast<unsigned long long>(entry.context),
      static_cast<unsigned long long>(entry.stream), static_cast<int>(entry.kind.size()),
      entry.kind.data(), name.c_str(), static_cast<unsigned long long>(entry.bytes),
      static_cast<unsigned long long>(entry.start_ns),
      static_cast<unsigned long long>(entry.end_ns), static_cast<unsigned long long>(entry.lag_ns));
  const auto length =
      static_cast<std::size_t>(std::clamp(size, 0, static_cast<int>(sizeof line) - 1));
  // A log that can't be written (full disk) must not stop the device.
  if (::write(fd_, line, length) < 0) return;
}

}  // namespace plexrl::simgpu
