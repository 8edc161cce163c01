#include "nodemgr/observer_link.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxLineBytes = 64 << 10;
constexpr std::size_t kMaxPendingBytes = 1 << 20;

}  // namespace

ObserverLink::ObserverLink(EventLoop& loop, ScopedFd listener, SwitchLog& gaps,
                           std::function<Gang(std::uint64_t)> look)
    : loop_(loop), listener_(std::move(listener)), gaps_(gaps), look_(std::move(look)) {
  loop_.watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_all(); });
  gaps_.set_watcher(this);
}

ObserverLink::~ObserverLink() {
  gaps_.set_watcher(nullptr);
  gaps_.give_up_causes();
  loop_.forget(listener_.get());
  if (socket_.is_open()) loop_.forget(socket_.get());
}

void ObserverLink::accept_all() {
  while (true) {
    ScopedFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) return;
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) continue;
    if (peer.uid != 0 && peer.uid != ::getuid()) {
      log_line(LogLevel::kWarning, "observer",
               cat("turned away pid=", peer.pid, " uid=", peer.uid, ": neither root nor our user"));
      continue;
    }
    if (socket_.is_open()) {
      log_line(LogLevel::kWarning, "observer",
               cat("turned away pid=", peer.pid, ": pid ", pid_, " observes already"));
      continue;
    }
    greet(std::move(socket), peer.pid);
  }
}

void ObserverLink::greet(ScopedFd socket, pid_t pid) {
  socket_ = std::move(socket);
  pid_ = pid;
  loop_.watch(socket_.get(), EPOLLIN, [this](std::uint32_t events) { ready(events); });
  say(Json{{"welcome", {{"version", kObserverVersion}}}}.dump());
}

void ObserverLink::ready(std::uint32_t events) {
  if ((events & EPOLLIN) != 0 && !receive()) return;
  flush();
  if ((events & (EPOLLHUP | EPOLLERR)) != 0 && (events & EPOLLIN) == 0) drop("it has gone");
}

/// False when it was dropped.
bool ObserverLink::receive() {
  char buffer[4096];
  const ssize_t got = ::recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return drop("it has gone"), false;
  in_.append(buffer, static_cast<std::size_t>(got));
  for (std::size_t end; (end = in_.find('\n')) != std::string::npos;) {
    const std::string line = in_.substr(0, end);
    in_.erase(0, end + 1);
    if (!take(line)) return false;
  }
  if (in_.size() > kMaxLineBytes) return drop("it sent a line without an end"), false;
  return true;
}

bool ObserverLink::take(const std::string& line) {
  absl::StatusOr<ObserverLine> parsed = parse_observer_line(line);
  if (!parsed.ok()) return drop(cat("what it sent is ", message_of(parsed.status()))), false;
  if (const auto* hello = std::get_if<ObserverHello>(&*parsed)) {
    if (hello->version != kObserverVersion) {
      drop(cat("it speaks version ", hello->version, ", not ", kObserverVersion,
               ": install the observer of the same PlexRL"));
      return false;
    }
    if (std::exchange(has_greeted_, true)) return true;
    lacks_ = hello->lacks;
    log_line(LogLevel::kInfo, "observer", cat("observes pid=", pid_));
    for (const SwitchLog::OpenGap& gap : gaps_.open_gaps()) gap_began(gap.gang, gap.since);
    return true;
  }
  if (const auto* causes = std::get_if<ObserverCauses>(&*parsed)) {
    const auto gap = told_.find(causes->gap);
    if (gap == told_.end()) return true;  // of a gap that was forgotten
    gaps_.explain(gap->second.gang, gap->second.since, causes->causes, causes->is_final);
    if (causes->is_final) told_.erase(gap);
  }
  if (auto* openers = std::get_if<ObserverOpeners>(&*parsed)) {
    if (on_openers_) on_openers_(std::move(*openers));
  }
  return true;
}

void ObserverLink::gap_began(std::uint64_t gang, Instant since) {
  if (!has_greeted_) return;
  const std::uint64_t number = ++last_gap_;
  told_[number] = {gang, since};
  say(Json{{"begin", {{"gap", number}, {"pids", look_(gang).processes}}}}.dump());
}

bool ObserverLink::gap_ended(std::uint64_t gang, Instant since) {
  for (const auto& [number, gap] : told_) {
    if (gap.gang != gang || gap.since != since) continue;
    Json end = {{"gap", number}};
    if (const pid_t ender = look_(gang).ender; ender != 0) end["thread"] = ender;
    say(Json{{"end", end}}.dump());
    return socket_.is_open();
  }
  return false;
}

void ObserverLink::say(const std::string& line) {
  out_ += line + "\n";
  flush();
  if (out_.size() > kMaxPendingBytes) drop("it does not read");
}

void ObserverLink::flush() {
  while (!out_.empty()) {
    const ssize_t sent =
        ::send(socket_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) break;
    out_.erase(0, static_cast<std::size_t>(sent));
  }
  if (waits_to_write_ == !out_.empty()) return;
  waits_to_write_ = !out_.empty();
  const std::uint32_t wanted = waits_to_write_ ? EPOLLIN | EPOLLOUT : EPOLLIN;
  loop_.watch(socket_.get(), wanted, [this](std::uint32_t events) { ready(events); });
}

void ObserverLink::drop(const std::string& why) {
  log_line(LogLevel::kWarning, "observer",
           cat("pid=", pid_, " observes no more: ", why, ", going on without causes of gaps"));
  loop_.forget(socket_.get());
  socket_.reset();
  pid_ = 0;
  has_greeted_ = false;
  lacks_.clear();
  in_.clear();
  out_.clear();
  waits_to_write_ = false;
  told_.clear();
  gaps_.give_up_causes();
  if (on_openers_) on_openers_(std::nullopt);
}

}  // namespace plexrl::nodemgr
