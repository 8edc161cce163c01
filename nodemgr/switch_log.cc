#include "nodemgr/switch_log.h"

namespace plexrl::nodemgr {
namespace {

std::uint64_t ns(std::chrono::nanoseconds time) { return static_cast<std::uint64_t>(time.count()); }

}  // namespace

void SwitchLog::withdrawn(const Who& holder, const policy::Decision& decision, Instant now) {
  each(decision.gpus, [&](int, Gpu& gpu) {
    gpu.record = TraceSwitch{};
    gpu.record.out_job = holder.job;
    gpu.record.out_gang = holder.gang;
    gpu.record.reason = decision.reason;
    gpu.record.decided_at_ns = ns(now);
  });
}

void SwitchLog::revoked(const Who& holder, std::uint64_t gpus, Instant now) {
  each(gpus, [&](int, Gpu& gpu) {
    gpu.last_holder = holder;
    if (gpu.record.decided_at_ns != 0) gpu.record.drain_ns = ns(now) - gpu.record.decided_at_ns;
  });
}

void SwitchLog::evicting(int index, std::int64_t bytes, Instant now) {
  Gpu& gpu = gpus_[index];
  gpu.record.needed_bytes += static_cast<std::uint64_t>(bytes);
  if (gpu.evict_since == Instant{0}) gpu.evict_since = now;
}

void SwitchLog::evicted(const wire::Evicted& evicted, Instant now) {
  auto it = gpus_.find(static_cast<int>(evicted.gpu));
  if (it == gpus_.end() || it->second.evict_since == Instant{0}) return;
  TraceSwitch& record = it->second.record;
  record.out_bytes += evicted.moved_bytes;
  record.untouched_bytes += evicted.untouched_bytes;
  record.evict_ns = ns(now - it->second.evict_since);
  record.evict_copy_ns += evicted.copy_ns;
  record.evict_unmap_ns += evicted.unmap_ns;
}

void SwitchLog::granted(const Who& newcomer, const policy::Decision& decision, Instant now) {
  each(decision.gpus, [&](int, Gpu& gpu) {
    gpu.record.in_job = newcomer.job;
    gpu.record.in_gang = newcomer.gang;
    if (gpu.record.reason.empty()) gpu.record.reason = decision.reason;
    if (gpu.record.decided_at_ns == 0) gpu.record.decided_at_ns = ns(now);
    gpu.granted_at = now;
  });
}

void SwitchLog::loaded(std::uint64_t gpus, const wire::Loaded& loaded) {
  // A process loads all its GPUs in one go and reports sums: they are told of the first GPU, so
  // that totals over GPUs stay right.
  bool first = true;
  each(gpus, [&](int, Gpu& gpu) {
    if (!first) return;
    first = false;
    TraceSwitch& record = gpu.record;
    record.in_bytes += loaded.moved_bytes;
    record.load_create_ns += loaded.create_ns;
    record.load_map_ns += loaded.map_ns;
    record.load_copy_ns += loaded.copy_ns;
    record.load_blocked_ns += loaded.blocked_ns;
  });
}

void SwitchLog::running(const Who& newcomer, std::uint64_t gpus, Instant now) {
  each(gpus, [&](int index, Gpu& gpu) {
    TraceSwitch& record = gpu.record;
    bool moved = record.out_bytes + record.in_bytes > 0;
    if (gpu.last_holder.gang != newcomer.gang || moved) {
      record.gpu = index;
      if (record.out_gang == 0) {
        record.out_job = gpu.last_holder.job;
        record.out_gang = gpu.last_holder.gang;
      }
      record.load_ns = ns(now - gpu.granted_at);
      trace_.add(record);
    }
    gpu.last_holder = newcomer;
    gpu.record = TraceSwitch{};
    gpu.evict_since = Instant{0};
  });
}

void SwitchLog::idle(const Who& gang, Instant since) {
  Gap& gap = gaps_[gang.gang];
  if (!gap.is_open) gap = {since, true, false};
}

void SwitchLog::busy(const Who& gang, Instant at) {
  Gap& gap = gaps_[gang.gang];
  if (gap.is_open && at > gap.since) {
    trace_.add(TraceGap{gang.job, gang.gang, ns(gap.since), ns(at), gap.was_lent});
  }
  gap.is_open = false;
}

void SwitchLog::lent(std::uint64_t gang) {
  Gap& gap = gaps_[gang];
  if (gap.is_open) gap.was_lent = true;
}

void SwitchLog::gone(std::uint64_t gang) { gaps_.erase(gang); }

}  // namespace plexrl::nodemgr
