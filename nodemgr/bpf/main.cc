// plexrl-observer: finds out what jobs wait for while their GPUs are idle, and tells the node
// manager. Runs as root beside it; the manager needs none of its rights and works without it.
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "nodemgr/bpf/gap_probe.h"
#include "nodemgr/bpf/manager_link.h"
#include "nodemgr/bpf/observed_gaps.h"
#include "nodemgr/bpf/openers.h"
#include "nodemgr/clock.h"
#include "nodemgr/daemon_start.h"
#include "nodemgr/log.h"
#include "nodemgr/process_identity.h"
#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/load.h"
#include "nodemgr/settings/places.h"

extern char** environ;

namespace plexrl::observer {
namespace {

using namespace std::chrono_literals;
using nodemgr::boot_now;
using nodemgr::cat;
using nodemgr::log_line;
using nodemgr::LogLevel;
using nodemgr::message_of;
using nodemgr::ScopedFd;
using nodemgr::settings::Kind;
using nodemgr::settings::Row;
using nodemgr::settings::Values;

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr auto kPauseBeforeConnecting = 1s;
/// proc_ns(5) and the kernel's include/linux/proc_ns.h: PROC_PID_INIT_INO.
constexpr ino_t kInitialPidNamespace = 0xEFFFFFFC;

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = {
      {"socket", Kind::kText, nodemgr::kSystemSocket,
       "the socket of the node manager; its observer.sock is beside it", false},
      {"manager_user", Kind::kText, "",
       "the system's node manager runs as this user and has jobs of others; else only root's may",
       false},
      {"device_dir", Kind::kText, "/dev", "where GPUs' device files are", false},
      {"look_every", Kind::kDuration, "5s", "time between two looks for who has them open", false},
      {"log",
       Kind::kText,
       "info",
       "least level of log lines",
       false,
       {"debug", "info", "warning", "error"}},
      {"ready_fd", Kind::kText, "",
       "descriptor on which `ready` is written once the programs are in the kernel", false},
      {"check", Kind::kSwitch, "false", "say whether this machine lets it observe, and end", false},
  };
  return kRows;
}

void print_help() {
  std::printf(
      "plexrl-observer: finds out what jobs wait for while their GPUs are idle\n\n"
      "usage: plexrl-observer [options]     as root, beside a node manager\n"
      "example: plexrl-observer --socket /tmp/plexrl-1000/nodemgr.sock\n\n"
      "Each option is also an environment variable (PLEXRL_SOCKET). Option > environment >\n"
      "default.\n\n"
      "%s  --help, --version\n",
      nodemgr::settings::describe_flags(rows()).c_str());
}

class Observer {
 public:
  Observer(const Values& values, GapProbe& probe, int signal_fd)
      : values_(values),
        path_(std::filesystem::path(values.text("socket")).replace_filename("observer.sock")),
        probe_(probe),
        gaps_(probe),
        signal_fd_(signal_fd) {}

  /// Until a signal says so.
  void run() {
    bool said = false;
    while (!stopped_) {
      absl::StatusOr<ManagerLink> link = ManagerLink::connect(path_);
      if (link.ok()) {
        log_line(LogLevel::kInfo, "main",
                 cat("manager pid=", link->manager_pid(), " uid=", link->manager_uid()));
        absl::Status end = serve(*link);
        gaps_.forget_all();
        if (!stopped_) log_line(LogLevel::kInfo, "main", message_of(end));
      } else if (!said) {
        log_line(LogLevel::kInfo, "main", cat(message_of(link.status()), ", waiting for one"));
      }
      said = !link.ok();
      if (!stopped_) wait(-1, boot_now() + kPauseBeforeConnecting);
    }
  }

