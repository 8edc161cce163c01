#include "shim/agent.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "shim/absence.h"
#include "shim/boottime.h"
#include "shim/log.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "agent";
constexpr std::uint64_t kShortestDialPauseNs = 100'000'000;
constexpr std::uint64_t kLongestDialPauseNs = 2'000'000'000;
constexpr std::uint64_t kSayWaitingNs = 15'000'000'000;

void* agent_main(void* argument) {
  // By the thread itself: naming another goes through /proc, which a busy machine waits for when
  // the process ends.
  prctl(PR_SET_NAME, wire::kAgentThreadName);
  static_cast<Agent*>(argument)->run();
  return nullptr;
}

}  // namespace

bool Agent::start() {
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return false;
  // The thread inherits the mask of its creation: no handler of the job ever runs on it.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int result = pthread_create(&thread_, nullptr, &agent_main, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return result == 0;
}

void Agent::notify() noexcept {
  const int saved_errno = errno;
  const std::uint64_t one = 1;
  // Full means that the agent has been told already.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  errno = saved_errno;
}

void Agent::say_exiting() noexcept {
  exiting_.store(true, std::memory_order_release);
  notify();
}

void Agent::stop() noexcept {
  stopped_.store(true, std::memory_order_release);
  notify();
  pthread_join(thread_, nullptr);
}

void Agent::run() {
  parts_.client.set_agent_thread();
  while (!stopped_.load(std::memory_order_acquire)) {
    if (!parts_.client.is_connected() && !gave_up_) reconnect();
    const std::uint64_t pause = std::min(parts_.keeper.step(), share());
    const bool is_quiet = parts_.keeper.is_quiet() || gate.is_armed();
    const std::uint64_t longest = std::min({pause, report(), parts_.communicators.step(is_quiet)});
    sleep(parts_.client.has_postponed() ? 0 : longest);
    receive();
  }
}

std::uint64_t Agent::share() { return parts_.sharing.step(parts_.keeper.may_map()); }

std::uint64_t Agent::report() {
  if (!parts_.client.is_connected()) {
    if (gave_up_) return LeaseKeeper::kForever;
    const std::uint64_t now = boottime_ns();
    return next_dial_ns_ > now ? next_dial_ns_ - now : 0;
  }
  if (exiting_.load(std::memory_order_acquire) && !exiting_sent_) {
    exiting_sent_ = parts_.client.connection().send(wire::Type::kExiting, nullptr, 0, 0);
  }
  parts_.client.flush_uncharges();
  if (const wire::ControlPage* const page = parts_.client.control()) {
    parts_.slab_worker.want(__atomic_load_n(&page->may_leave_bytes, __ATOMIC_RELAXED));
  }
  if (wire::ActivityPage* const page = parts_.client.activity()) {
    __atomic_store_n(&page->submitted, Gate::calls(), __ATOMIC_RELAXED);
    __atomic_store_n(&page->waiting_threads, std::uint64_t{gate.waiters()}, __ATOMIC_RELAXED);
  }
  return parts_.reporter.step(boottime_ns());
}

