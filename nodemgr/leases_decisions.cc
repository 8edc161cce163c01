// The policy's decisions, carried out: messages, journal entries and trace records.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "nodemgr/clock.h"
#include "nodemgr/fault_point.h"
#include "nodemgr/ids.h"
#include "nodemgr/leases.h"
#include "nodemgr/log.h"
#include "nodemgr/process_identity.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

constexpr wire::Epoch kNoEpoch{};
constexpr int kMaxRounds = 64;  // of decisions that follow from decisions, in one step

SwitchLog::Who who(const LeaseGang& gang) {
  return {id_text(gang.job->id), static_cast<std::uint64_t>(gang.id)};
}

}  // namespace

void Leases::step() {
  if (stepping_) return;
  stepping_ = true;
  if (is_anyone_in_the_way()) read_activity_pages();
  policy::Instant wake_at = policy::kNever;
  for (int round = 0; round < kMaxRounds; ++round) {
    std::vector<policy::Event> events = std::exchange(events_, {});
    policy::StepResult result =
        policy::step(state_, events, boot_now(), node_.generation << 32 ^ counter_);
    wake_at = result.wake_at;
    for (const policy::Decision& decision : result.decisions) carry_out(decision);
    if (events_.empty()) break;
  }
  for (auto& [id, gang] : gangs_) {
    if (const policy::Gang* state = state_.find(gang.id)) {
      trace_state(gang, state_name(*state), state->wait_reason);
    }
  }
  recent_.look(state_);
  stepping_ = false;
  if (wake_at == policy::kNever) {
    node_.loop.cancel_timer(kPolicyTimer);
  } else {
    node_.loop.set_timer(kPolicyTimer, wake_at, [this] { step(); });
  }
  for (const auto& call : after_step_) call();
}

void Leases::carry_out(const policy::Decision& decision) {
  using Kind = policy::Decision::Kind;
  trace_decision(decision);
  LeaseGang* gang = find(decision.gang);
  if (gang == nullptr) return;
  if (decision.kind != Kind::kEvict && decision.kind != Kind::kPrefetch) {
    gang->last_decision = decision;
    gang->decided_at = boot_now();
  }
  switch (decision.kind) {
    case Kind::kWithdraw:
      return withdraw(*gang, decision);
    case Kind::kReopen:
      return reopen(*gang, decision);
    case Kind::kRevoke:
      return revoke(*gang, decision);
    case Kind::kEvict:
      return evict(*gang, decision);
    case Kind::kGrant:
      return grant(*gang, decision);
    case Kind::kRun:
      return run(*gang, decision);
    case Kind::kPrefetch:
      return prefetch(*gang, decision);
    case Kind::kHang:
      return hang(*gang, decision);
    case Kind::kWait:
      return;
  }
}

void Leases::withdraw(LeaseGang& gang, const policy::Decision& decision) {
  gang.attempt = decision.attempt;
  trace_state(gang, "draining", decision.reason);
  switches_.withdrawn(who(gang), decision, boot_now());
  each(gang, [&](Session& session) {
    session.drained = false;
    if (session.granted != gang.epoch || session.client == nullptr) return;
    session.client->send(wire::Type::kWithdraw, 0, wire::Withdraw{gang.epoch, decision.attempt});
  });
  fault_point("after_withdraw");
  check_drained(gang);
}

void Leases::reopen(LeaseGang& gang, const policy::Decision& decision) {
  log_line(LogLevel::kDebug, "leases",
           cat("lease goes on job='", gang.job->name,
               "' gang=", static_cast<std::uint64_t>(gang.id), " reason='", decision.reason, "'"));
  gang.attempt = 0;
  gang.loading = false;  // what it still lacks its processes load as they run
  switches_.reopened(decision.gpus);
  trace_state(gang, "running", decision.reason);
  each(gang, [&](Session& session) {
    if (!session.drained && is_stopped(session.process.pid)) {
      node_.trace->add(TraceError{id_text(gang.job->id), session.id, "not_drained",
                                  cat("process ", session.process.pid, " is stopped")});
    }
    session.drained = false;
    if (session.client == nullptr) return;
    if (session.granted == gang.epoch) {
      session.wants = false;
      session.client->send(wire::Type::kReopen, 0, wire::LeaseRef{gang.epoch});
    } else {
      joined(session);
    }
  });
}

