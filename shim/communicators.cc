#include "shim/communicators.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "interpose/driver.h"
#include "interpose/no_cancel.h"
#include "shim/boottime.h"
#include "shim/driver_scope.h"
#include "shim/gate.h"
#include "shim/lease_keeper.h"

namespace plexrl::shim {
namespace {

/// An operation that has not ended for so long waits for other ranks, or takes so long that a
/// meeting before the next costs nothing beside it.
constexpr std::uint64_t kLongWaitNs = 100'000'000;
/// Between looks at operations: while nobody waits for their end, and while others do.
constexpr std::uint64_t kLookNs = 20'000'000;
constexpr std::uint64_t kCloseLookNs = 1'000'000;

std::uint64_t this_thread() { return static_cast<std::uint64_t>(pthread_self()); }

void mix(Communicators::Name* name, std::uint64_t word) {
  name->hi = (name->hi ^ word) * 0x9e3779b97f4a7c15u;
  name->lo = (name->lo + word) * 0xbf58476d1ce4e5b9u;
  name->hi ^= name->lo >> 29;
  name->lo ^= name->hi >> 31;
}

class KeepErrno {
 public:
  ~KeepErrno() { errno = saved_; }

 private:
  const int saved_ = errno;
};

}  // namespace

Communicators::Name Communicators::name_of(const ncclUniqueId& id) noexcept {
  Name name{1, 1};
  for (std::size_t at = 0; at < sizeof id.internal; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, id.internal + at, sizeof word);
    mix(&name, word);
  }
  return name;
}

std::optional<Communicators::Name> Communicators::derive(ncclComm_t comm, std::uint64_t which) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(comm);
  if (found == known_.end()) return std::nullopt;
  Name name = found->second.name;
  mix(&name, ++found->second.derived);
  mix(&name, which);
  return name;
}

bool Communicators::has_manager() const {
  return client_.is_connected() && (client_.welcome().features & wire::kFeatureCommunicators) != 0;
}

void Communicators::begin(const Name& name) {
  const KeepErrno keep;
  const interpose::NoCancel whole;
  bool is_first = true;
  {
    const std::lock_guard lock(mutex_);
    is_first = ++ranks_[name].communicators == 1;
  }
  if (!is_first) return stay(name);
  // Without an answer the connection has gone, and the next one begins with all of them.
  if (has_manager()) client_.ask(wire::Type::kCommJoin, wire::CommRef{name});
}

void Communicators::made(const Name& name, ncclComm_t comm) {
  const std::lock_guard lock(mutex_);
  known_[comm] = {name};
}

void Communicators::not_made(const Name& name) {
  const KeepErrno keep;
  CUevent event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = ranks_.find(name);
    if (found == ranks_.end() || --found->second.communicators > 0) return;
    event = found->second.event;
    ranks_.erase(found);
  }
  if (event != nullptr) driver.cuEventDestroy_v2(event);
  if (has_manager()) client_.connection().send(wire::Type::kCommLeave, wire::CommRef{name});
}

void Communicators::made_in_group(const Name& name, const ncclComm_t* out) {
  const std::lock_guard lock(mutex_);
  pending_.insert({this_thread(), {name, out}});
}

void Communicators::group_ended(bool is_good) {
  std::vector<Pending> settled;
  {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = pending_.equal_range(this_thread());
    for (auto it = first; it != last; ++it) settled.push_back(it->second);
    pending_.erase(first, last);
    collected_.erase(this_thread());  // of a group that was only simulated
  }
  for (const Pending& one : settled) {
    if (is_good && *one.out != nullptr) {
      made(one.name, *one.out);
    } else {
      not_made(one.name);
    }
  }
}

std::optional<Communicators::Name> Communicators::take(ncclComm_t comm) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(comm);
  if (found == known_.end()) return std::nullopt;
  const Name name = found->second.name;
  known_.erase(found);
  return name;
}

void Communicators::collect(const Call& call) {
  const std::lock_guard lock(mutex_);
  collected_[this_thread()].push_back(call);
}

