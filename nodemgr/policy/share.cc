#include "nodemgr/policy/share.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace plexrl::nodemgr::policy {
namespace {

bool competes(const Gang& gang) { return gang.wants || gang.holds_lease(); }

double running_ns(const Gang& gang, Instant now) {
  if (gang.phase != Phase::kRunning && gang.phase != Phase::kDraining) return 0;
  return static_cast<double>((now - gang.running_since).count()) * std::popcount(gang.held);
}

/// Virtual time of one owner: what leases that have ended were charged, and those that run.
template <typename Owns>
double virtual_ns(const State& state, const Share& share, Instant now, Owns owns) {
  double running = 0;
  for (const auto& [id, gang] : state.gangs) {
    if (owns(gang)) running += running_ns(gang, now);
  }
  return share.virtual_ns + running / share.weight;
}

double team_ns(const State& state, const std::string& team, Instant now) {
  return virtual_ns(state, state.teams.at(team), now,
                    [&](const Gang& gang) { return gang.team == team; });
}

double job_ns(const State& state, const std::string& job, Instant now) {
  return virtual_ns(state, state.jobs.at(job), now,
                    [&](const Gang& gang) { return gang.job == job; });
}

/// Brings an owner that did not compete up to the least of those that do.
template <typename Same, typename Rival, typename Ns>
void catch_up(State& state, const Gang& gang, Share& share, Same same, Rival rival, Ns ns) {
  std::optional<double> least;
  for (const auto& [id, other] : state.gangs) {
    if (other.id == gang.id || !competes(other)) continue;
    if (same(other)) return;  // the owner competes already
    if (rival(other)) least = std::min(least.value_or(ns(other)), ns(other));
  }
  if (least) share.virtual_ns = std::max(share.virtual_ns, *least);
}

}  // namespace

void charge(State& state, const Gang& gang, Duration served, int gpus) {
  const double ns = static_cast<double>(served.count()) * gpus;
  if (auto job = state.jobs.find(gang.job); job != state.jobs.end()) {
    job->second.virtual_ns += ns / job->second.weight;
  }
  if (auto team = state.teams.find(gang.team); team != state.teams.end()) {
    team->second.virtual_ns += ns / team->second.weight;
  }
}

void enter_competition(State& state, const Gang& gang, Instant now) {
  catch_up(
      state, gang, state.teams[gang.team], [&](const Gang& o) { return o.team == gang.team; },
      [](const Gang&) { return true; }, [&](const Gang& o) { return team_ns(state, o.team, now); });
  catch_up(
      state, gang, state.jobs[gang.job], [&](const Gang& o) { return o.job == gang.job; },
      [&](const Gang& o) { return o.team == gang.team; },
      [&](const Gang& o) { return job_ns(state, o.job, now); });
}

double ahead_ns(const State& state, const Gang& a, const Gang& b, Instant now) {
  if (a.team != b.team) return team_ns(state, a.team, now) - team_ns(state, b.team, now);
  if (a.job != b.job) return job_ns(state, a.job, now) - job_ns(state, b.job, now);
  return 0;
}

Duration until_level(const State& state, const Gang& holder, const Gang& waiter, Instant now) {
  const double behind = -ahead_ns(state, holder, waiter, now);
  if (behind <= 0) return Duration{0};
  const Share& share =
      holder.team != waiter.team ? state.teams.at(holder.team) : state.jobs.at(holder.job);
  const int gpus = std::max(1, std::popcount(holder.held));
  return Duration(static_cast<std::int64_t>(behind * share.weight / gpus));
}

}  // namespace plexrl::nodemgr::policy
