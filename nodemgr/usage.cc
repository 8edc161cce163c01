#include "nodemgr/usage.h"

#include <algorithm>
#include <bit>

#include "nodemgr/policy/types.h"

namespace plexrl::nodemgr {
namespace {

using std::chrono::nanoseconds;

double in_ns(nanoseconds time) { return static_cast<double>(time.count()); }

/// What lies in [from, to] of a stretch that is still going on since `since`.
nanoseconds overlap(nanoseconds since, nanoseconds from, nanoseconds to) {
  return std::max(nanoseconds{0}, to - std::max(since, from));
}

}  // namespace

// ---- WindowSum

void WindowSum::add(Instant from, Instant to, double amount) {
  total_ += amount;
  from = std::min(from, to);
  const double whole = in_ns(to - from);
  const std::int64_t last = to / part_;
  std::int64_t number = std::max<std::int64_t>({from / part_, last - kParts + 1, 0});
  for (; number <= last; ++number) {
    Part& part = parts_[static_cast<std::size_t>(number % kParts)];
    if (part.number > number) continue;  // too long ago
    if (part.number < number) part = {number, 0};
    const Instant begin = std::max(from, number * part_);
    const Instant end = std::min(to, (number + 1) * part_);
    part.amount += whole > 0 ? amount * in_ns(end - begin) / whole : amount;
  }
}

double WindowSum::recent(Instant now) const {
  const std::int64_t last = now / part_;
  double sum = 0;
  for (const Part& part : parts_) {
    if (part.number > last - kParts && part.number <= last) sum += part.amount;
  }
  return sum;
}

WindowSum::Instant WindowSum::window_begin(Instant now) const {
  return std::max<std::int64_t>(now / part_ - kParts + 1, 0) * part_;
}

// ---- Usage

Usage::State Usage::parse(std::string_view state) {
  if (state == "idle") return State::kIdle;
  if (state == "waiting") return State::kWaiting;
  if (state == "loading") return State::kLoading;
  if (state == "running") return State::kRunning;
  if (state == "draining") return State::kDraining;
  return State::kOther;
}

double Usage::gpu_time(const Gang& gang, Instant from, Instant to) {
  return in_ns(std::max(Instant{0}, to - from)) * std::popcount(gang.gpus);
}

void Usage::count(const Gang& gang, Instant to, Totals& totals) {
  const nanoseconds time = to - gang.since;
  const double on_gpus = gpu_time(gang, gang.since, to);
  if (holds(gang.state)) totals.held_gpu_ns += on_gpus;
  switch (gang.state) {
    case State::kIdle:
    case State::kRunning:
      totals.needed_gpu_ns += on_gpus;
      totals.alone += time;
      break;
    case State::kWaiting:
      totals.waited += time;
      [[fallthrough]];
    case State::kLoading:
    case State::kDraining:
      totals.lost += time;
      break;
    case State::kOther:
      break;
  }
}

void Usage::stop_work(Gang& gang, Instant at) {
  if (!gang.works) return;
  gang.works = false;
  at = std::max(at, gang.works_since);
  for (int gpu = 0; gpu < policy::kMaxGpus; ++gpu) {
    if ((gang.gpus >> gpu & 1) == 0) continue;
    gpus_[gpu].busy.add(gang.works_since, at, in_ns(at - gang.works_since));
  }
}

void Usage::state(JobKey job, std::uint64_t id, std::string_view name, std::uint64_t gpus,
                  Instant now) {
  auto [it, is_new] = gangs_.try_emplace(id);
  Gang& gang = it->second;
  const State next = parse(name);
  if (!is_new) {
    Job& its = jobs_[gang.job];
    count(gang, now, its.totals);
    if (holds(gang.state)) {
      const double time = gpu_time(gang, gang.since, now);
      its.granted.add(gang.since, now, time);
      granted_.add(gang.since, now, time);
    }
    if (!runs(next)) stop_work(gang, now);
  }
  if (name == "gone") {
    gangs_.erase(it);
    return;
  }
  const bool begins = runs(next) && !runs(gang.state);
  gang.job = job;
  gang.state = next;
  gang.gpus = gpus;
  gang.since = now;
  if (begins) {
    gang.works = true;
    gang.works_since = now;
    gang.is_idle = false;
  }
}

void Usage::activity(std::uint64_t id, bool busy, Instant at) {
  auto it = gangs_.find(id);
  if (it == gangs_.end()) return;
  Gang& gang = it->second;
  if (!busy) {
    if (runs(gang.state)) at = std::max(at, gang.works_since);
    stop_work(gang, at);
    if (!gang.is_idle) gang.idle_since = at;
    gang.is_idle = true;
    return;
  }
  if (runs(gang.state) && !gang.works) {
    gang.works = true;
    gang.works_since = std::max({at, gang.works_since, gang.idle_since});
  }
  gang.is_idle = false;
}

void Usage::moved_out(int gpu, std::uint64_t bytes, Instant from, Instant to) {
  gpus_[gpu].out.add(from, to, static_cast<double>(bytes));
}

void Usage::moved_in(int gpu, std::uint64_t bytes, Instant from, Instant to) {
  gpus_[gpu].in.add(from, to, static_cast<double>(bytes));
}

Usage::GpuFigures Usage::gpu(int index, Instant now) const {
  auto it = gpus_.find(index);
  const Gpu unused;
  const Gpu& gpu = it == gpus_.end() ? unused : it->second;
  const Instant begin = std::max(began_, gpu.busy.window_begin(now));
  double recent = gpu.busy.recent(now);
  double total = gpu.busy.total();
  for (const auto& [id, gang] : gangs_) {
    if (!gang.works || (gang.gpus >> index & 1) == 0) continue;
    recent += in_ns(overlap(gang.works_since, begin, now));
    total += in_ns(overlap(gang.works_since, began_, now));
  }
  GpuFigures figures;
  const double window = in_ns(now - begin);
  const double age = in_ns(now - began_);
  if (window > 0) {
    figures.duty_ratio = std::clamp(recent / window, 0.0, 1.0);
    figures.out_bytes_s = gpu.out.recent(now) * 1e9 / window;
    figures.in_bytes_s = gpu.in.recent(now) * 1e9 / window;
  }
  if (age > 0) figures.duty_since_start_ratio = std::clamp(total / age, 0.0, 1.0);
  figures.out_bytes = static_cast<std::uint64_t>(gpu.out.total());
  figures.in_bytes = static_cast<std::uint64_t>(gpu.in.total());
  return figures;
}

std::optional<double> Usage::Totals::slowdown_ratio() const {
  if (alone.count() <= 0) return std::nullopt;
  return in_ns(alone + lost) / in_ns(alone);
}

Usage::Totals Usage::totals(JobKey key, Instant now) const {
  auto it = jobs_.find(key);
  Totals totals = it == jobs_.end() ? Totals{} : it->second.totals;
  for (const auto& [id, gang] : gangs_) {
    if (gang.job == key) count(gang, now, totals);
  }
  return totals;
}

Usage::JobFigures Usage::job(JobKey key, Instant now) const {
  const Instant begin = granted_.window_begin(now);
  auto it = jobs_.find(key);
  double mine = it == jobs_.end() ? 0 : it->second.granted.recent(now);
  double all = granted_.recent(now);
  JobFigures figures;
  for (const auto& [id, gang] : gangs_) {
    const double open = holds(gang.state) ? gpu_time(gang, std::max(gang.since, begin), now) : 0;
    all += open;
    if (gang.job == key) mine += open;
  }
  if (all > 0) figures.share_ratio = std::clamp(mine / all, 0.0, 1.0);
  const Totals spent = totals(key, now);
  figures.waited = spent.waited;
  figures.slowdown_ratio = spent.slowdown_ratio();
  return figures;
}

}  // namespace plexrl::nodemgr
