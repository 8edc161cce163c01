#include "nodemgr/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace plexrl::nodemgr {
namespace {

std::string pattern_of(const std::string& program) {
  return "%Y-%m-%dT%H:%M:%S.%e %L " + program + ": %v";
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> kLogger = [] {
    auto made = spdlog::stderr_logger_mt("plexrl");
    made->set_pattern(pattern_of("nodemgr"));
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *kLogger;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void log_line(LogLevel level, std::string_view area, const std::string& text) {
  logger().log(spdlog_level(level), "{}: {}", area, text);
}

void set_log_program(const std::string& name) { logger().set_pattern(pattern_of(name)); }

bool set_log_level(std::string_view name) {
  for (LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    auto view = spdlog::level::to_string_view(spdlog_level(level));
    if (name == std::string_view(view.data(), view.size())) {
      logger().set_level(spdlog_level(level));
      return true;
    }
  }
  return false;
}

}  // namespace plexrl::nodemgr
