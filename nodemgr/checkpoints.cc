#include "nodemgr/checkpoints.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include "nodemgr/clock.h"
#include "nodemgr/fault_point.h"
#include "nodemgr/ids.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/values.h"

namespace plexrl::nodemgr {
namespace {

using namespace std::chrono_literals;

constexpr auto kPollPause = 5ms;  // while something else has to end
constexpr std::chrono::nanoseconds kLongestPollPause = 500ms;
constexpr auto kStagePatience = 10s;  // for leases, evictions, answers
constexpr auto kLockTimeout = 5s;     // of one process
constexpr auto kRetryPause = 1s;
constexpr double kSlowestBytesPerNs = 0.1;  // 100 MB/s

/// For a helper that moves so many bytes of so many processes.
std::chrono::nanoseconds patience_for(std::uint64_t bytes, std::size_t processes) {
  const auto copies = std::chrono::nanoseconds(
      static_cast<std::int64_t>(static_cast<double>(bytes) / kSlowestBytesPerNs));
  return 10s + copies + kLockTimeout * static_cast<std::int64_t>(processes);
}

std::string list_of(const std::set<SessionKey>& sessions) {
  std::string text;
  for (const SessionKey id : sessions) text += cat(text.empty() ? "" : ",", id);
  return text;
}

void tell_back(const Session& session) {
  if (session.client == nullptr) return;  // it says where it is when it comes again
  session.client->send(wire::Type::kBackOnGpu, 0, std::span<const std::byte>());
}

}  // namespace

JournalRecord place_record(const std::set<SessionKey>& sessions, const char* place) {
  JournalRecord record{"place", {}};
  record.fields["sessions"] = list_of(sessions);
  record.fields["place"] = place;
  return record;
}

Checkpoints::Checkpoints(Node& node, Leases& leases, Sessions& sessions, GpuProbe& probe,
                         std::function<void()> room_changed)
    : node_(node),
      leases_(leases),
      sessions_(sessions),
      probe_(probe),
      room_changed_(std::move(room_changed)),
      helper_(node.loop, kHelperTimer) {
  leases_.add_after_step([this] { advance(); });
  sessions_.set_on_left(
      [this](Session& session, const wire::LeftGpu& body) { left(session, body); });
}

void Checkpoints::advance() {
  if (std::exchange(advancing_, true)) return;
  const std::vector<Node::Returning> before = node_.returning;
  if (operation_) {
    work();
  } else if (!settle_absences() && !begin_due_return()) {
    look_for_room();
  }
  if (!before.empty() && node_.returning != before) room_changed_();
  advancing_ = false;
}

void Checkpoints::set_timer(std::chrono::nanoseconds at) {
  node_.loop.set_timer(kCheckpointTimer, at, [this] { leases_.step(); });
}

// ---- a gang leaves

void Checkpoints::begin_leave(LeaseGang& gang) {
  CheckpointOperation& operation = operation_.emplace();
  operation.number = ++operations_;
  operation.gang = static_cast<std::uint64_t>(gang.id);
  operation.began = boot_now();
  operation.stage = CheckpointStage::kEmptying;
  operation.sessions = gang.sessions;
  std::uint64_t resident = 0;
  for (const SessionKey id : gang.sessions) {
    const Session* session = living(id);
    if (session == nullptr) continue;
    for (const auto& [gpu, memory] : session->memory) resident += memory.resident;
  }
  operation.deadline = operation.began + kStagePatience + patience_for(resident, 0);
  node_.ledger.place(gang.sessions, Ledger::Place::kLeaving);
  leases_.set_absence(operation.gang, policy::Absence::kLeaves);
  log_line(LogLevel::kInfo, "checkpoints",
           cat("checkpointing job='", gang.job->name, "' gang=", operation.gang));
  set_timer(boot_now());
}

/// One look at the operation under way.
void Checkpoints::work() {
  switch (operation_->stage) {
    case CheckpointStage::kEmptying:
      return wait_till_empty();
    case CheckpointStage::kReadying:
      return ready();
    case CheckpointStage::kRoom:
      return wait_for_room();
    case CheckpointStage::kUndoing:
      if (helper_.is_running()) return;
      return start_helper("return", patience_for(operation_->bytes, operation_->sessions.size()),
                          [this](const HelperProcess::End& end) { undone(end); });
    case CheckpointStage::kLeaving:
    case CheckpointStage::kReturning:
      return;  // the helper's end is told
  }
}

/// The policy takes its lease back and has its memory evicted (policy::Absence::kLeaves).
void Checkpoints::wait_till_empty() {
  const LeaseGang* gang = leases_.find_gang(operation_->gang);
  if (gang == nullptr || gang->sessions != operation_->sessions) {
    return call_off("its processes have changed");
  }
  const policy::Gang* state = leases_.state_of(gang->id);
  if (state == nullptr || state->wants) return call_off("it wants the GPU");
  const bool has_lease = state->holds_lease() || gang->epoch != wire::Epoch{};
  if (!has_lease && is_empty(*state)) return make_ready();
  if (boot_now() > operation_->deadline) {
    return call_off(has_lease ? "its lease does not end" : "some of its memory does not leave HBM");
  }
  set_timer(boot_now() + kPollPause);
}

bool Checkpoints::is_empty(const policy::Gang& gang) {
  for (const auto& [gpu, memory] : gang.memory) {
    if (memory.leaving) return false;
  }
  for (const SessionKey id : operation_->sessions) {
    const Session* session = living(id);
    if (session == nullptr) continue;
    for (const auto& [gpu, memory] : session->memory) {
      if (memory.resident + memory.coming != 0) return false;
    }
  }
  return true;
}

void Checkpoints::make_ready() {
  operation_->bytes = 0;
  for (const SessionKey id : operation_->sessions) {
    const Session* session = living(id);
    if (session == nullptr || session->client == nullptr) {
      return call_off("a process has no connection");
    }
    for (const auto& [gpu, memory] : session->memory) {
      operation_->bytes += fixed_bytes(*session, gpu);
    }
  }
  for (const SessionKey id : operation_->sessions) {
    // What it has in host memory from now on, for the next manager.
    for (const auto& [gpu, memory] : living(id)->memory) {
      node_.journal_append(attach_record(node_, *living(id), gpu));
    }
  }
  journal("leaving");
  operation_->stage = CheckpointStage::kReadying;
  operation_->deadline = boot_now() + kStagePatience;
  operation_->awaited = operation_->sessions;
  // Half of it: a call that waits for the last work returns a little after that has ended.
  const auto quiet = static_cast<std::uint64_t>(node_.options.checkpoint_after.count() / 2);
  for (const SessionKey id : operation_->sessions) {
    Session* session = living(id);
    session->off_gpu = true;
    for (auto& [gpu, memory] : session->memory) memory.driver_bytes = 0;  // as seen till now
    session->client->send(wire::Type::kLeaveGpu, 0, wire::LeaveGpu{operation_->number, quiet});
  }
  fault_point("checkpoint_after_leave_gpu");
  set_timer(operation_->deadline);
}

void Checkpoints::left(Session& session, const wire::LeftGpu& body) {
  if (!operation_ || operation_->stage != CheckpointStage::kReadying) return;
  if (body.operation != operation_->number || operation_->sessions.count(session.id) == 0) return;
  operation_->awaited.erase(session.id);
  if (body.refused != 0) {
    call_off(cat("process ", session.process.pid, ": ", field_text(body.reason)));
  }
}

void Checkpoints::ready() {
  for (const SessionKey id : operation_->sessions) {
    const Session* session = living(id);
    if (session == nullptr || session->client == nullptr) return call_off("a process has gone");
  }
  if (!operation_->awaited.empty()) {
    if (boot_now() > operation_->deadline) return call_off("a process does not answer");
    return set_timer(operation_->deadline);
  }
  if (const LeaseGang* gang = leases_.find_gang(gang_now())) {
    const policy::Gang* state = leases_.state_of(gang->id);
    if (state != nullptr && state->wants) return call_off("it wants the GPU");
    // What it had when it was chosen may not be all that it has.
    if (const std::string why = refusal(*gang); !why.empty()) return call_off(why);
  }
  fault_point("checkpoint_before_helper");
  operation_->stage = CheckpointStage::kLeaving;
  start_helper("leave", patience_for(operation_->bytes, operation_->sessions.size()),
               [this](const HelperProcess::End& end) { has_left(end); });
}

void Checkpoints::start_helper(const char* what, std::chrono::nanoseconds patience,
                               const std::function<void(const HelperProcess::End&)>& done) {
  std::vector<std::string> arguments = {node_.options.checkpoint_helper, cat(::getpid()), what};
  if (std::strcmp(what, "leave") == 0) {
    arguments.push_back(
        cat(std::chrono::duration_cast<std::chrono::milliseconds>(kLockTimeout).count()));
  }
  bool any = false;
  for (const SessionKey id : operation_->sessions) {
    const Session* session = living(id);
    if (session == nullptr) continue;
    arguments.push_back(cat(session->process.pid, ":", session->process.start_time_ticks));
    any = true;
  }
  if (!any) return done({true, true, ""});  // all have ended
  if (helper_.start(arguments, patience, done)) {
    fault_point("checkpoint_helper_started");
    return;
  }
  done({false, false,
        cat("can't start ", arguments[0], ": ", std::generic_category().message(errno))});
}

void Checkpoints::has_left(const HelperProcess::End& end) {
  if (!end.ok) return end.ran ? undo(end.text) : call_off(end.text);
  for (const SessionKey id : operation_->sessions) {
    Session* session = living(id);
    if (session == nullptr) continue;
    session->away = true;
    session->unsettled = false;
  }
  node_.ledger.place(operation_->sessions, Ledger::Place::kAway);
  journal("away");
  fault_point("checkpoint_after_away");
  if (LeaseGang* gang = leases_.find_gang(gang_now())) {
    gang->failed_checkpoints = 0;
    gang->job->checkpoint_note.clear();
    // Who wants it again already comes before those in the queue.
    const policy::Gang* state = leases_.state_of(gang->id);
    if (state != nullptr && comes_back(*state)) {
      node_.returning.push_back({gang->job->name, gang->gpus});
    }
  }
  leases_.set_absence(gang_now(), policy::Absence::kAway);
  record("checkpoint", "long idle, and others need the room of its contexts",
         boot_now() - operation_->began);
  finish();
}

/// Nobody knows how far the helper came.
void Checkpoints::undo(const std::string& why) {
  operation_->why = why;
  operation_->stage = CheckpointStage::kUndoing;
  set_timer(boot_now());
}

void Checkpoints::undone(const HelperProcess::End& end) {
  if (end.ok) {
    tell_lost(end);
    return call_off(operation_->why);
  }
  if (LeaseGang* gang = leases_.find_gang(gang_now())) note(*gang, operation_->why);
  put_off(cat(operation_->why, "; and it can't be undone: ", end.text), end.ran);
}

/// All is as it was before.
void Checkpoints::call_off(const std::string& why) {
  node_.ledger.place(operation_->sessions, Ledger::Place::kHere);
  journal("here");
  for (const SessionKey id : operation_->sessions) {
    Session* session = living(id);
    if (session == nullptr || !std::exchange(session->off_gpu, false)) continue;
    tell_back(*session);
  }
  if (LeaseGang* gang = leases_.find_gang(gang_now())) {
    leases_.set_absence(gang_now(), policy::Absence::kHere);
    leases_.let_in(gang_now());
    note(*gang, why);
  }
  finish();
}

// ---- a gang returns

void Checkpoints::begin_return(const LeaseGang& gang) {
  CheckpointOperation& operation = operation_.emplace();
  operation.number = ++operations_;
  operation.gang = static_cast<std::uint64_t>(gang.id);
  operation.began = boot_now();
  operation.stage = CheckpointStage::kRoom;
  operation.deadline = operation.began + node_.options.room_patience;
  const policy::Gang* state = leases_.state_of(gang.id);
  const bool has_room = state != nullptr && state->absence == policy::Absence::kReturns;
  for (const SessionKey id : gang.sessions) {
    const Session* session = living(id);
    const bool is_due = session != nullptr && (session->unsettled || (session->away && has_room));
    if (!is_due) continue;
    operation.sessions.insert(id);
    for (const auto& [gpu, memory] : session->memory) operation.bytes += fixed_bytes(*session, gpu);
  }
  set_timer(boot_now());
}

/// Bytes that the driver does not show to be free yet.
std::uint64_t Checkpoints::lacking_room() {
  std::uint64_t lacking = 0;
  for (const auto& [index, gpu] : node_.gpus) {
    const std::optional<GpuUse> use = probe_.use(index);
    if (!use) continue;
    std::uint64_t needed = 0;
    for (const SessionKey id : operation_->sessions) {
      const Session* session = living(id);
      if (session == nullptr || session->memory.count(index) == 0) continue;
      const bool is_there = std::any_of(
          use->processes.begin(), use->processes.end(),
          [&](const GpuUse::Process& process) { return process.pid == session->process.pid; });
      if (!is_there) needed += fixed_bytes(*session, index);
    }
    const std::uint64_t free =
        gpu.info.total_bytes - std::min(gpu.info.total_bytes, use->used_bytes);
    lacking += needed - std::min(needed, free);
  }
  return lacking;
}

/// What others give up is free when the driver says so, and the driver may not forgive a return
/// that finds no room.
void Checkpoints::wait_for_room() {
  const auto now = boot_now();
  if (now < operation_->not_before) return set_timer(operation_->not_before);
  const std::uint64_t lacking = lacking_room();
  if (lacking != 0) {
    if (lacking < operation_->lacking) {  // it becomes free
      operation_->lacking = lacking;
      operation_->pause = kPollPause;
      operation_->deadline = now + node_.options.room_patience;
    }
    if (now > operation_->deadline) {
      return put_off(cat("the driver shows ", settings::format_bytes(lacking),
                         " less free than its contexts need: something that is not ours, or that "
                         "we don't know of, has them"),
                     false);
    }
    operation_->not_before = now + operation_->pause;
    operation_->pause = std::min(2 * operation_->pause, kLongestPollPause);
    return set_timer(operation_->not_before);
  }
  fault_point("checkpoint_room_found");
  operation_->stage = CheckpointStage::kReturning;
  start_helper("return", patience_for(operation_->bytes, operation_->sessions.size()),
               [this](const HelperProcess::End& end) { has_returned(end); });
}

/// They are not back: their lease, which others wait for, is taken back, and it is tried again
/// later. `has_touched`: a helper may have left them in any state.
void Checkpoints::put_off(const std::string& why, bool has_touched) {
  std::set<SessionKey> unsettled;
  for (const SessionKey id : operation_->sessions) {
    Session* session = living(id);
    if (session == nullptr) continue;
    if (has_touched) {
      session->unsettled = true;
      session->away = false;
    }
    if (session->unsettled) unsettled.insert(id);
  }
  if (has_touched) journal("leaving");
  place_away(operation_->sessions);
  node_.ledger.place(unsettled, Ledger::Place::kLeaving);
  leases_.set_absence(gang_now(),
                      unsettled.empty() ? policy::Absence::kAway : policy::Absence::kLeaves);
  if (LeaseGang* gang = leases_.find_gang(gang_now())) {
    const int doublings = std::min(gang->failed_returns++, 4);
    gang->not_returned_before = boot_now() + kRetryPause * (1 << doublings);
    complain(*gang, why);
  }
  finish();
}

void Checkpoints::has_returned(const HelperProcess::End& end) {
  if (!end.ok) return put_off(end.text, end.ran);
  tell_lost(end);
  node_.ledger.place(operation_->sessions, Ledger::Place::kHere);
  journal("here");
  fault_point("checkpoint_after_return");
  for (const SessionKey id : operation_->sessions) {
    Session* session = living(id);
    if (session == nullptr) continue;
    session->away = session->unsettled = session->off_gpu = false;
    tell_back(*session);
  }
  if (LeaseGang* gang = leases_.find_gang(gang_now())) {
    gang->failed_returns = 0;
    gang->job->checkpoint_note.clear();
  }
  leases_.set_absence(gang_now(), policy::Absence::kHere);
  record("restore", "it wants the GPU again", boot_now() - operation_->began);
  leases_.let_in(gang_now());
  finish();
}

// ---- of both

/// The driver has given up processes: they are let go on, and their calls answer errors.
void Checkpoints::tell_lost(const HelperProcess::End& end) {
  if (end.text.empty()) return;
  const LeaseGang* gang = leases_.find_gang(gang_now());
  log_line(
      LogLevel::kError, "checkpoints",
      cat("a checkpoint has cost a job processes job='", gang == nullptr ? "" : gang->job->name,
          "': ", end.text, "; their CUDA calls answer errors: end the job and start it again"));
}

void Checkpoints::finish() {
  operation_.reset();
  room_changed_();
  set_timer(boot_now());
}

/// Gangs may have been united since it began.
std::uint64_t Checkpoints::gang_now() const {
  for (const SessionKey id : operation_->sessions) {
    const auto session = node_.sessions.find(id);
    if (session != node_.sessions.end()) return session->second->gang;
  }
  return operation_->gang;
}

std::uint64_t Checkpoints::fixed_bytes(const Session& session, int gpu) const {
  return node_.room_of(session, gpu) + node_.ledger.unpageable(session.id, gpu);
}

void Checkpoints::journal(const char* place) {
  node_.journal_append(place_record(operation_->sessions, place));
}

void Checkpoints::record(const char* kind, const std::string& reason,
                         std::chrono::nanoseconds took) {
  const LeaseGang* gang = leases_.find_gang(gang_now());
  if (gang == nullptr) return;
  TraceDecision decision;
  decision.kind = kind;
  decision.job_id = id_text(gang->job->id);
  decision.gang = static_cast<std::uint64_t>(gang->id);
  decision.gpus = gang->gpus;
  decision.reason = reason;
  decision.figures = {{"bytes", static_cast<double>(operation_->bytes)},
                      {"took_ns", static_cast<double>(took.count())},
                      {"processes", static_cast<double>(operation_->sessions.size())}};
  node_.trace->add(decision);
  log_line(LogLevel::kInfo, "checkpoints",
           cat(kind, " done job='", gang->job->name, "' bytes=", operation_->bytes));
}

/// It is not back, and tried again; once for each reason.
void Checkpoints::complain(const LeaseGang& gang, const std::string& why) {
  if (std::exchange(gang.job->checkpoint_note, why) == why) return;
  log_line(
      LogLevel::kError, "checkpoints",
      cat("a checkpointed job is not back job='", gang.job->name, "': ", why, ", trying again"));
}

/// It is not checkpointed, and not tried again soon.
void Checkpoints::note(LeaseGang& gang, const std::string& why) {
  const int doublings = std::min(gang.failed_checkpoints++, 6);
  gang.not_checkpointed_before = boot_now() + kRetryPause * (1 << doublings);
  if (gang.job->checkpoint_note == why) return;
  gang.job->checkpoint_note = why;
  TraceDecision decision;
  decision.kind = "no_checkpoint";
  decision.job_id = id_text(gang.job->id);
  decision.gang = static_cast<std::uint64_t>(gang.id);
  decision.gpus = gang.gpus;
  decision.reason = why;
  node_.trace->add(decision);
  log_line(LogLevel::kInfo, "checkpoints",
           cat("not checkpointed job='", gang.job->name, "': ", why));
}

}  // namespace plexrl::nodemgr
