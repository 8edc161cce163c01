#include "tools/run/supervisor.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace plexrl::run {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kFirstDelay{20};
constexpr std::chrono::milliseconds kLongestDelay{2000};
// A manager that lived so long was no manager that dies of being resumed.
constexpr std::chrono::seconds kGoodLife{10};

void pause(std::chrono::milliseconds& delay) {
  std::this_thread::sleep_for(delay);
  delay = std::min(delay * 2, kLongestDelay);
}

}  // namespace

Supervisor::Supervisor(std::optional<ManagerLink> link, Job job,
                       std::function<void(const std::string&)> say)
    : link_(std::move(link)), job_(std::move(job)), say_(std::move(say)) {}

void Supervisor::run_in_background() {
  std::thread([this] { run(); }).detach();
}

void Supervisor::set_link(std::optional<ManagerLink> link) {
  const std::lock_guard lock(mutex_);
  link_ = std::move(link);
}

void Supervisor::say_exiting() {
  const std::lock_guard lock(mutex_);
  exiting_ = true;
  // Fails when the manager has just gone: the supervisor tells the next one.
  if (link_) (void)link_->say_exiting();
}

void Supervisor::run() {
  auto delay = kFirstDelay;
  for (;;) {
    const auto connected_at = Clock::now();
    // Nothing is expected while the job runs; what comes is passed over until the manager goes.
    while (link_ && link_->receive().ok()) {
    }
    set_link(std::nullopt);
    // The first attempt is made at once, unless managers come and go in quick succession.
    if (Clock::now() - connected_at > kGoodLife) {
      delay = kFirstDelay;
    } else {
      pause(delay);
    }
    for (bool resumed = false; !resumed;) {
      set_link(connect());
      if (link_) {
        const Resumed result = resume();
        if (result == Resumed::kRefused) return;
        resumed = result == Resumed::kYes;
      }
      if (!resumed) pause(delay);
    }
    if (std::exchange(said_unreachable_, false)) say_("the node manager is back");
  }
}

std::optional<ManagerLink> Supervisor::connect() {
  auto link = job_.start ? connect_or_start(*job_.start) : ManagerLink::connect(job_.socket);
  if (link.ok()) return std::move(*link);
  const bool worth_a_word = job_.start.has_value() || absl::IsPermissionDenied(link.status());
  if (worth_a_word && !std::exchange(said_unreachable_, true)) {
    say_("the node manager has gone (" + std::string(link.status().message()) +
         "): the job goes on, trying again");
  }
  return std::nullopt;
}

Supervisor::Resumed Supervisor::resume() {
  if (!link_->resume(job_.resume).ok()) return Resumed::kLost;
  for (;;) {
    const auto answer = link_->receive();
    if (!answer.ok()) return Resumed::kLost;
    switch (answer->kind) {
      case ManagerLink::Answer::Kind::kAdmitted: {
        const std::lock_guard lock(mutex_);
        return !exiting_ || link_->say_exiting().ok() ? Resumed::kYes : Resumed::kLost;
      }
      case ManagerLink::Answer::Kind::kQueued:
        continue;
      case ManagerLink::Answer::Kind::kRefused:
      case ManagerLink::Answer::Kind::kError:
        say_("the new node manager does not take the job: " + answer->text + "; the job goes on");
        return Resumed::kRefused;
    }
  }
}

}  // namespace plexrl::run