void Leases::revoke(LeaseGang& gang, const policy::Decision& decision) {
  fault_point("before_revoke");
  journal_end(gang.epoch);
  // All have drained: what they loaded of it lies within the lease.
  each(gang, [&](Session& session) { paging_.revoked(session, boot_now()); });
  trace_state(gang, "idle", decision.reason);
  switches_.revoked(who(gang), decision.gpus, boot_now());
  switches_.lent(static_cast<std::uint64_t>(gang.id));
  wire::LeaseRef ended{gang.epoch};
  gang.attempt = 0;
  gang.epoch = kNoEpoch;
  gang.last_epoch = ended.epoch;
  gang.loading = false;
  bool wanted = false;
  each(gang, [&](Session& session) {
    bool had = session.granted == ended.epoch;
    // Who has been told of the lease asks again; who has not believes that it still asks.
    if (!had && session.wants) session.want_since = boot_now();
    wanted |= session.wants;
    session.granted = kNoEpoch;
    session.drained = false;
    session.busy = false;
    // If this can't be delivered the client is dropped; a gate that has drained stays closed.
    if (had && session.client != nullptr) session.client->send(wire::Type::kRevoked, 0, ended);
  });
  if (wanted) update_wants(gang);
  fault_point("after_revoke");
}

void Leases::evict(LeaseGang& gang, const policy::Decision& decision) {
  LeaseGang::Eviction& eviction = gang.evictions[decision.gpu];
  eviction = LeaseGang::Eviction{};
  eviction.since = boot_now();
  std::uint64_t for_switch = switches_.evicting(decision.gpu, decision.bytes, eviction.since);
  // What is on its way back goes with what is there: kEvict calls a prefetch off.
  auto has = [&](const Session& session) {
    const SessionMemory& memory = session.memory.at(decision.gpu);
    return memory.resident + memory.coming;
  };
  std::vector<Session*> sessions;
  each(gang, [&](Session& session) {
    auto it = session.memory.find(decision.gpu);
    if (it != session.memory.end() && has(session) > 0) sessions.push_back(&session);
  });
  std::sort(sessions.begin(), sessions.end(),
            [&](const Session* a, const Session* b) { return has(*a) > has(*b); });
  auto left = static_cast<std::uint64_t>(std::max<std::int64_t>(decision.bytes, 0));
  for (Session* session : sessions) {
    if (left == 0) break;
    if (session->client == nullptr) continue;
    std::uint64_t bytes = std::min(left, has(*session));
    wire::Evict message{static_cast<std::uint32_t>(decision.gpu), 0, bytes};
    paging_.evicting(*session, decision.gpu, gang.last_epoch, for_switch, boot_now());
    session->client->send(wire::Type::kEvict, 0, message);
    eviction.awaiting[session->id] = bytes;
    left -= bytes;
  }
  fault_point("mid_evict");
  if (left > 0) eviction.failed = true;
  check_eviction(gang, decision.gpu);
}

void Leases::prefetch(LeaseGang& gang, const policy::Decision& decision) {
  auto left = static_cast<std::uint64_t>(std::max<std::int64_t>(decision.bytes, 0));
  std::vector<std::pair<Session*, std::uint64_t>> asked;
  each(gang, [&](Session& session) {
    auto it = session.memory.find(decision.gpu);
    const bool can = session.client != nullptr && !session.awaited &&
                     (session.features & wire::kFeaturePrefetch) != 0;
    if (it == session.memory.end() || !can) return;
    const std::uint64_t pageable = node_.ledger.pageable(session.id, decision.gpu);
    const std::uint64_t missing = pageable - std::min(pageable, it->second.resident);
    const std::uint64_t bytes = std::min(left, missing);
    left -= bytes;
    if (bytes != 0) asked.emplace_back(&session, bytes);
  });
  for (auto [session, bytes] : asked) {
    // They load side by side.
    const double rate = decision.bytes_per_s / static_cast<double>(asked.size());
    session->memory.at(decision.gpu).coming = bytes;
    paging_.prefetching(*session, decision.gpu, gang.last_epoch, boot_now());
    session->client->send(
        wire::Type::kPrefetch, 0,
        wire::Prefetch{static_cast<std::uint32_t>(decision.gpu), 0, bytes,
                       std::max<std::uint64_t>(1, static_cast<std::uint64_t>(rate))});
  }
  memory_event(gang, decision.gpu);  // as much as could be asked for
  fault_point("after_prefetch");
}