void Agent::sleep(std::uint64_t pause_ns) {
  Connection& connection = parts_.client.connection();
  const bool connected = connection.is_open();
  pollfd wanted[2] = {{wake_.get(), POLLIN, 0},
                      {connected ? connection.fd() : -1,
                       static_cast<short>(POLLIN | (connection.wants_to_send() ? POLLOUT : 0)), 0}};
  timespec pause{};
  pause.tv_sec = static_cast<time_t>(pause_ns / 1'000'000'000);
  pause.tv_nsec = static_cast<long>(pause_ns % 1'000'000'000);
  ::ppoll(wanted, 2, pause_ns == LeaseKeeper::kForever ? nullptr : &pause, nullptr);
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
  if ((wanted[1].revents & POLLOUT) != 0) connection.flush();
}

void Agent::receive() {
  bool closed = false;
  while (auto packet = parts_.client.next(&closed)) {
    if (packet->type == wire::Type::kError) {
      const auto* const error = packet->as<wire::Error>();
      if (error != nullptr && error->code != wire::kErrorUnknownType) {
        PLEXRL_WARN(kFile, "the node manager answered code=%u '%.200s', ignoring", error->code,
                    error->text);
      }
      continue;
    }
    parts_.sharing.handle(*packet);
    parts_.communicators.handle(*packet);
    parts_.keeper.handle(*packet);
  }
  if (closed) lose_connection();
}

void Agent::lose_connection() {
  PLEXRL_INFO(kFile, "connection to the node manager lost, going on without it");
  parts_.client.disconnect();
  parts_.keeper.connection_lost();
  exiting_sent_ = false;
  dial_pause_ns_ = kShortestDialPauseNs;
  lost_ns_ = boottime_ns();
  said_waiting_ = false;
  next_dial_ns_ = lost_ns_ + dial_pause_ns_;
}

void Agent::reconnect() {
  const std::uint64_t now = boottime_ns();
  if (now < next_dial_ns_) return;
  wire::Error why{};
  const std::function<void(Connection&)> resume_states = [this](Connection& fresh) {
    resume(fresh);
  };
  switch (parts_.client.connect(&resume_states, &why)) {
    case Client::Handshake::kAdmitted:
      PLEXRL_INFO(kFile, "connected again session=%lu",
                  static_cast<unsigned long>(parts_.client.welcome().session));
      parts_.devices.attach_again();
      parts_.sharing.connected(parts_.keeper.is_at_rest());
      parts_.keeper.connected();
      parts_.reporter.forget();
      return;
    case Client::Handshake::kRefused:
      if (why.code == wire::kErrorVersion || why.code == wire::kErrorUid) {
        log_user("not sharing any more: %s", why.text);
        gave_up_ = true;
        parts_.keeper.go_alone();
        return;
      }
      // It may not know the job yet: plexrl-run tells a new manager about it.
      [[fallthrough]];
    case Client::Handshake::kNobody:
    case Client::Handshake::kLost:
      break;
  }
  say_waiting(now);
  dial_pause_ns_ = std::min(dial_pause_ns_ * 2, kLongestDialPauseNs);
  next_dial_ns_ = boottime_ns() + dial_pause_ns_;
}

/// A manager is back within seconds where anybody is left to start one.
void Agent::say_waiting(std::uint64_t now) {
  if (said_waiting_ || gate.waiters() == 0 || now - lost_ns_ < kSayWaitingNs) return;
  said_waiting_ = true;
  log_user(
      "waiting for the GPU: the node manager has gone and none answers; start any program "
      "with plexrl-run, or the service, to bring one back");
}

void Agent::resume(Connection& fresh) {
  parts_.disk.resume(fresh, [this](const auto& visit) { parts_.spill.each_free(visit); });
  if ((parts_.client.welcome().features & wire::kFeatureSlabsHeld) != 0) {
    const std::uint64_t held = parts_.store.held_bytes() + parts_.spill.held_bytes();
    fresh.send(wire::Type::kSlabsHeld, wire::SlabsHeld{held});
  }
  const std::vector<Devices::Attached> all = parts_.devices.all();
  for (const Devices::Attached& attached : all) {
    const RangeTable::Totals totals = parts_.ranges.totals(attached.device);
    wire::ResumeState state{};
    state.gpu_count = static_cast<std::uint32_t>(all.size());
    if (gate.is_open()) state.flags |= wire::kResumeGateOpen;
    if (absence.is_on()) state.flags |= wire::kResumeOffGpu;
    state.uuid = attached.uuid;
    state.charged_bytes = attached.charged_bytes + attached.unpageable_bytes;
    state.unpageable_bytes = attached.unpageable_bytes;
    state.resident_bytes = totals.resident + totals.moving - totals.pinned;
    state.host_bytes = totals.host;
    state.held = parts_.keeper.held();
    fresh.send(wire::Type::kResumeState, state);
  }
  parts_.communicators.resume(fresh);
}

}  // namespace plexrl::shim
