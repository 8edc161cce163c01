#include "nodemgr/switch_log.h"

#include <algorithm>
#include <utility>

namespace plexrl::nodemgr {
namespace {

/// The observer answers within milliseconds; one that does not is no reason to lose the gap.
constexpr auto kCausesWithin = std::chrono::seconds(10);

std::uint64_t ns(std::chrono::nanoseconds time) { return static_cast<std::uint64_t>(time.count()); }

}  // namespace

SwitchLog::Change& SwitchLog::change_of(Gpu& gpu) {
  if (gpu.change.id == 0) gpu.change.id = ++last_id_;
  return gpu.change;
}

SwitchLog::Change* SwitchLog::find(std::uint64_t id) {
  if (id == 0) return nullptr;
  for (auto& [index, gpu] : gpus_) {
    if (gpu.change.id == id) return &gpu.change;
  }
  auto late = late_.find(id);
  return late == late_.end() ? nullptr : &late->second;
}

void SwitchLog::withdrawn(const Who& holder, const policy::Decision& decision, Instant now) {
  each(decision.gpus, [&](int, Gpu& gpu) {
    gpu.change = Change{};
    TraceSwitch& record = change_of(gpu).record;
    record.out_job = holder.job;
    record.out_gang = holder.gang;
    record.reason = decision.reason;
    record.decided_at_ns = ns(now);
  });
}

void SwitchLog::reopened(std::uint64_t gpus) {
  each(gpus, [](int, Gpu& gpu) { gpu.change = Change{}; });
}

void SwitchLog::revoked(const Who& holder, std::uint64_t gpus, Instant now) {
  each(gpus, [&](int, Gpu& gpu) {
    gpu.last_holder = holder;
    Change& change = change_of(gpu);
    TraceSwitch& record = change.record;
    change.revoked_at = now;
    if (record.decided_at_ns != 0) record.drain_ns = ns(now) - record.decided_at_ns;
  });
}

std::uint64_t SwitchLog::evicting(int index, std::int64_t bytes, Instant now) {
  auto gpu = gpus_.find(index);
  if (gpu == gpus_.end() || gpu->second.change.id == 0) return 0;
  Change& change = gpu->second.change;
  change.record.needed_bytes += static_cast<std::uint64_t>(bytes);
  if (change.evict_since == Instant{0}) change.evict_since = now;
  return change.id;
}

void SwitchLog::asked_to_leave(std::uint64_t for_switch) {
  if (Change* change = find(for_switch)) ++change->leaving;
}

void SwitchLog::evicted(std::uint64_t for_switch, const wire::Evicted& evicted,
                        const wire::Paged& more, Instant now, const wire::DiskPaged& disk) {
  Change* change = find(for_switch);
  if (change == nullptr) return;
  TraceSwitch& record = change->record;
  record.out_bytes += evicted.moved_bytes;
  record.out_disk_bytes += disk.bytes;
  record.evict_disk_ns += disk.wait_ns;
  record.untouched_bytes += evicted.untouched_bytes;
  record.repeated_bytes += more.repeated_bytes;
  record.unchanged_bytes += more.unchanged_bytes;
  record.shared_bytes += more.shared_bytes;
  record.evict_hash_ns += more.hash_ns;
  record.link_ns += more.link_ns;
  record.evict_ns = ns(now - change->evict_since);
  record.evict_copy_ns += evicted.copy_ns;
  record.evict_unmap_ns += evicted.unmap_ns;
  --change->leaving;
  auto late = late_.find(for_switch);
  if (late == late_.end() || late->second.leaving > 0) return;
  trace_.add(late->second.record);
  late_.erase(late);
}

void SwitchLog::granted(const Who& newcomer, const policy::Decision& decision, Instant now) {
  each(decision.gpus, [&](int, Gpu& gpu) {
    Change& change = change_of(gpu);
    change.record.in_job = newcomer.job;
    change.record.in_gang = newcomer.gang;
    if (change.record.reason.empty()) change.record.reason = decision.reason;
    if (change.record.decided_at_ns == 0) change.record.decided_at_ns = ns(now);
    if (change.revoked_at != Instant{0}) {
      // While the GPU lay free, because nobody wanted it, nothing was switched.
      const Instant resumed = change.evict_since != Instant{0} ? change.evict_since : now;
      change.record.decided_at_ns += ns(std::max(Instant{0}, resumed - change.revoked_at));
    }
    change.granted_at = now;
  });
}

void SwitchLog::loaded(std::uint64_t gpus, const wire::Loaded& loaded, const wire::Paged& more,
                       const wire::DiskPaged& disk) {
  // A process loads all its GPUs in one go and reports sums: they are told of the first GPU, so
  // that totals over GPUs stay right.
  bool first = true;
  each(gpus, [&](int, Gpu& gpu) {
    if (!first) return;
    first = false;
    TraceSwitch& record = gpu.change.record;
    record.in_bytes += loaded.moved_bytes;
    record.in_disk_bytes += disk.bytes;
    record.load_disk_ns += disk.wait_ns;
    record.link_ns += more.link_ns;
    record.load_create_ns += loaded.create_ns;
    record.load_map_ns += loaded.map_ns;
    record.load_copy_ns += loaded.copy_ns;
    record.load_blocked_ns += loaded.blocked_ns;
  });
}

void SwitchLog::running(const Who& newcomer, std::uint64_t gpus, Instant now) {
  each(gpus, [&](int index, Gpu& gpu) {
    Change change = std::exchange(gpu.change, Change{});
    Who before = std::exchange(gpu.last_holder, newcomer);
    TraceSwitch& record = change.record;
    bool moved = record.out_bytes + record.in_bytes > 0 || change.leaving > 0;
    if (before.gang == newcomer.gang && !moved) return;
    record.at_ns = ns(now);
    record.gpu = index;
    if (record.out_gang == 0) {
      record.out_job = before.job;
      record.out_gang = before.gang;
    }
    record.load_ns = ns(now - change.granted_at);
    if (change.leaving > 0) {
      late_[change.id] = std::move(change);
    } else {
      trace_.add(record);
    }
  });
}

void SwitchLog::went_on(const Who& holder, std::uint64_t gpus) {
  each(gpus, [&](int, Gpu& gpu) { gpu.last_holder = holder; });
}

void SwitchLog::idle(const Who& gang, Instant since) {
  Gap& gap = gaps_[gang.gang];
  if (gap.is_open) return;
  gap = {gang.job, since, true, false, false, {}};
  if (watcher_ != nullptr) watcher_->gap_began(gang.gang, since);
}

void SwitchLog::busy(const Who& gang, Instant at) {
  Gap& gap = gaps_[gang.gang];
  if (!gap.is_open) return;
  gap.is_open = false;
  const bool more_comes = watcher_ != nullptr && watcher_->gap_ended(gang.gang, gap.since);
  if (at <= gap.since) return;
  TraceGap record{gang.job, gang.gang, ns(gap.since), ns(at), gap.was_lent, std::move(gap.causes)};
  if (more_comes) {
    ended_gaps_.push_back({std::move(record), at + kCausesWithin});
  } else {
    trace_.add(record);
  }
}

void SwitchLog::lent(std::uint64_t gang) {
  Gap& gap = gaps_[gang];
  if (gap.is_open) gap.was_lent = true;
}

void SwitchLog::gone(const Who& gang, Instant at) {
  busy(gang, at);
  gaps_.erase(gang.gang);
}

bool SwitchLog::waits_for_causes(std::uint64_t gang) const {
  return std::any_of(ended_gaps_.begin(), ended_gaps_.end(),
                     [&](const EndedGap& ended) { return ended.record.gang == gang; });
}

bool SwitchLog::has_untold_gaps() const {
  return !ended_gaps_.empty() || std::any_of(gaps_.begin(), gaps_.end(), [](const auto& entry) {
    return entry.second.is_open && !entry.second.is_told;
  });
}

void SwitchLog::tell_open_gaps(Instant now) {
  std::erase_if(ended_gaps_, [&](const EndedGap& ended) {
    if (ended.until > now) return false;
    trace_.add(ended.record);
    return true;
  });
  for (auto& [gang, gap] : gaps_) {
    // A gang's gaps are told in their order.
    if (!gap.is_open || gap.is_told || waits_for_causes(gang)) continue;
    trace_.add(TraceGap{gap.job, gang, ns(gap.since), 0, gap.was_lent, {}});
    gap.is_told = true;
  }
}

std::vector<SwitchLog::OpenGap> SwitchLog::open_gaps() const {
  std::vector<OpenGap> open;
  for (const auto& [gang, gap] : gaps_) {
    if (gap.is_open) open.push_back({gang, gap.since});
  }
  return open;
}

void SwitchLog::explain(std::uint64_t gang, Instant since, const GapCauses& causes, bool is_final) {
  const auto open = gaps_.find(gang);
  if (open != gaps_.end() && open->second.is_open && open->second.since == since) {
    open->second.causes = causes;
    return;
  }
  const auto ended = std::find_if(ended_gaps_.begin(), ended_gaps_.end(), [&](const EndedGap& gap) {
    return gap.record.gang == gang && gap.record.start_ns == ns(since);
  });
  if (ended == ended_gaps_.end()) return;
  if (!causes.empty()) ended->record.causes = causes;
  if (!is_final) return;
  trace_.add(ended->record);
  ended_gaps_.erase(ended);
}

void SwitchLog::give_up_causes() {
  for (const EndedGap& ended : ended_gaps_) trace_.add(ended.record);
  ended_gaps_.clear();
}

const GapCauses* SwitchLog::causes(std::uint64_t gang) const {
  const auto open = gaps_.find(gang);
  const bool is_known = open != gaps_.end() && open->second.is_open && !open->second.causes.empty();
  return is_known ? &open->second.causes : nullptr;
}

}  // namespace plexrl::nodemgr