void Leases::hang(LeaseGang& gang, const policy::Decision& decision) {
  const auto stuck = decision.figures.empty() ? 0.0 : decision.figures.front().value;
  std::string pids;
  each(gang, [&](Session& session) {
    pids += cat(pids.empty() ? "" : " ", session.process.pid);
    node_.trace->add(TraceError{id_text(gang.job->id), session.id, "hung", decision.reason});
  });
  const bool kills = node_.options.hang_action == HangAction::kKill;
  log_line(LogLevel::kWarning, "leases",
           cat("job '", gang.job->name, "' hangs: it has finished nothing for ",
               static_cast<std::uint64_t>(stuck / 1e9), " s and can't be cut (", decision.reason,
               "), and others wait for its GPU. ",
               kills ? "Killing its processes " : "Look at its processes ", pids,
               kills ? "" : "; kill them, or set policy.hang_action to kill"));
  if (!kills) return;
  each(gang, [&](Session& session) {
    // By pidfd: the number may be another's by now.
    const ScopedFd process = open_process(session.process);
    if (!process.is_open()) return;
    if (::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) != 0) {
      log_line(LogLevel::kError, "leases",
               cat("can't kill process ", session.process.pid, ": ", std::strerror(errno)));
    }
  });
}

JournalRecord grant_record(const LeaseGang& gang) {
  JournalRecord record{"grant", {}};
  record.fields["gen"] = cat(gang.epoch.generation);
  record.fields["ctr"] = cat(gang.epoch.counter);
  record.fields["gpus"] = cat(gang.gpus);
  std::string sessions;
  for (SessionKey id : gang.sessions) sessions += cat(sessions.empty() ? "" : ",", id);
  record.fields["sessions"] = sessions;
  return record;
}

void Leases::journal_grant(const LeaseGang& gang) {
  node_.journal_append(grant_record(gang));
  fault_point("after_journal_before_grant");
}

void Leases::journal_end(const wire::Epoch& epoch) {
  JournalRecord record{"revoke", {}};
  record.fields["gen"] = cat(epoch.generation);
  record.fields["ctr"] = cat(epoch.counter);
  node_.journal_append(record);
}

void Leases::grant(LeaseGang& gang, const policy::Decision& decision) {
  fault_point("before_grant");
  const wire::Epoch before = gang.epoch;
  gang.epoch = {node_.generation, ++counter_};
  gang.attempt = 0;
  gang.loading = !decision.run_now;
  gang.loaded_bytes = gang.load_saved = 0;
  gang.load_blocked = std::chrono::nanoseconds{0};
  journal_grant(gang);
  if (before != kNoEpoch) journal_end(before);
  gang.grant_sent = boot_now();
  gang.goes_on = false;
  each(gang, [&](const Session& session) { gang.goes_on |= session.granted != kNoEpoch; });
  if (gang.goes_on && decision.run_now) {
    switches_.went_on(who(gang), decision.gpus);
  } else {
    switches_.granted(who(gang), decision, gang.grant_sent);
    if (decision.run_now) switches_.running(who(gang), decision.gpus, gang.grant_sent);
  }
  gang.busy = true;
  trace_state(gang, decision.run_now ? "running" : "loading", decision.reason);
  each(gang, [&](Session& session) {
    // Who had a lease until now has no reason to say what it is.
    session.busy = session.wants || (session.granted != kNoEpoch && session.busy);
    if (!session.off_gpu) send_grant(gang, session, decision.run_now);
  });
  if (decision.run_now && gang.goes_on) update_activity(gang, boot_now());
  fault_point("after_grant");
  check_loaded(gang);
}

