#pragma once

#include <string>

namespace plexrl::run {

/// What can be said of a command before it is started.
struct Target {
  enum class Found { kYes, kNo, kNotExecutable };
  Found found = Found::kNo;
  std::string path;  ///< of the file that execvp would start
  /// Why the dynamic loader will not load our library into it; empty when it will.
  std::string obstacle;
  /// With an obstacle: programs that it starts can still be caught (it is static). False when the
  /// kernel makes the loader drop LD_PRELOAD for everything below it (set-user-ID, see ld.so(8)),
  /// or when it is of another architecture.
  bool children_can_be_caught = true;
};

/// Finds `command` as execvp does (`path` is $PATH, may be null) and follows "#!" lines, through
/// /usr/bin/env too, to the ELF file that will run. Only reads files; a file that can't be read is
/// taken as one that can be caught.
Target inspect_target(const std::string& command, const char* path);

}  // namespace plexrl::run
