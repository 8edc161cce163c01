#include "nodemgr/jobs.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "nodemgr/admission.h"
#include "nodemgr/clock.h"
#include "nodemgr/ids.h"
#include "nodemgr/job_processes.h"
#include "nodemgr/joining.h"
#include "nodemgr/log.h"
#include "nodemgr/sessions.h"
#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/values.h"

namespace plexrl::nodemgr {
namespace {

/// What of a promise can be allocated: the driver maps whole pages (docs/architecture.md), and what
/// the job is told of as free it may ask for.
constexpr std::uint64_t usable_of(std::uint64_t bytes) {
  constexpr std::uint64_t kPage = 2 << 20;
  return bytes < kPage ? bytes : bytes / kPage * kPage;
}

constexpr std::uint64_t kMaxPromise = std::uint64_t{1} << 48;
constexpr std::uint64_t kMaxWaitNs = std::uint64_t{1} << 60;
/// Where we may not look at the user's processes, plexrl-run's witness does, and comes (kJobResume)
/// when it finds one.
constexpr std::chrono::seconds kHeirWithin{1};
/// A job of many short processes is not looked for more often.
constexpr std::chrono::milliseconds kBetweenLooks{100};
constexpr std::chrono::seconds kBetweenQueueLooks{2};

TraceSession trace_of(const Job& job, TraceSession::Event event, const std::string& text) {
  TraceSession record;
  record.event = event;
  record.job_id = id_text(job.id);
  record.job_name = job.name;
  record.team = job.team;
  record.user = job.user;
  record.priority = job.priority;
  record.pid = job.runner_process.pid;
  record.promised_bytes = job.promised_bytes;
  record.text = text;
  return record;
}

wire::JobNotice notice_of(const Admission& admission) {
  wire::JobNotice notice{};
  notice.needed_bytes = admission.needed;
  notice.available_bytes = admission.available;
  set_field(notice.text, admission.text);
  return notice;
}

}  // namespace

bool Jobs::fill(Job& job, const wire::JobSubmit& submit, std::string& why) {
  if (submit.priority < 0 || submit.priority > 100) {
    why = cat("priority ", submit.priority, " is not in 0..100");
  } else if (submit.memory_bytes > kMaxPromise) {
    why = cat("memory of ", submit.memory_bytes, " bytes is more than any GPU has");
  } else if (!std::isfinite(submit.max_slowdown) || submit.max_slowdown < 0) {
    why = "max_slowdown is not a number of 0 or more";
  } else if (submit.max_wait_ns > kMaxWaitNs) {
    why = "max_wait is longer than this manager can count";
  } else {
    job.name = field_text(submit.name);
    job.team = field_text(submit.team);
    job.priority = submit.priority;
    job.flags = submit.flags;
    job.wanted_bytes = usable_of(submit.memory_bytes);
    job.max_wait = std::chrono::nanoseconds(static_cast<std::int64_t>(submit.max_wait_ns));
    job.max_slowdown = submit.max_slowdown;
    job.gpus = submit.gpus == 0 ? node_.all_gpus() : submit.gpus;
    if (job.name.empty()) job.name = "job";
    return true;
  }
  return false;
}

void Jobs::name_parent(Client& client, const Packet& packet) {
  wire::JobParent body{};
  if (!packet.read(body) || client.job != nullptr || client.session != nullptr) {
    return refuse_packet(client, packet, wire::kErrorMalformed,
                         "kJobParent has a wrong size or place");
  }
  client.parent = body.job;
}

void Jobs::submit(Client& client, const Packet& packet) {
  wire::JobSubmit body{};
  auto job = std::make_unique<Job>();
  std::string why = "kJobSubmit has a wrong size or place";
  bool good = packet.read(body) && client.job == nullptr && client.session == nullptr;
  if (!good || !fill(*job, body, why)) {
    return refuse_packet(client, packet, wire::kErrorMalformed, why);
  }
  job->key = node_.next_key++;
  job->id = random_id();
  job->secret = random_id();
  job->uid = client.uid;
  const Job* parent = node_.find_job(client.parent);
  if (parent != nullptr && parent->uid == client.uid) job->parent = parent->key;
  job->user_namespace = user_namespace_of(client.pid);
  job->user = user_name(client.uid);
  if (!join_team(*job, why)) return refuse(client, packet.request, *job, why);
  job->queued_since = boot_now();
  remember(*job);
  job->runner = &client;
  job->runner_process = {client.pid, start_time_of(client.pid).value_or(0)};
  job->runner_pidfd = open_process(job->runner_process);
  Job& added = *(node_.jobs[job->key] = std::move(job));
  client.job = &added;
  watch_runner(added);
  try_admit(added, packet.request);
}

bool Jobs::join_team(Job& job, std::string& why) const {
  absl::StatusOr<std::string> team = node_.teams.assign(job.team, job.user, job.priority);
  if (!team.ok()) {
    why = message_of(team.status());
    return false;
  }
  job.team = *std::move(team);
  const Team* its = node_.teams.find(job.team);
  if (its != nullptr && job.max_slowdown == 0) job.max_slowdown = its->max_slowdown;
  return true;
}

void Jobs::refuse(Client& client, std::uint64_t request, const Job& job, const std::string& why) {
  wire::JobNotice notice{};
  set_field(notice.text, why);
  client.send(wire::Type::kJobRefused, request, notice);
  TraceDecision decision;
  decision.kind = "refuse";
  decision.job_id = id_text(job.id);
  decision.gpus = job.gpus;
  decision.reason = why;
  node_.trace->add(decision);
  log_line(LogLevel::kInfo, "jobs",
           cat("refused job='", job.name, "' user='", job.user, "': ", why));
  if (node_.jobs.empty()) idle_();
}

void Jobs::try_admit(Job& job, std::uint64_t request) {
  node_.look_outside();
  Admission admission = judge(node_, job);
  if (node_.draining && !admission.never) {
    admission.fits = false;
    admission.text = "this node is being drained: it takes no new jobs until plexrl-ctl undrain";
  }
  const auto first_back =
      std::find_if(node_.returning.begin(), node_.returning.end(),
                   [&](const Node::Returning& gang) { return (gang.gpus & job.gpus) != 0; });
  if (first_back != node_.returning.end() && !admission.never) {
    admission.fits = false;
    admission.text = cat("job '", first_back->job_name,
                         "', which is checkpointed, waits to come back to its GPU and comes first");
  }
  if (admission.fits) {
    job.promised_bytes = usable_of(admission.promised);
    node_.ledger.admit(job.key, job.gpus, job.promised_bytes, job.overhead);
    return admitted(job, request);
  }
  std::optional<Admission> stuck = admission.never ? std::nullopt : stuck_inside(node_, job);
  if (stuck) admission = *std::move(stuck);
  bool refuse = admission.never || (job.flags & wire::kJobNoWait) != 0;
  if (!refuse) look_at_queue_later();
  if (!refuse && job.notice == admission.text) return;
  bool first = job.notice.empty();
  job.notice = admission.text;
  if (job.runner != nullptr) {
    job.runner->send(refuse ? wire::Type::kJobRefused : wire::Type::kJobQueued, request,
                     notice_of(admission));
  }
  TraceDecision decision;
  decision.kind = refuse ? "refuse" : "wait";
  decision.job_id = id_text(job.id);
  decision.gpus = job.gpus;
  decision.reason = admission.text;
  decision.figures = {{"needed_bytes", static_cast<double>(admission.needed)},
                      {"available_bytes", static_cast<double>(admission.available)}};
  node_.trace->add(decision);
  log_line(LogLevel::kInfo, "jobs",
           cat(refuse ? "refused" : "queued", " job='", job.name, "' user='", job.user,
               "': ", admission.text));
  if (refuse) {
    if (job.runner != nullptr) job.runner->job = nullptr;
    job.runner = nullptr;
    if (first) job.notice.clear();  // it never was in the queue
    end_if_gone(job);
  } else if (first) {
    node_.trace->add(trace_of(job, TraceSession::Event::kJobQueued, admission.text));
  }
}

void Jobs::admitted(Job& job, std::uint64_t request) {
  job.admitted = true;
  job.notice.clear();
  node_.journal_append(job_record(job));
  node_.trace->add(trace_of(job, TraceSession::Event::kJobAdmitted, ""));
  TraceDecision decision;
  decision.kind = "admit";
  decision.job_id = id_text(job.id);
  decision.gpus = job.gpus;
  decision.reason = "promise fits";
  decision.figures = {{"promised_bytes", static_cast<double>(job.promised_bytes)},
                      {"host_needed_bytes", static_cast<double>(node_.ledger.host_needed())}};
  node_.trace->add(decision);
  log_line(LogLevel::kInfo, "jobs",
           cat("admitted job='", job.name, "' id=", id_text(job.id), " user='", job.user,
               "' promised=", settings::format_bytes(job.promised_bytes)));
  if (job.runner == nullptr) return;
  job.runner->send(wire::Type::kJobAdmitted, request, admission_to(job, node_));
}

void Jobs::resume(Client& client, const Packet& packet) {
  wire::JobResume body{};
  if (!packet.read(body) || client.job != nullptr || client.session != nullptr) {
    return refuse_packet(client, packet, wire::kErrorMalformed,
                         "kJobResume has a wrong size or place");
  }
  Job* job = node_.find_job(body.job);
  if (job != nullptr && (job->uid != client.uid || !equal_secrets(job->secret, body.secret))) {
    return refuse_packet(client, packet, wire::kErrorSecret, "the job belongs to somebody else");
  }
  if (job == nullptr) {
    // The journal was lost: who knows the secret of a job that nobody else has may go on with it.
    auto made = std::make_unique<Job>();
    std::string why;
    if (!fill(*made, body.submit, why)) {
      return refuse_packet(client, packet, wire::kErrorMalformed, why);
    }
    made->id = body.job;
    made->secret = body.secret;
    made->uid = client.uid;
    made->user_namespace = user_namespace_of(client.pid);
    remember(*made);
    Admission admission = node_.ledger.judge(made->gpus, made->wanted_bytes, made->overhead);
    made->promised_bytes = usable_of(admission.promised);
    made->admitted = true;
    node_.journal_append(job_record(*made));
    job = made.get();
    restore(std::move(made));
  }
  if (job->runner != nullptr) {
    job->runner->job = nullptr;
    job->runner->broken = true;
  }
  client.job = job;
  job->runner = &client;
  if (job->runner_pidfd.is_open()) node_.loop.forget(job->runner_pidfd.get());
  job->runner_process = {client.pid, start_time_of(client.pid).value_or(0)};
  job->runner_pidfd = open_process(job->runner_process);
  watch_runner(*job);
  admitted(*job, packet.request);
}

void Jobs::restore(std::unique_ptr<Job> job) {
  job->key = node_.next_key++;
  job->user = user_name(job->uid);
  job->gaps_known = node_.profiles->known(job->uid, job->name).gaps;
  node_.ledger.admit(job->key, job->gpus, job->promised_bytes, job->overhead);
  Job& added = *(node_.jobs[job->key] = std::move(job));
  if (added.runner_process.pid != 0) {
    added.runner_pidfd = open_process(added.runner_process);
    watch_runner(added);
  }
  if (added.survivor.is_open()) watch_survivor(added);
  look_again_soon();
}

void Jobs::trace_restored() {
  for (const auto& [key, job] : node_.jobs) {
    node_.trace->add(trace_of(*job, TraceSession::Event::kJobAdmitted, ""));
  }
}

void Jobs::watch_runner(Job& job) {
  if (!job.runner_pidfd.is_open()) return;
  JobKey key = job.key;
  node_.loop.watch(job.runner_pidfd.get(), EPOLLIN, [this, key](std::uint32_t) {
    auto it = node_.jobs.find(key);
    if (it == node_.jobs.end()) return;
    Job& ended = *it->second;
    node_.loop.forget(ended.runner_pidfd.get());
    ended.runner_pidfd.reset();
    if (ended.runner != nullptr) {
      ended.runner->job = nullptr;
      ended.runner->broken = true;
      ended.runner = nullptr;
    }
    end_if_gone(ended);
  });
}

void Jobs::runner_disconnected(Job& job) {
  job.runner = nullptr;
  // A queued job has nothing but its connection. An admitted one is only over when plexrl-run is:
  // a connection that broke is made again.
  if (!job.admitted || !job.runner_pidfd.is_open() || has_ended(job.runner_pidfd)) {
    if (job.runner_pidfd.is_open()) node_.loop.forget(job.runner_pidfd.get());
    job.runner_pidfd.reset();
  }
  end_if_gone(job);
}

void Jobs::end_if_gone(Job& job) {
  if (job.runner != nullptr || job.runner_pidfd.is_open() || !job.sessions.empty()) {
    // A refused job's plexrl-run lives on without us.
    bool refused = !job.admitted && job.runner == nullptr;
    job.hidden_since = {};
    if (!refused) return;
  }
  if (job.admitted && lives_on(job)) return;
  if (job.runner_pidfd.is_open()) node_.loop.forget(job.runner_pidfd.get());
  log_line(LogLevel::kInfo, "jobs", cat("ended job='", job.name, "' id=", id_text(job.id)));
  if (job.admitted || !job.notice.empty()) {
    node_.trace->add(trace_of(job, TraceSession::Event::kJobEnd, ""));
  }
  if (job.admitted) {
    JournalRecord record{"job_end", {}};
    record.fields["id"] = id_text(job.id);
    node_.journal_append(record);
    learn(job);
  }
  JobKey key = job.key;
  node_.ledger.release(key);
  node_.account(job);
  if (node_.accounts != nullptr) node_.accounts->forget(id_text(job.id));
  node_.usage.forget(key);
  node_.slabs->drop_job(key);
  node_.jobs.erase(key);
  admit_waiting();
  if (node_.jobs.empty()) idle_();
}

bool Jobs::lives_on(Job& job) {
  if (job.survivor.is_open()) return true;
  JobSearch search = find_process_of(id_text(job.id), job.uid);
  if (search.answer == JobSearch::Answer::kNone) return false;
  if (search.answer == JobSearch::Answer::kHidden) {
    if (job.hidden_since.count() == 0) job.hidden_since = boot_now();
    if (boot_now() - job.hidden_since >= kHeirWithin) return false;
  }
  if (search.answer != JobSearch::Answer::kFound) {
    look_again_soon();
    return true;
  }
  if (job.survivor_pid == 0) {
    log_line(LogLevel::kInfo, "jobs",
             cat("goes on without plexrl-run job='", job.name, "' pid=", search.pid));
  }
  job.survivor = std::move(search.pidfd);
  job.survivor_pid = search.pid;
  watch_survivor(job);
  return true;
}

void Jobs::watch_survivor(Job& job) {
  JobKey key = job.key;
  node_.loop.watch(job.survivor.get(), EPOLLIN, [this, key](std::uint32_t) {
    auto it = node_.jobs.find(key);
    if (it == node_.jobs.end()) return;
    node_.loop.forget(it->second->survivor.get());
    it->second->survivor.reset();
    look_again_soon();
  });
}

void Jobs::look_again_soon() {
  node_.loop.set_timer_once(kSurvivorTimer, boot_now() + kBetweenLooks, [this] {
    std::vector<JobKey> keys;
    for (const auto& [key, job] : node_.jobs) {
      if (job->admitted) keys.push_back(key);
    }
    for (JobKey key : keys) {
      auto it = node_.jobs.find(key);
      if (it != node_.jobs.end() && it->second->admitted) end_if_gone(*it->second);
    }
  });
}

void Jobs::look_at_queue_later() {
  node_.loop.set_timer_once(kQueueTimer, boot_now() + kBetweenQueueLooks, [this] {
    node_.look_outside();
    bool any = false;
    bool any_fits = false;
    for (const auto& [key, job] : node_.jobs) {
      if (job->admitted) continue;
      any = true;
      any_fits = any_fits || judge(node_, *job).fits;
    }
    if (any_fits) admit_waiting();
    if (any) look_at_queue_later();
  });
}

void Jobs::remember(Job& job) const {
  Profiles::Known known = node_.profiles->known(job.uid, job.name);
  job.overhead = known.overhead;
  job.gaps_known = std::move(known.gaps);
}

void Jobs::learn(Job& job) {
  keep_gaps(job);
  if (job.overhead_seen == 0) return;
  absl::Status status = node_.profiles->learn(job.uid, job.name, job.overhead_seen);
  if (!status.ok()) warn(job, status);
}

void Jobs::keep_gaps() {
  for (auto& [key, job] : node_.jobs) keep_gaps(*job);
}

void Jobs::keep_gaps(Job& job) {
  if (job.gaps_are_kept) return;
  const absl::Status status = node_.profiles->learn(job.uid, job.name, job.gaps_seen);
  job.gaps_are_kept = true;  // or tried: once more when there is more
  if (!status.ok()) warn(job, status);
}

void Jobs::warn(const Job& job, const absl::Status& status) {
  log_line(LogLevel::kWarning, "jobs",
           cat("profile of job='", job.name, "' not kept: ", message_of(status), ", ignoring"));
}

void Jobs::admit_waiting() {
  std::vector<const Job*> waiting;
  for (const auto& [key, job] : node_.jobs) {
    if (!job->admitted) waiting.push_back(job.get());
  }
  std::sort(waiting.begin(), waiting.end(), [](const Job* a, const Job* b) {
    return std::tuple(-a->priority, a->queued_since) < std::tuple(-b->priority, b->queued_since);
  });
  std::vector<JobKey> keys;
  keys.reserve(waiting.size());
  for (const Job* job : waiting) keys.push_back(job->key);
  // One that is refused now is gone, and those behind it have been looked at.
  for (JobKey key : keys) {
    auto it = node_.jobs.find(key);
    if (it != node_.jobs.end() && !it->second->admitted) try_admit(*it->second, 0);
  }
}

JournalRecord job_record(const Job& job) {
  JournalRecord record{"job", {}};
  auto& fields = record.fields;
  fields["id"] = id_text(job.id);
  fields["secret"] = id_text(job.secret);
  fields["uid"] = cat(job.uid);
  fields["user_namespace"] = cat(job.user_namespace);
  fields["name"] = job.name;
  fields["team"] = job.team;
  fields["priority"] = cat(job.priority);
  fields["flags"] = cat(job.flags);
  fields["gpus"] = cat(job.gpus);
  fields["wanted"] = cat(job.wanted_bytes);
  fields["promised"] = cat(job.promised_bytes);
  fields["overhead"] = cat(job.overhead);
  fields["max_wait_ns"] = cat(job.max_wait.count());
  fields["max_slowdown"] = cat(job.max_slowdown);
  fields["paused"] = cat(job.paused ? 1 : 0);
  fields["alone_until_ns"] = cat(job.alone_until.count());
  fields["run_pid"] = cat(job.runner_process.pid);
  fields["run_start"] = cat(job.runner_process.start_time_ticks);
  return record;
}

std::unique_ptr<Job> job_from(const JournalRecord& record) {
  auto job = std::make_unique<Job>();
  std::optional<wire::Id128> id = parse_id(record["id"]);
  std::optional<wire::Id128> secret = parse_id(record["secret"]);
  if (!id || !secret) return nullptr;
  job->id = *id;
  job->secret = *secret;
  job->uid = static_cast<uid_t>(record.number("uid"));
  job->user_namespace = record.number("user_namespace");
  job->name = record["name"];
  job->team = record["team"];
  job->priority = static_cast<int>(record.number("priority"));
  job->flags = static_cast<std::uint32_t>(record.number("flags"));
  job->gpus = record.number("gpus");
  job->wanted_bytes = record.number("wanted");
  job->promised_bytes = record.number("promised");
  job->overhead = record.number("overhead");
  job->max_wait = std::chrono::nanoseconds(static_cast<std::int64_t>(record.number("max_wait_ns")));
  job->paused = record.number("paused") != 0;
  job->alone_until =
      std::chrono::nanoseconds(static_cast<std::int64_t>(record.number("alone_until_ns")));
  job->max_slowdown = settings::parse_number(record["max_slowdown"]).value_or(0);
  job->runner_process.pid = static_cast<pid_t>(record.number("run_pid"));
  job->runner_process.start_time_ticks = record.number("run_start");
  job->admitted = true;
  return job;
}

}  // namespace plexrl::nodemgr
