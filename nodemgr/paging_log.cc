#include "nodemgr/paging_log.h"

#include <algorithm>
#include <utility>

#include "nodemgr/ids.h"

namespace plexrl::nodemgr {
namespace {

std::uint64_t ns(std::chrono::nanoseconds time) { return static_cast<std::uint64_t>(time.count()); }

TracePaging asked(TracePaging::Kind kind, const Session& session, std::uint64_t gpus,
                  wire::Epoch epoch, std::chrono::nanoseconds now) {
  TracePaging record;
  record.kind = kind;
  record.job_id = id_text(session.job->id);
  record.gang = session.gang;
  record.session = session.id;
  record.pid = session.process.pid;
  record.gpus = gpus;
  record.epoch = epoch;
  record.asked_ns = record.start_ns = ns(now);
  return record;
}

/// The process's own times, as far as they are possible.
void take_times(TracePaging& record, std::uint64_t start_ns, std::uint64_t end_ns,
                std::chrono::nanoseconds now) {
  record.start_ns = std::clamp(start_ns, record.asked_ns, ns(now));
  record.end_ns = std::clamp(end_ns, record.start_ns, ns(now));
}

void take_more(TracePaging& record, const wire::Paged& more, const wire::DiskPaged& disk) {
  record.disk_bytes = disk.bytes;
  record.disk_ns = disk.wait_ns;
  record.repeated_bytes = more.repeated_bytes;
  record.unchanged_bytes = more.unchanged_bytes;
  record.hash_ns = more.hash_ns;
  record.link_ns = more.link_ns;
}

}  // namespace

void PagingLog::evicting(const Session& session, int gpu, wire::Epoch last_lease,
                         std::uint64_t for_switch, Instant now) {
  switches_.asked_to_leave(for_switch);
  evictions_[session.id].push_back(
      {asked(TracePaging::Kind::kEvict, session, std::uint64_t{1} << gpu, last_lease, now),
       for_switch});
}

void PagingLog::evicted(const Session& session, const wire::Evicted& evicted, Instant now) {
  auto found = evictions_.find(session.id);
  if (found == evictions_.end()) return;  // it was not asked
  Asked answered = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) evictions_.erase(found);
  TracePaging& record = answered.record;
  take_times(record, evicted.start_ns, evicted.end_ns, now);
  record.outcome = evicted.failed != 0 ? "failed" : "done";
  record.out_bytes = evicted.moved_bytes;
  record.untouched_bytes = evicted.untouched_bytes;
  take_more(record, session.paged[0], session.disk_paged[0]);
  trace_.add(record);
  switches_.evicted(answered.for_switch, evicted, session.paged[0], now, session.disk_paged[0]);
}

void PagingLog::loading(const Session& session, std::uint64_t gpus, wire::Epoch epoch,
                        Instant now) {
  end_load(session, "superseded", now);
  loads_[session.id] = asked(TracePaging::Kind::kLoad, session, gpus, epoch, now);
}

void PagingLog::loaded(const Session& session, const wire::Loaded& loaded, std::uint64_t gpus,
                       Instant now) {
  auto found = loads_.find(session.id);
  bool expected = found != loads_.end() && found->second.epoch == loaded.epoch;
  // Where the manager thought that nothing was missing, a process may have found something.
  TracePaging record = expected ? found->second
                                : asked(TracePaging::Kind::kLoad, session, gpus, loaded.epoch,
                                        std::min(now, Instant(static_cast<std::int64_t>(
                                                          std::min(loaded.start_ns, ns(now))))));
  if (expected) loads_.erase(found);
  take_times(record, loaded.start_ns, loaded.end_ns, now);
  record.outcome = "done";
  record.in_bytes = loaded.moved_bytes;
  record.untouched_bytes = loaded.zero_bytes;
  take_more(record, session.paged[1], session.disk_paged[1]);
  trace_.add(record);
}

void PagingLog::prefetching(const Session& session, int gpu, wire::Epoch last_lease, Instant now) {
  prefetches_[session.id][gpu] =
      asked(TracePaging::Kind::kPrefetch, session, std::uint64_t{1} << gpu, last_lease, now);
}

void PagingLog::prefetched(const Session& session, const wire::Prefetched& prefetched,
                           Instant now) {
  auto found = prefetches_.find(session.id);
  if (found == prefetches_.end()) return;  // it was not asked
  auto asked = found->second.extract(static_cast<int>(prefetched.gpu));
  if (found->second.empty()) prefetches_.erase(found);
  if (asked.empty()) return;
  TracePaging& record = asked.mapped();
  take_times(record, prefetched.start_ns, prefetched.end_ns, now);
  record.outcome = "done";
  record.in_bytes = prefetched.moved_bytes;
  record.untouched_bytes = prefetched.zero_bytes;
  record.repeated_bytes = prefetched.repeated_bytes;
  record.link_ns = prefetched.link_ns;
  trace_.add(record);
}

void PagingLog::end_load(const Session& session, const char* outcome, Instant end) {
  auto found = loads_.find(session.id);
  if (found == loads_.end()) return;
  found->second.end_ns = ns(end);
  found->second.outcome = outcome;
  trace_.add(found->second);
  loads_.erase(found);
}

void PagingLog::end_all(const Session& session, const char* outcome, Instant end, Instant now) {
  end_load(session, outcome, end);
  auto prefetches = prefetches_.extract(session.id);
  if (!prefetches.empty()) {
    for (auto& [gpu, record] : prefetches.mapped()) {
      record.end_ns = ns(end);
      record.outcome = outcome;
      trace_.add(record);
    }
  }
  auto found = evictions_.find(session.id);
  if (found == evictions_.end()) return;
  for (Asked& unanswered : std::exchange(found->second, {})) {
    unanswered.record.end_ns = ns(end);
    unanswered.record.outcome = outcome;
    trace_.add(unanswered.record);
    switches_.evicted(unanswered.for_switch, wire::Evicted{}, wire::Paged{}, now);
  }
  evictions_.erase(session.id);
}

void PagingLog::revoked(const Session& session, Instant now) { end_load(session, "revoked", now); }

void PagingLog::lost(const Session& session, Instant now) {
  end_all(session, "lost", Instant{0}, now);
}

void PagingLog::died(const Session& session, Instant now) { end_all(session, "died", now, now); }

}  // namespace plexrl::nodemgr