/// From now on the ranks are one gang as long as there is the communicator; when it returns they
/// are.
void Communicators::stay(const Name& name) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = ranks_.find(name);
    if (found == ranks_.end() || std::exchange(found->second.stays, true)) return;
    found->second.meets = false;
  }
  if (has_manager()) client_.ask(wire::Type::kCommStays, wire::CommRef{name});
}

std::vector<Communicators::Passing> Communicators::enter(const std::vector<Call>& calls,
                                                         std::vector<Name>* meeting) {
  std::vector<Passing> passing;
  for (const Call& call : calls) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const bool captures = driver.cuStreamIsCapturing(call.stream, &status) == CUDA_SUCCESS &&
                          status != CU_STREAM_CAPTURE_STATUS_NONE;
    Name name{};
    {
      const std::lock_guard lock(mutex_);
      const auto known = known_.find(call.comm);
      if (known == known_.end()) continue;
      name = known->second.name;
    }
    if (captures || !call.is_of_all) stay(name);
    if (captures) continue;
    const std::lock_guard lock(mutex_);
    const auto found = ranks_.find(name);
    if (found == ranks_.end()) continue;
    Rank& rank = found->second;
    const auto is_it = [&](const Passing& one) { return one.name == name; };
    if (std::any_of(passing.begin(), passing.end(), is_it)) continue;  // one kernel, as NCCL has it
    ++rank.submitted;
    passing.push_back({name, call.stream});
    if (rank.meets) {
      meeting->push_back(name);  // inside when it has met
    } else {
      ++rank.inside;
    }
  }
  return passing;
}

void Communicators::meet(const Name& name) {
  wire::CommAt at{name, 0, 0, 0};
  {
    const std::lock_guard lock(mutex_);
    const auto found = ranks_.find(name);
    if (found == ranks_.end()) return;
    const Rank& rank = found->second;
    at.submitted = rank.submitted;
    bool is_outstanding = rank.is_outstanding;
    if (is_outstanding && rank.has_event) {  // the agent may not have looked since it ended
      const RelaxedCapture relaxed;
      is_outstanding = driver.cuEventQuery(rank.event) != CUDA_SUCCESS;
    }
    at.is_outstanding = is_outstanding || rank.inside > 0 ? 1 : 0;
  }
  // Without an answer the connection has gone; all go on then.
  client_.ask(wire::Type::kCommMeet, at);
  const std::lock_guard lock(mutex_);
  if (const auto found = ranks_.find(name); found != ranks_.end()) ++found->second.inside;
}

void Communicators::before(const Call* call) {
  const KeepErrno keep;
  const interpose::NoCancel whole;
  std::vector<Call> calls;
  if (call != nullptr) {
    calls.push_back(*call);
  } else {
    const std::lock_guard lock(mutex_);
    calls = std::move(collected_[this_thread()]);
    collected_.erase(this_thread());
  }
  std::vector<Name> meeting;
  std::vector<Passing> passing = enter(calls, &meeting);
  // In the same order in all ranks, whatever the order of the group's calls.
  std::sort(meeting.begin(), meeting.end(), Order());
  for (const Name& name : meeting) meet(name);
  const std::lock_guard lock(mutex_);
  passing_[this_thread()] = std::move(passing);
}

/// Behind the operation, in its stream. Not while a lease ends: then what is outstanding has ended
/// when nothing of this process is.
bool Communicators::record_event(const Passing& passing) {
  CUevent event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = ranks_.find(passing.name);
    if (found == ranks_.end()) return false;
    event = found->second.event;
  }
  const InsideGate inside = InsideGate::if_open();
  if (!inside) return false;
  CUcontext context = nullptr;
  const bool has_context = passing.stream == nullptr
                               ? driver.cuCtxGetCurrent(&context) == CUDA_SUCCESS
                               : driver.cuStreamGetCtx(passing.stream, &context) == CUDA_SUCCESS;
  if (!has_context || context == nullptr) return false;
  const PushedContext here(context);
  if (event == nullptr) {
    if (driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return false;
    const std::lock_guard lock(mutex_);
    const auto found = ranks_.find(passing.name);
    if (found == ranks_.end() || found->second.event != nullptr) {
      driver.cuEventDestroy_v2(event);  // another thread was faster
      return false;
    }
    found->second.event = event;
    found->second.event_context = context;
  }
  return driver.cuEventRecord(event, passing.stream) == CUDA_SUCCESS;
}

