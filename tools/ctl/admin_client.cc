#include "tools/ctl/admin_client.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tools/cli/private_folder.h"

namespace plexrl::ctl {
namespace {

// Far above any node's answer; a manager that never ends its line is not waited for.
constexpr std::size_t kMaxAnswerBytes = 64u << 20;
constexpr char kSilent[] =
    "the node manager does not answer: it is stopped or very busy; see its log, or kill it: jobs "
    "go "
    "on, and the next plexrl-run starts one";

// A connected socket, or -1 with errno.
int connect_to(const std::string& path, std::chrono::seconds patience) {
  sockaddr_un address{.sun_family = AF_UNIX};
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{.tv_sec = patience.count(), .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);  // connect(2) too
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

bool is_socket(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_socket(path, error);
}

absl::StatusOr<std::string> converse(int fd, const std::string& line) {
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t n = send(fd, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return absl::UnavailableError(kSilent);
    if (n < 0) return absl::UnavailableError("the manager hung up");
    sent += static_cast<std::size_t>(n);
  }
  std::string answer;
  std::array<char, 65536> part;
  while (answer.find('\n') == std::string::npos && answer.size() < kMaxAnswerBytes) {
    const ssize_t n = recv(fd, part.data(), part.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return absl::UnavailableError(kSilent);
    if (n <= 0) break;
    answer.append(part.data(), static_cast<std::size_t>(n));
  }
  if (answer.empty()) return absl::UnavailableError("the manager closed the connection unasked");
  return answer;
}

absl::StatusOr<Json> parse(const std::string& text) {
  Json answer = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) return absl::DataLossError("the manager's answer is not a JSON object");
  if (const auto error = answer.find("error"); error != answer.end() && error->is_string()) {
    return absl::InvalidArgumentError(error->get<std::string>());
  }
  return answer;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) absl::StrAppend(&text, text.empty() ? "" : ", ", name);
  return text;
}

}  // namespace

std::vector<std::string> admin_sockets(const cli::Env& env,
                                       const std::optional<std::string>& simgpu) {
  std::vector<std::string> sockets;
  for (const auto& place : cli::socket_paths(env, simgpu)) {
    sockets.push_back(cli::admin_socket_path(place.path));
  }
  if (simgpu || (env("PLEXRL_SOCKET") && *env("PLEXRL_SOCKET"))) return sockets;
  std::vector<std::string> simulated;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(cli::user_socket_folder(env), error)) {
    if (entry.path().filename().string().rfind("simgpu-", 0) == 0) {
      simulated.push_back((entry.path() / "admin.sock").string());
    }
  }
  std::sort(simulated.begin(), simulated.end());
  sockets.insert(sockets.end(), simulated.begin(), simulated.end());
  return sockets;
}

absl::StatusOr<Json> ask(const std::vector<std::string>& sockets, const Json& request,
                         std::chrono::seconds patience) {
  for (const std::string& path : sockets) {
    const int fd = connect_to(path, patience);
    if (fd < 0) {
      if (errno == EAGAIN) return absl::UnavailableError(kSilent);
      if (errno == EACCES || errno == EPERM) {
        if (const auto why = cli::why_not_private(cli::folder_of(path))) {
          return absl::PermissionDeniedError(*why);
        }
        return absl::PermissionDeniedError(absl::StrCat(
            "permission denied on ", path,
            ": administration is for its owner and the group of that socket (try sudo)"));
      }
      if (errno == ENAMETOOLONG) {
        return absl::InvalidArgumentError(absl::StrCat("the socket's path is too long: ", path,
                                                       ": set PLEXRL_SOCKET to a shorter one"));
      }
      if (errno == EPROTOTYPE || (errno == ECONNREFUSED && !is_socket(path))) {
        return absl::InvalidArgumentError(
            absl::StrCat(path,
                         " is not a node manager's socket: set PLEXRL_SOCKET to its "
                         "nodemgr.sock, or unset it"));
      }
      continue;
    }
    const absl::Cleanup closed = [fd] { close(fd); };
    const auto answer =
        converse(fd, request.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    if (!answer.ok()) return answer.status();
    return parse(*answer);
  }
  return absl::NotFoundError(absl::StrCat("no node manager answers (tried ", listed(sockets),
                                          "): one starts with the first plexrl-run"));
}

}  // namespace plexrl::ctl
