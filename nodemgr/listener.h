#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "nodemgr/scoped_fd.h"

namespace plexrl::nodemgr {

/// Where this manager listens when no setting says so: root /run/plexrl/nodemgr.sock; others
/// $XDG_RUNTIME_DIR/plexrl/nodemgr.sock, else /tmp/plexrl-UID/nodemgr.sock.
std::string default_socket_path();

/// Makes the socket's folder (0755 for root, else 0700) and checks that it is ours.
[[nodiscard]] absl::Status prepare_socket_folder(const std::string& socket_path);

/// Binds and listens; close-on-exec, non-blocking. A socket file that nobody answers is replaced;
/// one that somebody answers is AlreadyExists, and a file that is no socket is left as it is.
/// `type` is SOCK_SEQPACKET or SOCK_STREAM.
[[nodiscard]] absl::StatusOr<ScopedFd> listen_at(const std::string& path, int type,
                                                 unsigned int mode);

/// Gives the file to a group when there is one of that name.
void give_to_group(const std::string& path, const char* group);

}  // namespace plexrl::nodemgr
