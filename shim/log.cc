#include "shim/log.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace plexrl::shim {
namespace {

constexpr std::size_t kMaxSpecBytes = 256;
char spec_buffer[kMaxSpecBytes];
std::string_view spec;

LogLevel level_of(std::string_view word) noexcept {
  if (word == "debug") return LogLevel::kDebug;
  if (word == "info") return LogLevel::kInfo;
  if (word == "error") return LogLevel::kError;
  return LogLevel::kWarning;
}

LogLevel threshold(std::string_view file) noexcept {
  LogLevel level = LogLevel::kWarning;
  std::string_view rest = spec;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t colon = item.find(':');
    if (colon == std::string_view::npos) {
      level = level_of(item);
    } else if (item.substr(0, colon) == file) {
      return level_of(item.substr(colon + 1));
    }
  }
  return level;
}

void write_line(const char* prefix, const char* format, std::va_list arguments) noexcept {
  const int saved_errno = errno;
  char line[768];
  int used =
      std::snprintf(line, sizeof line, "plexrl[%d]: %s", static_cast<int>(::getpid()), prefix);
  const int text = std::vsnprintf(line + used, sizeof line - used - 1, format, arguments);
  used = std::min<int>(used + std::max(text, 0), sizeof line - 2);
  line[used++] = '\n';
  // A closed or full stderr is the job's business; there is nowhere else to say it.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line, used);
  errno = saved_errno;
}

}  // namespace

void log_configure(const char* new_spec) noexcept {
  if (new_spec == nullptr) return;
  const std::size_t bytes = std::min(std::strlen(new_spec), kMaxSpecBytes);
  std::memcpy(spec_buffer, new_spec, bytes);
  spec = std::string_view(spec_buffer, bytes);
}

bool log_enabled(const char* file, LogLevel level) noexcept { return level >= threshold(file); }

void log_line(const char* file, LogLevel level, const char* format, ...) noexcept {
  char prefix[64];
  std::snprintf(prefix, sizeof prefix, "%c %s: ", "DIWE"[static_cast<int>(level)], file);
  std::va_list arguments;
  va_start(arguments, format);
  write_line(prefix, format, arguments);
  va_end(arguments);
}

void log_user(const char* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  write_line("", format, arguments);
  va_end(arguments);
}

}  // namespace plexrl::shim
