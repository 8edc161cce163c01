#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shim/wire.h"
#include "tools/run/scoped_fd.h"

namespace plexrl::run {

/// A job's connection to a node manager: shim/wire.h as plexrl-run speaks it. The open socket is
/// the job's anchor: the manager takes plexrl-run as alive for as long as it is open.
///
/// Threads: one at a time, except `say_exiting`. Calls block; none has a time limit.
class ManagerLink {
 public:
  struct Answer {
    enum class Kind { kAdmitted, kQueued, kRefused, kError };
    Kind kind;
    wire::JobAdmitted admitted{};  ///< of kAdmitted
    std::string text;              ///< of the others: one line for the user
  };

  /// Errors: NotFound (no socket), Unavailable (nobody listens), PermissionDenied,
  /// InvalidArgument (the path is too long for a socket).
  [[nodiscard]] static absl::StatusOr<ManagerLink> connect(const std::string& path);

  /// The manager runs as another user than this process.
  bool is_another_users() const;

  [[nodiscard]] absl::Status submit(const wire::JobSubmit& job);
  [[nodiscard]] absl::Status resume(const wire::JobResume& job);
  /// May we be part of that job?
  [[nodiscard]] absl::Status join(const wire::JobJoin& job);
  /// Before `submit`: the job that we are inside of.
  [[nodiscard]] absl::Status name_parent(const wire::JobParent& parent);

  /// The job got SIGTERM: its processes go to the front of the queue. While another thread
  /// receives.
  [[nodiscard]] absl::Status say_exiting();

  /// The next answer about this job; packets of other types are passed over. Error: Unavailable
  /// when the manager has gone, DataLoss for a packet that makes no sense.
  [[nodiscard]] absl::StatusOr<Answer> receive();

 private:
  explicit ManagerLink(ScopedFd socket) : socket_(std::move(socket)) {}
  absl::Status send(wire::Type type, const void* body, size_t bytes);

  ScopedFd socket_;
};

}  // namespace plexrl::run