 private:
  /// Until something is there on `fd`, or a signal, or it is `until`.
  bool wait(int fd, std::optional<std::chrono::nanoseconds> until) {
    int timeout_ms = -1;
    if (until) {
      const auto left = std::max(*until - boot_now(), std::chrono::nanoseconds(0));
      timeout_ms = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
    }
    pollfd fds[] = {{signal_fd_, POLLIN, 0}, {fd, POLLIN, 0}};
    if (::poll(fds, 2, timeout_ms) <= 0) return false;
    if (fds[0].revents != 0) {
      signalfd_siginfo info{};
      while (::read(signal_fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
        stopped_ |= info.ssi_signo != SIGHUP;
      }
    }
    return fds[1].revents != 0;
  }

  absl::Status serve(ManagerLink& link) {
    if (std::string why = stranger(link); !why.empty()) return nodemgr::failed(why);
    openers_.reset();
    look_at_ = boot_now();
    absl::Status status = link.hello(probe_.lacks());
    while (status.ok() && !stopped_) {
      if (wait(link.fd(), std::min(look_at_, gaps_.next().value_or(look_at_)))) status = obey(link);
      if (status.ok()) status = look_for_openers(link);
      for (const GapReport& report : gaps_.advance(boot_now())) {
        if (status.ok()) status = link.report(report);
      }
      say_lost();
    }
    return status;
  }

  /// Now and then, who has GPUs' files open; told when it has changed.
  absl::Status look_for_openers(ManagerLink& link) {
    if (boot_now() < look_at_) return absl::OkStatus();
    const GpuFiles files = gpu_files(values_.text("device_dir"));
    std::vector<dev_t> devices;
    for (const auto& [device, name] : files) devices.push_back(device);
    probe_.set_gpus(devices);
    std::vector<Opener> found = find_openers(files);
    look_at_ = boot_now() + values_.duration("look_every");
    if (openers_ == found) return absl::OkStatus();
    openers_ = std::move(found);
    return link.report(*openers_);
  }

  /// Why we can't work for this manager; "" if we can.
  static std::string stranger(const ManagerLink& link) {
    struct stat ours {};
    struct stat its {};
    const std::string theirs = cat("/proc/", link.manager_pid(), "/ns/pid");
    if (::stat("/proc/self/ns/pid", &ours) != 0 || ::stat(theirs.c_str(), &its) != 0) {
      return "the manager's pid namespace can't be seen, waiting for another";
    }
    if (ours.st_ino == its.st_ino) return "";
    return "the manager has pids of its own (a container): run both in the same pid namespace";
  }

  absl::Status obey(ManagerLink& link) {
    absl::StatusOr<std::vector<Order>> orders = link.receive();
    if (!orders.ok()) return orders.status();
    for (Order& order : *orders) {
      const auto now = boot_now();
      if (order.what == Order::What::kBegin) {
        drop_strangers(link.manager_uid(), order.processes);
        absl::Status status = gaps_.begin(order.gap, std::move(order.processes), now);
        if (!status.ok()) return status;
      } else if (order.what == Order::What::kEnd) {
        const auto report = gaps_.end(order.gap, order.thread, now);
        absl::Status status = report ? link.report(*report) : absl::OkStatus();
        if (!status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  /// What processes do is told to whoever may look at them anyway: a user's own manager learns
  /// nothing about those of others.
  void drop_strangers(uid_t manager, std::vector<pid_t>& processes) const {
    const bool sees_all =
        manager == 0 || (values_.is_set("manager_user") &&
                         nodemgr::user_name(manager) == values_.text("manager_user"));
    if (sees_all) return;
    std::erase_if(processes, [&](pid_t process) {
      struct stat info {};
      return ::stat(cat("/proc/", process).c_str(), &info) != 0 || info.st_uid != manager;
    });
  }

  void say_lost() {
    const std::uint64_t lost = probe_.lost();
    if (lost == lost_) return;
    log_line(LogLevel::kWarning, "gaps",
             cat("tables were full, waits not counted=", lost - lost_, ", going on"));
    lost_ = lost;
  }

  const Values& values_;
  std::string path_;
  GapProbe& probe_;
  ObservedGaps gaps_;
  int signal_fd_;
  bool stopped_ = false;
  std::uint64_t lost_ = 0;
  std::optional<std::vector<Opener>> openers_;  ///< as told
  std::chrono::nanoseconds look_at_{0};
};

absl::StatusOr<std::unique_ptr<GapProbe>> load_probe() {
  struct stat own {};
  if (::stat("/proc/self/ns/pid", &own) != 0 || own.st_ino != kInitialPidNamespace) {
    return nodemgr::failed(
        "this is not the machine's own pid namespace: run the observer outside of containers, or "
        "in one with the host's pids");
  }
  return GapProbe::load();
}

int run(int argc, char** argv) {
  absl::StatusOr<nodemgr::settings::Loaded> loaded = nodemgr::settings::load(
      rows(), {}, [](const Values&) { return std::string(); }, argc, argv, environ);
  if (loaded.ok() && !loaded->line.arguments.empty()) {
    loaded = nodemgr::invalid("unexpected argument '", loaded->line.arguments.front(), "'");
  }
  if (!loaded.ok()) {
    std::fprintf(stderr, "plexrl-observer: %s\n", message_of(loaded.status()).c_str());
    return kUsage;
  }
  if (loaded->line.help) return print_help(), kDone;
  if (loaded->line.version) return std::printf("plexrl-observer %s\n", PLEXRL_VERSION), kDone;
  nodemgr::set_log_program("observer");
  nodemgr::set_log_level(loaded->values.text("log"));
  const sigset_t signals = nodemgr::take_signals();
  absl::StatusOr<std::unique_ptr<GapProbe>> probe = load_probe();
  if (!probe.ok()) {
    std::fprintf(stderr, "plexrl-observer: %s\n", message_of(probe.status()).c_str());
    return kFailed;
  }
  if (loaded->values.is_on("check")) {
    absl::Status status = (*probe)->watch({});
    std::printf("%s\n", status.ok() ? "can observe" : message_of(status).c_str());
    for (const std::string& lack : (*probe)->lacks()) std::printf("without %s\n", lack.c_str());
    return status.ok() ? kDone : kFailed;
  }
  const ScopedFd signal_fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  log_line(LogLevel::kInfo, "main", "ready");
  nodemgr::say_ready(loaded->values.text("ready_fd"), "ready");
  Observer(loaded->values, **probe, signal_fd.get()).run();
  log_line(LogLevel::kInfo, "main", "stopping");
  return kDone;
}

}  // namespace
}  // namespace plexrl::observer

int main(int argc, char** argv) { return plexrl::observer::run(argc, argv); }
