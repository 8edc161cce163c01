#pragma once

namespace plexrl::shim {

/// The shim's own short writer: one line to stderr per event, `plexrl[pid]: L file: text
/// key=value`.
///
/// Silent below warning unless PLEXRL_LOG asks: a level for all (`debug`) or per file
/// (`pager:debug,gate:info`). One write(2) a line, no allocation, `errno` preserved; may be called
/// from any thread. Never from the hot path.
enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Reads PLEXRL_LOG. Called once, at the first slow path.
void log_configure(const char* spec) noexcept;

bool log_enabled(const char* file, LogLevel level) noexcept;

void log_line(const char* file, LogLevel level, const char* format, ...) noexcept
    __attribute__((format(printf, 3, 4)));

/// A line without level and file, for the user: always shown.
void log_user(const char* format, ...) noexcept __attribute__((format(printf, 1, 2)));

}  // namespace plexrl::shim

#define PLEXRL_LOG_AT(file, level, ...)                   \
  do {                                                    \
    if (::plexrl::shim::log_enabled(file, level))         \
      ::plexrl::shim::log_line(file, level, __VA_ARGS__); \
  } while (false)
#define PLEXRL_DEBUG(file, ...) PLEXRL_LOG_AT(file, ::plexrl::shim::LogLevel::kDebug, __VA_ARGS__)
#define PLEXRL_INFO(file, ...) PLEXRL_LOG_AT(file, ::plexrl::shim::LogLevel::kInfo, __VA_ARGS__)
#define PLEXRL_WARN(file, ...) PLEXRL_LOG_AT(file, ::plexrl::shim::LogLevel::kWarning, __VA_ARGS__)
#define PLEXRL_ERROR(file, ...) PLEXRL_LOG_AT(file, ::plexrl::shim::LogLevel::kError, __VA_ARGS__)
