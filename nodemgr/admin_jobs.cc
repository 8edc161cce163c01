// Jobs and GPUs as the administration socket tells of them.
#include <algorithm>

#include "nodemgr/admin_parts.h"
#include "nodemgr/admission.h"
#include "nodemgr/ids.h"
#include "nodemgr/policy/order.h"
#include "nodemgr/policy/wake.h"
#include "nodemgr/process_identity.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {

double in_seconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1e9; }

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json gpu_list(std::uint64_t mask) {
  Json list = Json::array();
  for (int gpu = 0; gpu < policy::kMaxGpus; ++gpu) {
    if ((mask >> gpu & 1) != 0) list.push_back(gpu);
  }
  return list;
}

std::vector<pid_t> stopped_pids(const Node& node, const LeaseGang& gang) {
  std::vector<pid_t> pids;
  for (SessionKey id : gang.sessions) {
    auto it = node.sessions.find(id);
    if (it == node.sessions.end()) continue;
    if (is_stopped(it->second->process.pid)) pids.push_back(it->second->process.pid);
  }
  return pids;
}

std::string stopped_words(const Node& node, const LeaseGang& gang) {
  std::vector<pid_t> stopped = stopped_pids(node, gang);
  if (stopped.empty()) return "";
  return cat("process ", stopped.front(),
             " is stopped (Ctrl-Z or SIGSTOP): continue it with fg or kill -CONT");
}

