#include "nodemgr/bpf/manager_link.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "nodemgr/settings/cat.h"

namespace plexrl::observer {
namespace {

using Json = nlohmann::ordered_json;
using nodemgr::cat;
using nodemgr::failed;
using nodemgr::ScopedFd;

constexpr int kVersion = 1;
constexpr std::size_t kMaxLineBytes = 1 << 20;

std::int64_t number_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

/// Nothing where the line is of a kind that a later manager may send.
absl::StatusOr<std::optional<Order>> parse(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return failed("the manager sent no JSON object");
  Order order;
  if (const auto welcome = json.find("welcome"); welcome != json.end() && welcome->is_object()) {
    if (number_in(*welcome, "version") != kVersion) {
      return failed("the manager speaks version ", number_in(*welcome, "version"), ", not ",
                    kVersion, ": install the observer of the same PlexRL");
    }
    order.what = Order::What::kWelcome;
    return order;
  }
  if (const auto begin = json.find("begin"); begin != json.end() && begin->is_object()) {
    order.what = Order::What::kBegin;
    order.gap = static_cast<std::uint64_t>(number_in(*begin, "gap"));
    const auto pids = begin->find("pids");
    if (pids == begin->end() || !pids->is_array()) return failed("a gap without pids");
    for (const Json& pid : *pids) {
      if (pid.is_number_integer() && pid.get<std::int64_t>() > 0) {
        order.processes.push_back(pid.get<pid_t>());
      }
    }
    return order;
  }
  if (const auto end = json.find("end"); end != json.end() && end->is_object()) {
    order.what = Order::What::kEnd;
    order.gap = static_cast<std::uint64_t>(number_in(*end, "gap"));
    order.thread = static_cast<pid_t>(number_in(*end, "thread"));
    return order;
  }
  return std::optional<Order>();
}

}  // namespace

absl::StatusOr<ManagerLink> ManagerLink::connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return nodemgr::invalid("socket '", path, "' is longer than ", sizeof address.sun_path - 1,
                            " bytes");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  ScopedFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return absl::NotFoundError(cat("no manager at '", path, "': ", std::strerror(errno)));
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return failed("who listens at '", path, "': ", std::strerror(errno));
  }
  return ManagerLink(std::move(socket), peer.uid, peer.pid);
}

absl::StatusOr<std::vector<Order>> ManagerLink::receive() {
  char buffer[16384];
  const ssize_t got = ::recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  std::vector<Order> orders;
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return orders;
  if (got <= 0) return absl::UnavailableError("the manager has gone");
  in_.append(buffer, static_cast<std::size_t>(got));
  std::size_t from = 0;
  for (std::size_t end; (end = in_.find('\n', from)) != std::string::npos; from = end + 1) {
    absl::StatusOr<std::optional<Order>> order = parse(in_.substr(from, end - from));
    if (!order.ok()) return order.status();
    if (*order) orders.push_back(**std::move(order));
  }
  in_.erase(0, from);
  if (in_.size() > kMaxLineBytes) return failed("the manager sent a line without an end");
  return orders;
}

absl::Status ManagerLink::send(const std::string& line) {
  const std::string text = line + "\n";
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t now = ::send(socket_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return absl::UnavailableError("the manager has gone");
    sent += static_cast<std::size_t>(now);
  }
  return absl::OkStatus();
}

absl::Status ManagerLink::hello(const std::vector<std::string>& lacks) {
  return send(Json{{"hello", {{"version", kVersion}, {"lacks", lacks}}}}.dump());
}

absl::Status ManagerLink::report(const GapReport& report) {
  Json causes = Json::array();
  for (const Cause& cause : report.causes) {
    causes.push_back({{"cause", kind_word(cause.kind)},
                      {"detail", cause.detail},
                      {"time_ns", cause.time.count()}});
  }
  const Json line = {{"causes",
                      {{"gap", report.gap},
                       {"final", report.is_final},
                       {"observed_ns", report.observed.count()},
                       {"causes", causes}}}};
  return send(line.dump(-1, ' ', false, Json::error_handler_t::replace));
}

absl::Status ManagerLink::report(const std::vector<Opener>& openers) {
  Json list = Json::array();
  for (const Opener& opener : openers) {
    list.push_back({{"pid", opener.process},
                    {"uid", opener.user},
                    {"command", opener.command},
                    {"files", opener.files},
                    {"preloaded", opener.is_preloaded}});
  }
  return send(Json{{"openers", list}}.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace plexrl::observer
