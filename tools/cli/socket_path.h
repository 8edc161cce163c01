#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nodemgr/settings/places.h"

/// Where node managers are found (docs/contract.md, row "sockets"), shared by plexrl-run and
/// plexrl-ctl.
namespace plexrl::cli {

using nodemgr::Env;
using nodemgr::process_env;
using nodemgr::user_socket_folder;

struct SocketPath {
  std::string path;  ///< of the job socket; `admin.sock` lies beside it
  /// True for /run/plexrl/nodemgr.sock, which only the system's own service may serve. Users start
  /// managers at the other places only.
  bool is_system = false;
};

/// The value of `name=` in a PLEXRL_SIMGPU specification, "default" when it has none. Characters
/// that do not belong into a folder's name become '_'.
std::string simgpu_name(const std::string& spec);

/// Where to look for a manager, in this order:
///   $PLEXRL_SOCKET alone, when set; else
///   /run/plexrl/nodemgr.sock (not for simulated GPUs, which belong to one user),
///   $XDG_RUNTIME_DIR/plexrl/nodemgr.sock, or /tmp/plexrl-UID/nodemgr.sock when that is unset.
/// With `simgpu` (a PLEXRL_SIMGPU specification, may be empty) the last one gets a folder of its
/// own, simgpu-NAME/, so that managers of simulated and of real GPUs never mix.
std::vector<SocketPath> socket_paths(const Env& env, const std::optional<std::string>& simgpu);

/// The administration socket that belongs to a job socket.
std::string admin_socket_path(const std::string& job_socket);

/// $PLEXRL_DATA; else nodemgr::default_state_folder().
/// With `simgpu`, the folder simgpu-NAME in it, except for $PLEXRL_DATA, which is taken as it is.
std::string state_folder(const Env& env, const std::optional<std::string>& simgpu);

/// Every folder where a manager that this user can reach may have left its state: the user's own,
/// the system's, and those of simulated GPUs.
std::vector<std::string> state_folders(const Env& env);

}  // namespace plexrl::cli