void Communicators::after() {
  const KeepErrno keep;
  const interpose::NoCancel whole;
  std::vector<Passing> passing;
  {
    const std::lock_guard lock(mutex_);
    const auto found = passing_.find(this_thread());
    if (found == passing_.end()) return;
    passing = std::move(found->second);
    passing_.erase(found);
  }
  bool wakes = false;  // the agent looks again by itself while something is outstanding
  for (const Passing& one : passing) {
    const bool has_event = record_event(one);
    const std::lock_guard lock(mutex_);
    const auto found = ranks_.find(one.name);
    if (found == ranks_.end()) continue;
    Rank& rank = found->second;
    --rank.inside;
    wakes |= !std::exchange(rank.is_outstanding, true);
    rank.has_event = has_event && rank.event != nullptr;
    rank.since_ns = boottime_ns();
  }
  if (wakes) wake_agent_();
}

void Communicators::context_ends(CUcontext context) {
  const std::lock_guard lock(mutex_);
  for (auto& [name, rank] : ranks_) {
    if (rank.event == nullptr || rank.event_context != context) continue;
    rank.event = nullptr;
    rank.has_event = false;  // what is outstanding has ended when nothing of this process is
  }
}

void Communicators::tell(const Name& name, const Rank& rank) {
  const bool is_outstanding = rank.is_outstanding || rank.inside > 0;
  client_.connection().send(wire::Type::kCommAt,
                            wire::CommAt{name, rank.submitted, is_outstanding ? 1u : 0u, 0});
}

void Communicators::handle(const Packet& packet) {
  if (packet.type != wire::Type::kCommMode) return;
  const auto* const mode = packet.as<wire::CommMode>();
  if (mode == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto found = ranks_.find(mode->comm);
  if (found == ranks_.end()) return;
  Rank& rank = found->second;
  rank.meets = mode->mode == wire::kMeets && !rank.stays;
  rank.told_wait = false;
  tell(mode->comm, rank);
}

std::uint64_t Communicators::step(bool is_quiet) {
  std::uint64_t pause = LeaseKeeper::kForever;
  const std::lock_guard lock(mutex_);
  for (auto& [name, rank] : ranks_) {
    if (!rank.is_outstanding) continue;
    bool has_ended = is_quiet && rank.inside == 0;
    if (!has_ended && rank.has_event) {
      const RelaxedCapture relaxed;
      has_ended = driver.cuEventQuery(rank.event) != CUDA_ERROR_NOT_READY;
    }
    if (has_ended) {
      rank.is_outstanding = false;
      if (rank.meets && rank.inside == 0 && has_manager()) tell(name, rank);
      continue;
    }
    pause = std::min(pause, rank.meets ? kCloseLookNs : kLookNs);
    if (rank.meets || rank.stays || rank.told_wait || !has_manager()) continue;
    if (boottime_ns() - rank.since_ns < kLongWaitNs) continue;
    rank.told_wait = true;
    client_.connection().send(wire::Type::kCommWaits, wire::CommRef{name});
  }
  return pause;
}

void Communicators::resume(Connection& fresh) {
  if ((client_.welcome().features & wire::kFeatureCommunicators) == 0) return;
  const std::lock_guard lock(mutex_);
  for (auto& [name, rank] : ranks_) {
    rank.meets = rank.told_wait = false;
    fresh.send(wire::Type::kCommJoin, wire::CommRef{name});
    if (rank.stays) fresh.send(wire::Type::kCommStays, wire::CommRef{name});
  }
}

}  // namespace plexrl::shim
