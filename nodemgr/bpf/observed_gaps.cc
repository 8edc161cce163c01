#include "nodemgr/bpf/observed_gaps.h"

#include <fstream>
#include <string>
#include <utility>

#include "nodemgr/settings/cat.h"

namespace plexrl::observer {
namespace {

using namespace std::chrono_literals;

/// Of a gap that goes on: soon a first time, because most are short, then now and then.
constexpr auto kFirstLook = 100ms;
constexpr auto kLaterLooks = 1s;
/// Without a gap for so long the programs are detached: to attach them costs about a millisecond,
/// to leave them something at every switch of every thread.
constexpr auto kRestAfter = 2s;

}  // namespace

std::string ObservedGaps::command_of(pid_t process) {
  std::ifstream file(nodemgr::cat("/proc/", process, "/comm"));
  std::string name;
  std::getline(file, name);
  return name;
}

absl::Status ObservedGaps::begin(std::uint64_t gap, std::vector<pid_t> processes, Instant now) {
  absl::Status status = probe_.watch(processes);
  if (!status.ok()) return status;
  gaps_[gap] = {std::move(processes), now, now + kFirstLook};
  rest_at_.reset();
  return absl::OkStatus();
}

pid_t ObservedGaps::expected_ender(const Gap& gap) const {
  for (const pid_t process : gap.processes) {
    const auto last = last_enders_.find(process);
    if (last != last_enders_.end()) return last->second;
  }
  return 0;
}

std::optional<GapReport> ObservedGaps::end(std::uint64_t number, pid_t thread, Instant now) {
  auto entry = gaps_.extract(number);
  if (entry.empty()) return std::nullopt;
  const Gap& gap = entry.mapped();
  const std::vector<ThreadTimes> times = probe_.read_and_forget(gap.processes);
  for (const ThreadTimes& one : times) {
    if (one.thread == thread) last_enders_[one.process] = thread;
  }
  if (gaps_.empty()) rest_at_ = now + kRestAfter;
  const auto observed = now - gap.since;
  return GapReport{number, true, observed, blame(times, observed, thread, command_of)};
}

std::vector<GapReport> ObservedGaps::advance(Instant now) {
  std::vector<GapReport> reports;
  for (auto& [number, gap] : gaps_) {
    if (gap.tell_at > now) continue;
    gap.tell_at = now + kLaterLooks;
    const auto observed = now - gap.since;
    reports.push_back(
        {number, false, observed,
         blame(probe_.read(gap.processes), observed, expected_ender(gap), command_of)});
  }
  if (rest_at_ && *rest_at_ <= now) {
    probe_.rest();
    last_enders_.clear();
    rest_at_.reset();
  }
  return reports;
}

std::optional<ObservedGaps::Instant> ObservedGaps::next() const {
  std::optional<Instant> first = rest_at_;
  for (const auto& [number, gap] : gaps_) {
    first = first ? std::min(*first, gap.tell_at) : gap.tell_at;
  }
  return first;
}

void ObservedGaps::forget_all() {
  for (const auto& [number, gap] : gaps_) probe_.read_and_forget(gap.processes);
  gaps_.clear();
  last_enders_.clear();
  rest_at_.reset();
  probe_.rest();
}

}  // namespace plexrl::observer