namespace {

/// In words: who stands in the way, and why it takes time.
Json waits_for(const AdminContext& context, const policy::Gang& state) {
  if (state.is_kept_paused() && !state.holds_lease()) {
    return "plexrl-ctl resume: an administrator has paused it";
  }
  if (state.phase != policy::Phase::kWaiting || state.wait_reason.empty()) return nullptr;
  auto other = context.leases.gangs().find(static_cast<std::uint64_t>(state.waits_for));
  if (other == context.leases.gangs().end()) return state.wait_reason;
  std::string stopped = stopped_words(context.node, other->second);
  if (!stopped.empty()) return cat("job '", other->second.job->name, "': holder's ", stopped);
  return cat("job '", other->second.job->name, "': ", state.wait_reason);
}

/// Where the contexts of its processes are, for a gang that checkpoints have moved.
const char* absence_name(policy::Absence absence) {
  switch (absence) {
    case policy::Absence::kHere:
      return "here";
    case policy::Absence::kLeaves:
      return "leaving";
    case policy::Absence::kAway:
      return "away";
    case policy::Absence::kReturns:
      return "returning";
  }
  return "here";
}

Json gang_json(const AdminContext& context, const LeaseGang& gang, const policy::Gang& state) {
  Json pids = Json::array();
  Json reason = nullptr;
  for (SessionKey id : gang.sessions) {
    auto it = context.node.sessions.find(id);
    if (it == context.node.sessions.end()) continue;
    pids.push_back(it->second->process.pid);
    if (!it->second->exclusive_reason.empty()) reason = it->second->exclusive_reason;
  }
  Json json;
  json["id"] = cat(static_cast<std::uint64_t>(gang.id));
  json["state"] = state_name(state);
  json["gpus"] = gpu_list(gang.gpus);
  json["pids"] = pids;
  json["stopped_pids"] = stopped_pids(context.node, gang);
  bool held = gang.epoch != wire::Epoch{};
  json["epoch"] = held ? Json(cat(gang.epoch.generation, ".", gang.epoch.counter)) : Json(nullptr);
  json["exclusive_reason"] = reason;
  json["waits_for"] = waits_for(context, state);
  json["idle"] = state.idle;
  json["checkpoint"] = absence_name(state.absence);
  return json;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json causes_json(const GapCauses& causes) {
  Json list = Json::array();
  for (const GapCause& cause : causes) {
    list.push_back({{"cause", cause.cause},
                    {"detail", text_or_null(cause.detail)},
                    {"time_s", in_seconds(cause.time)}});
  }
  return list;
}

/// The state of a job from those of its gangs: what is most alive.
std::string job_state(const Job& job, const std::vector<policy::Phase>& phases) {
  if (!job.admitted) return "queued";
  using Phase = policy::Phase;
  for (Phase phase : {Phase::kRunning, Phase::kDraining, Phase::kLoading, Phase::kWaiting}) {
    if (std::find(phases.begin(), phases.end(), phase) != phases.end()) {
      return policy::phase_name(phase);
    }
  }
  return job.paused ? policy::kPausedName : "idle";
}

std::uint64_t used_by_sessions(const Node& node, int gpu) {
  std::uint64_t sum = 0;
  for (const auto& [id, session] : node.sessions) {
    auto memory = session->memory.find(gpu);
    if (memory == session->memory.end()) continue;
    sum += memory->second.resident;
    if (session->away) continue;
    sum += node.ledger.unpageable(id, gpu) + node.overhead_of(*session, gpu);
  }
  return sum;
}

}  // namespace

Json job_json(const AdminContext& context, const Job& job) {
  const Node& node = context.node;
  const auto now = context.now;
  Json gangs = Json::array();
  std::vector<policy::Phase> phases;
  std::optional<policy::Instant> next_wake;
  const GapCauses* causes = nullptr;  // of the first of its gangs of which they are known
  for (const auto& [id, gang] : context.leases.gangs()) {
    auto state = context.leases.state().gangs.find(gang.id);
    if (gang.job != &job || state == context.leases.state().gangs.end()) continue;
    const policy::Gang& its = state->second;
    gangs.push_back(gang_json(context, gang, its));
    if (causes == nullptr) causes = context.leases.gaps().causes(id);
    // One that is paused has no say in what the job does.
    if (!its.is_kept_paused() || its.holds_lease()) phases.push_back(its.phase);
    if (const auto wake = policy::predicted_wake(its, now)) {
      next_wake = std::min(*wake, next_wake.value_or(*wake));
    }
  }
  std::uint64_t resident = 0;
  std::uint64_t host = 0;
  std::uint64_t disk = 0;
  std::uint64_t fixed = 0;
  for (SessionKey key : job.sessions) {
    auto it = node.sessions.find(key);
    if (it == node.sessions.end()) continue;
    for (const auto& [gpu, memory] : it->second->memory) {
      resident += memory.resident;
      host += memory.host;
      disk += memory.disk;
      (it->second->away ? host : fixed) +=
          node.ledger.unpageable(key, gpu) + node.overhead_of(*it->second, gpu);
    }
  }
  Json json;
  json["id"] = id_text(job.id);
  json["name"] = job.name;
  json["user"] = job.user;
  json["team"] = job.team.empty() ? Json(nullptr) : Json(job.team);
  json["priority"] = job.priority;
  json["state"] = job_state(job, phases);
  json["paused"] = job.paused;
  json["alone_s"] = job.alone_until > now ? Json(in_seconds(job.alone_until - now)) : Json(nullptr);
  json["gangs"] = gangs;
  json["promised_bytes"] = job.admitted ? Json(job.promised_bytes) : Json(nullptr);
  json["hbm_bytes"] = resident + fixed;
  json["host_bytes"] = host;
  json["disk_bytes"] = disk;
  json["unpageable_bytes"] = fixed;
  const std::optional<std::uint64_t> limit = limit_of(node, job);
  json["limit_bytes"] = limit ? Json(*limit) : Json(nullptr);
  const Usage::JobFigures usage = node.usage.job(job.key, now);
  json["share_ratio"] = or_null(usage.share_ratio);
  json["share_window_s"] = Usage::kShareWindow.count();
  json["wait_s"] = in_seconds(job.admitted ? usage.waited : now - job.queued_since);
  json["slowdown_ratio"] = or_null(usage.slowdown_ratio);
  json["gap_cause"] = causes != nullptr ? Json(main_cause(*causes)) : Json(nullptr);
  json["gap_causes"] = causes != nullptr ? causes_json(*causes) : Json(nullptr);
  json["next_wake_s"] = next_wake ? Json(in_seconds(*next_wake - now)) : Json(nullptr);
  json["checkpoint_refused"] =
      job.checkpoint_note.empty() ? Json(nullptr) : Json(job.checkpoint_note);
  json["queued_reason"] = job.notice.empty() ? Json(nullptr) : Json(job.notice);
  return json;
}

Json jobs_json(const AdminContext& context) {
  Json jobs = Json::array();
  for (const auto& [key, job] : context.node.jobs) jobs.push_back(job_json(context, *job));
  return jobs;
}

Json gpus_json(const AdminContext& context) {
  Json gpus = Json::array();
  const policy::State& state = context.leases.state();
  const auto now = context.now;
  for (const auto& [index, gpu] : context.node.gpus) {
    Json holder = nullptr;
    Json holder_gang = nullptr;
    Json queue = Json::array();
    for (const auto& [id, gang] : state.gangs) {
      bool here = (gang.held & policy::gpu_bit(index)) != 0;
      if (gang.holds_lease() && here) {
        holder = gang.job;
        holder_gang = cat(static_cast<std::uint64_t>(id));
      }
      if (gang.phase == policy::Phase::kWaiting && (gang.gpus & policy::gpu_bit(index)) != 0) {
        queue.push_back(gang.job);
      }
    }
    Json json;
    json["uuid"] = gpu.info.uuid_text;
    json["index"] = index;
    json["name"] = gpu.info.name;
    json["total_bytes"] = gpu.info.total_bytes;
    json["budget_bytes"] = gpu.usable;
    json["used_by_plexrl_bytes"] = used_by_sessions(context.node, index);
    json["used_by_others_bytes"] = gpu.others;
    json["holder"] = holder;
    json["holder_gang"] = holder_gang;
    json["queue"] = queue;
    const Usage::GpuFigures usage = context.node.usage.gpu(index, now);
    json["duty_ratio"] = usage.duty_ratio;
    json["out_bytes_s"] = usage.out_bytes_s;
    json["in_bytes_s"] = usage.in_bytes_s;
    json["window_s"] = Usage::kWindow.count();
    json["duty_since_start_ratio"] = usage.duty_since_start_ratio;
    json["out_bytes"] = usage.out_bytes;
    json["in_bytes"] = usage.in_bytes;
    json["departing_bytes"] = gpu.departing();
    const bool knows_bypass = gpu.knows_pids || context.node.openers;
    json["bypass_pids"] = knows_bypass ? Json::array() : Json(nullptr);
    json["bypass"] = Json::array();
    for (const auto& [pid, bypass] : gpu.bypass) {
      json["bypass_pids"].push_back(pid);
      json["bypass"].push_back({{"pid", pid},
                                {"user", text_or_null(bypass.user)},
                                {"command", text_or_null(bypass.command)},
                                {"has_memory", bypass.has_memory},
                                {"has_opened", bypass.has_opened}});
    }
    gpus.push_back(json);
  }
  return gpus;
}

}  // namespace plexrl::nodemgr
