#pragma once

#include <csignal>
#include <string>
#include <string_view>

/// What our daemons do alike when they start.
namespace plexrl::nodemgr {

/// Blocks SIGTERM, SIGINT and SIGHUP, for a loop that takes them by descriptor or sigwait, and
/// ignores SIGPIPE. To be called before any thread begins. Returns the blocked ones.
sigset_t take_signals();

/// Each client takes some descriptors: as many as we may have, not as the shell that started us
/// was given.
void raise_descriptor_limit();

/// Writes `line` and a newline to the descriptor that `ready_fd` names, and closes it; "" or no
/// number: nothing.
void say_ready(const std::string& ready_fd, std::string_view line);

}  // namespace plexrl::nodemgr
