#include "nodemgr/client.h"

#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {

void Client::send(wire::Type type, std::uint64_t request, std::span<const std::byte> body,
                  std::span<const int> fds) {
  if (broken) return;
  absl::Status status = send_packet(socket.get(), type, request, body, fds);
  if (status.ok()) return;
  broken = true;
  log_line(LogLevel::kDebug, "client", cat("pid=", pid, " dropped: ", message_of(status)));
}

void Client::send_error(wire::Type type, std::uint64_t request, wire::ErrorCode code,
                        const std::string& text) {
  wire::Error error{};
  error.code = code;
  set_field(error.text, text);
  send(type, request, error);
}

}  // namespace plexrl::nodemgr