bool Leases::is_held_back(const LeaseGang& gang) const {
  return gang.epoch != kNoEpoch &&
         std::any_of(gang.sessions.begin(), gang.sessions.end(), [&](SessionKey id) {
           const Session* session = node_.find_session(id);
           return session != nullptr && session->off_gpu;
         });
}

void Leases::let_in(std::uint64_t id) {
  LeaseGang* gang = find_gang(id);
  if (gang == nullptr || gang->epoch == kNoEpoch) return;
  gang->grant_sent = boot_now();  // what the rate of its load is learned from
  each(*gang, [&](Session& session) { joined(session); });
  const policy::Gang* state = state_.find(gang->id);
  const bool is_covered = state != nullptr && (gang->gpus & ~state->held) == 0;
  if (is_covered) update_wants(*gang);  // who has the lease now has what it wanted
  fault_point("after_grant");
  check_loaded(*gang);
}

void Leases::send_grant(LeaseGang& gang, Session& session, bool run_now) {
  session.drained = false;
  session.loaded = run_now;
  session.wants = false;
  if (session.client == nullptr) return;
  session.granted = gang.epoch;
  // Of the GPUs that it needs, a gang that has grown may hold a part only.
  const policy::Gang* state = state_.find(gang.id);
  const std::uint64_t held = state != nullptr ? state->held : gang.gpus;
  if (!run_now) paging_.loading(session, held, gang.epoch, boot_now());
  wire::Grant message{};
  message.epoch = gang.epoch;
  message.gang = static_cast<std::uint64_t>(gang.id);
  message.gpus = held;
  message.flags = run_now ? wire::kGrantRunNow : 0u;
  session.client->send(wire::Type::kGrant, 0, message);
}

void Leases::run(LeaseGang& gang, const policy::Decision& decision) {
  gang.loading = false;
  switches_.running(who(gang), decision.gpus, boot_now());
  trace_state(gang, "running", decision.reason);
  each(gang, [&](Session& session) {
    if (session.granted != gang.epoch || session.client == nullptr) return;
    session.client->send(wire::Type::kRun, 0, wire::LeaseRef{gang.epoch});
  });
  if (gang.goes_on) update_activity(gang, boot_now());
  fault_point("after_run");
}

void Leases::trace_gang_of(const Session& session) {
  TraceSession record;
  record.event = TraceSession::Event::kProcessGang;
  record.job_id = id_text(session.job->id);
  record.job_name = session.job->name;
  record.session = session.id;
  record.pid = session.process.pid;
  record.gang = session.gang;
  node_.trace->add(record);
}

void Leases::trace_decision(const policy::Decision& decision) {
  const policy::Gang* gang = state_.find(decision.gang);
  TraceDecision record;
  record.kind = policy::decision_name(decision.kind);
  record.job_id = gang == nullptr ? "" : gang->job;
  record.gang = static_cast<std::uint64_t>(decision.gang);
  record.gpus = decision.gpus;
  record.reason = decision.reason;
  record.figures = decision.figures;
  if (decision.other != policy::kNoGang) {
    record.figures.push_back(
        {"other_gang", static_cast<double>(static_cast<std::uint64_t>(decision.other))});
  }
  if (decision.bytes != 0) {
    record.figures.push_back({"bytes", static_cast<double>(decision.bytes)});
  }
  node_.trace->add(record);
}

void Leases::trace_state(LeaseGang& gang, const char* state, const std::string& reason) {
  if (gang.traced_state == state) return;
  gang.traced_state = state;
  node_.usage.state(gang.job->key, static_cast<std::uint64_t>(gang.id), state, gang.gpus,
                    boot_now());
  node_.trace->add(TraceLease{id_text(gang.job->id), static_cast<std::uint64_t>(gang.id), state,
                              gang.epoch, gang.gpus, reason});
}

}  // namespace plexrl::nodemgr
