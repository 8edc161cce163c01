#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nodemgr/bpf/observed_gaps.h"
#include "nodemgr/bpf/openers.h"
#include "nodemgr/scoped_fd.h"

namespace plexrl::observer {

/// What the manager says: nodemgr/observer_link.h has the lines.
struct Order {
  enum class What { kWelcome, kBegin, kEnd } what{};
  std::uint64_t gap = 0;
  std::vector<pid_t> processes;  ///< kBegin
  pid_t thread = 0;              ///< kEnd
};

/// The observer's end of the connection to one node manager. One thread.
class ManagerLink {
 public:
  /// Connects to the manager's observer.sock. NotFound: none is there.
  [[nodiscard]] static absl::StatusOr<ManagerLink> connect(const std::string& path);

  int fd() const { return socket_.get(); }
  /// As the kernel vouches for the process that listens.
  uid_t manager_uid() const { return uid_; }
  pid_t manager_pid() const { return pid_; }

  /// What has come; an error when the manager has gone or speaks of what we don't know.
  [[nodiscard]] absl::StatusOr<std::vector<Order>> receive();

  [[nodiscard]] absl::Status hello(const std::vector<std::string>& lacks);
  [[nodiscard]] absl::Status report(const GapReport& report);
  [[nodiscard]] absl::Status report(const std::vector<Opener>& openers);

 private:
  ManagerLink(nodemgr::ScopedFd socket, uid_t uid, pid_t pid)
      : socket_(std::move(socket)), uid_(uid), pid_(pid) {}
  absl::Status send(const std::string& line);

  nodemgr::ScopedFd socket_;
  uid_t uid_;
  pid_t pid_;
  std::string in_;
};

}  // namespace plexrl::observer
