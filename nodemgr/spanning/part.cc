#include "nodemgr/spanning/part.h"

#include <algorithm>

namespace plexrl::nodemgr::spanning {

using policy::Standing;

const char* verb_name(Verb verb) {
  switch (verb) {
    case Verb::kBar:
      return "bar";
    case Verb::kCall:
      return "call";
    case Verb::kTake:
      return "take";
    case Verb::kCommit:
      return "commit";
    case Verb::kStart:
      return "start";
    case Verb::kWithdraw:
      return "withdraw";
  }
  return "?";
}

PartState state_of(const policy::Gang* gang) {
  PartState state;
  if (gang == nullptr) return state;
  const bool drains = gang->phase == policy::Phase::kDraining;
  state.exists = true;
  state.gpus = gang->gpus;
  state.holds = gang->holds_lease();
  state.turn = gang->turn;
  state.kept = gang->kept;
  state.running = gang->phase == policy::Phase::kRunning || (drains && !gang->drained);
  state.loaded = state.holds && (gang->loaded || gang->phase != policy::Phase::kLoading);
  state.drained = gang->drained;
  state.undrained = gang->undrained;
  state.idle = gang->idle || !state.holds;
  state.exiting = gang->exiting;
  state.release = gang->release;
  state.why = gang->wait_reason;
  return state;
}

void Part::hear(const Order& order, Instant now) {
  const bool is_new = !is_told_ || order.slot != order_.slot || order.verb != order_.verb ||
                      order.attempt != order_.attempt;
  order_ = order;
  is_told_ = true;
  heard_ = now;
  if (!is_new) return;
  since_ = now;
  failed_ = voted_ = false;
}

Standing Part::standing(Instant now) const {
  const bool is_away = this->is_away(now);
  // It may be saving a checkpoint while it still can.
  if (is_away && is_exiting_) return Standing::kOwn;
  switch (order_.verb) {
    case Verb::kBar:
      return Standing::kBarred;
    case Verb::kCall:
      return Standing::kCalled;
    case Verb::kTake:
      return failed_ || is_away ? Standing::kCalled : Standing::kTaken;
    case Verb::kCommit:
      return is_away ? Standing::kCalled : Standing::kLeased;
    case Verb::kStart:
      return is_away ? Standing::kOwn : Standing::kStarted;
    case Verb::kWithdraw:
      return is_away ? Standing::kOwn : failed_ ? Standing::kStarted : Standing::kWithdrawn;
  }
  return Standing::kBarred;
}

bool Part::is_over(Instant now) const {
  if (!is_told_ || standing(now) == Standing::kOwn) return false;
  return order_.verb == Verb::kBar || (order_.verb == Verb::kCommit && is_away(now));
}

void Part::look(const PartState& state, Instant now) {
  is_exiting_ = state.exiting;
  if (order_.verb == Verb::kTake) {
    voted_ |= state.kept || state.holds || !state.exists;
    // Who has voted yes is bound by it; who has not gives up.
    failed_ |= !voted_ && now >= since_ + config_.take_bound;
  }
  if (order_.verb == Verb::kWithdraw) failed_ |= state.undrained;
}

PartReport Part::report(const PartState& state) const {
  PartReport report;
  report.job = job_;
  report.nodes = nodes_;
  report.gpus = state.gpus;
  report.wants = state.wants;
  report.holds = state.holds;
  report.idle = state.idle;
  report.release = state.release;
  report.slot = order_.slot;
  report.verb = order_.verb;
  report.attempt = order_.attempt;
  switch (order_.verb) {
    case Verb::kBar:
      report.done = is_told_ && !state.holds;
      break;
    case Verb::kCall:
      report.done = state.turn || state.holds || !state.exists;
      break;
    case Verb::kTake:
      report.done = voted_;
      break;
    case Verb::kCommit:
      report.done = state.loaded || !state.exists;
      break;
    case Verb::kStart:
      report.done = state.running || !state.exists;
      break;
    case Verb::kWithdraw:
      report.done = !failed_ && (state.drained || !state.holds);
      break;
  }
  report.failed = failed_;
  if (!report.done) report.why = state.why;
  return report;
}

Instant Part::wake_at(Instant now) const {
  Instant at = policy::kNever;
  const auto wake = [&](Instant then) {
    if (then > now) at = std::min(at, then);
  };
  wake(heard_ + config_.away_after);
  if (order_.verb == Verb::kTake && !voted_ && !failed_) wake(since_ + config_.take_bound);
  return at;
}

std::string Part::words(const PartState& state, Instant now) const {
  if (state.running || standing(now) == Standing::kOwn) return "";
  if (!is_told_ || is_away(now)) {
    return "waits for the cluster manager, which hands out leases over several nodes and is silent";
  }
  return order_.why;
}

}  // namespace plexrl::nodemgr::spanning
