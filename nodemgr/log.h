#pragma once

#include <string>
#include <string_view>

namespace plexrl::nodemgr {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// One line on stderr: time, level, area, text. Errors: someone must act; warnings: we go on, and
/// the line says how; info: a state changed. Any thread.
void log_line(LogLevel level, std::string_view area, const std::string& text);

/// Which daemon the lines are of; "nodemgr" unless told otherwise. Before any thread begins.
void set_log_program(const std::string& name);

/// "debug", "info", "warning" or "error"; anything else leaves the level as it is and gives false.
bool set_log_level(std::string_view name);

}  // namespace plexrl::nodemgr
