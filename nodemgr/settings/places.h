#pragma once

#include <functional>
#include <string>

/// Where a user's sockets and state lie unless told otherwise (docs/contract.md, rows "sockets" and
/// "state"): one rule for the daemon that writes there and the tools that look there. As the XDG
/// Base Directory Specification says, a relative path in XDG_RUNTIME_DIR or XDG_STATE_HOME counts
/// as unset.
namespace plexrl::nodemgr {

/// The environment, as a function so that tests need not change their own. Unset: nullptr.
using Env = std::function<const char*(const char*)>;

/// The process's own environment.
Env process_env();

inline constexpr char kSystemState[] = "/var/lib/plexrl";
inline constexpr char kSystemSocket[] = "/run/plexrl/nodemgr.sock";

/// $XDG_RUNTIME_DIR/plexrl, or /tmp/plexrl-UID.
std::string user_socket_folder(const Env& env);

/// $XDG_STATE_HOME/plexrl; else for root /var/lib/plexrl, unless that belongs to a service of
/// another user, and for others ~/.local/state/plexrl; without a HOME /tmp/plexrl-UID.
std::string default_state_folder(const Env& env);

}  // namespace plexrl::nodemgr
