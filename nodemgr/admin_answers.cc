#include "nodemgr/admin_answers.h"

#include <time.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "nodemgr/clock.h"
#include "nodemgr/ids.h"
#include "nodemgr/policy/order.h"
#include "nodemgr/policy/wake.h"
#include "nodemgr/process_identity.h"
#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/nearest.h"

namespace plexrl::nodemgr {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr const char* kKindNames[wire::kMemoryKinds] = {
    "alloc",           "pool", "vmm",  "ipc",     "graph",  "managed", "array",
    "host_registered", "rdma", "nccl", "context", "module", "other"};

std::string rfc3339(std::int64_t wall_ns) {
  time_t seconds = wall_ns / 1'000'000'000;
  tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

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

/// In words: who stands in the way, and why it takes time.
Json waits_for(const AdminContext& context, const policy::Gang& state) {
  if (state.phase != policy::Phase::kWaiting || state.wait_reason.empty()) return nullptr;
  auto other = context.leases.gangs().find(static_cast<std::uint64_t>(state.waits_for));
  if (other == context.leases.gangs().end()) return state.wait_reason;
  std::vector<pid_t> stopped = stopped_pids(context.node, other->second);
  if (!stopped.empty()) {
    return cat("job '", other->second.job->name, "': holder's process ", stopped.front(),
               " is stopped (Ctrl-Z or SIGSTOP): continue it with fg or kill -CONT");
  }
  return cat("job '", other->second.job->name, "': ", state.wait_reason);
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
  json["state"] = policy::phase_name(state.phase);
  json["gpus"] = gpu_list(gang.gpus);
  json["pids"] = pids;
  json["stopped_pids"] = stopped_pids(context.node, gang);
  bool held = gang.epoch != wire::Epoch{};
  json["epoch"] = held ? Json(cat(gang.epoch.generation, ".", gang.epoch.counter)) : Json(nullptr);
  json["exclusive_reason"] = reason;
  json["waits_for"] = waits_for(context, state);
  json["idle"] = state.idle;
  return json;
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
  return "idle";
}

/// What a process takes on a GPU beside its charges: as measured, else what is set aside for it.
std::uint64_t overhead_of(const Node& node, const Session& session, int gpu,
                          const SessionMemory& memory) {
  return memory.overhead != 0 ? memory.overhead : node.ledger.overhead(session.id, gpu);
}

std::uint64_t used_by_sessions(const Node& node, int gpu) {
  std::uint64_t sum = 0;
  for (const auto& [id, session] : node.sessions) {
    auto memory = session->memory.find(gpu);
    if (memory == session->memory.end()) continue;
    sum += memory->second.resident + node.ledger.unpageable(id, gpu) +
           overhead_of(node, *session, gpu, memory->second);
  }
  return sum;
}

Json job_json(const AdminContext& context, const Job& job) {
  const Node& node = context.node;
  auto now = boot_now();
  Json gangs = Json::array();
  std::vector<policy::Phase> phases;
  std::optional<policy::Instant> next_wake;
  for (const auto& [id, gang] : context.leases.gangs()) {
    auto state = context.leases.state().gangs.find(gang.id);
    if (gang.job != &job || state == context.leases.state().gangs.end()) continue;
    const policy::Gang& its = state->second;
    gangs.push_back(gang_json(context, gang, its));
    phases.push_back(its.phase);
    if (const auto wake = policy::predicted_wake(its, now)) {
      next_wake = std::min(*wake, next_wake.value_or(*wake));
    }
  }
  std::uint64_t resident = 0;
  std::uint64_t host = 0;
  std::uint64_t fixed = 0;
  for (SessionKey key : job.sessions) {
    auto it = node.sessions.find(key);
    if (it == node.sessions.end()) continue;
    for (const auto& [gpu, memory] : it->second->memory) {
      resident += memory.resident;
      host += memory.host;
      fixed += node.ledger.unpageable(key, gpu) + overhead_of(node, *it->second, gpu, memory);
    }
  }
  Json json;
  json["id"] = id_text(job.id);
  json["name"] = job.name;
  json["user"] = job.user;
  json["team"] = job.team.empty() ? Json(nullptr) : Json(job.team);
  json["priority"] = job.priority;
  json["state"] = job_state(job, phases);
  json["gangs"] = gangs;
  json["promised_bytes"] = job.admitted ? Json(job.promised_bytes) : Json(nullptr);
  json["hbm_bytes"] = resident + fixed;
  json["host_bytes"] = host;
  json["disk_bytes"] = 0;
  json["unpageable_bytes"] = fixed;
  json["limit_bytes"] = nullptr;
  const Usage::JobFigures usage = node.usage.job(job.key, now);
  json["share_ratio"] = or_null(usage.share_ratio);
  json["share_window_s"] = Usage::kShareWindow.count();
  json["wait_s"] = in_seconds(job.admitted ? usage.waited : now - job.queued_since);
  json["slowdown_ratio"] = or_null(usage.slowdown_ratio);
  json["gap_cause"] = nullptr;
  json["next_wake_s"] = next_wake ? Json(in_seconds(*next_wake - now)) : Json(nullptr);
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
  auto now = boot_now();
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
    json["bypass_pids"] = gpu.knows_pids ? Json(gpu.bypass_pids) : Json(nullptr);
    gpus.push_back(json);
  }
  return gpus;
}

/// What keeps memory that passed through to the driver in HBM.
const char* why_not_pageable(int kind) {
  switch (static_cast<wire::MemoryKind>(kind)) {
    case wire::MemoryKind::kPool:
      return "from a pool of the driver's: exported, of another kind of memory, or without virtual "
             "memory";
    case wire::MemoryKind::kVmm:
      return "a handle of the driver's: imported, multicast, or with properties that PlexRL can't "
             "give back";
    case wire::MemoryKind::kIpc:
      return "another process's, outside this job";
    case wire::MemoryKind::kGraph:
      return "nodes of a CUDA graph allocate it while the graph runs";
    case wire::MemoryKind::kManaged:
      return "managed memory: the driver itself moves it between host and GPU";
    case wire::MemoryKind::kArray:
      return "arrays have a layout that only the driver knows";
    case wire::MemoryKind::kHostRegistered:
      return "host memory: takes no HBM";
    default:
      return "the driver owns this kind of memory";
  }
}

void add_memory_rows(Json& rows, const Node& node, const Session& session, int gpu,
                     const SessionMemory& memory) {
  auto add = [&](const char* kind, std::uint64_t bytes, const char* tier, const char* pageable,
                 Json reason) {
    if (bytes == 0) return;
    rows.push_back({{"job", id_text(session.job->id)},
                    {"pid", session.process.pid},
                    {"gpu", gpu},
                    {"kind", kind},
                    {"bytes", bytes},
                    {"tier", tier},
                    {"pageable", pageable},
                    {"reason", std::move(reason)}});
  };
  if (memory.pageable) {
    for (int kind = 0; kind < wire::kMemoryKinds; ++kind) {
      const auto& bytes = memory.pageable->kinds[kind];
      add(kKindNames[kind], bytes.resident_bytes - bytes.pinned_bytes, "hbm", "yes", nullptr);
      add(kKindNames[kind], bytes.pinned_bytes, "hbm", "pinned",
          field_text(memory.pageable->pinned_reason));
      add(kKindNames[kind], bytes.host_bytes, "host", "yes", nullptr);
      add(kKindNames[kind], bytes.unbacked_bytes, "unbacked", "yes", nullptr);
    }
  } else {
    add("alloc", memory.resident, "hbm", "yes", nullptr);
    add("alloc", memory.host, "host", "yes", nullptr);
    add("alloc", memory.unbacked, "unbacked", "yes", nullptr);
  }
  for (int kind = 1; kind < wire::kMemoryKinds; ++kind) {
    add(kKindNames[kind], memory.kinds[static_cast<std::size_t>(kind)], "hbm", "no",
        why_not_pageable(kind));
  }
  if (memory.kinds[static_cast<std::size_t>(wire::MemoryKind::kContext)] == 0) {
    add("context", overhead_of(node, session, gpu, memory), "hbm", "no",
        memory.overhead != 0 ? "the process's context and modules, as the driver shows them"
                             : "set aside for the process's context and modules");
  }
}

Json memory_json(const AdminContext& context) {
  Json rows = Json::array();
  for (const auto& [id, session] : context.node.sessions) {
    for (const auto& [gpu, memory] : session->memory) {
      add_memory_rows(rows, context.node, *session, gpu, memory);
    }
  }
  return rows;
}

Json manager_json(const AdminContext& context) {
  const Node& node = context.node;
  auto uptime = boot_now() - context.started;
  Json json;
  json["pid"] = ::getpid();
  json["generation"] = node.generation;
  json["socket"] = context.socket;
  json["started"] = rfc3339(wall_now_ns() - uptime.count());
  json["started_mono_ns"] = context.started.count();
  json["uptime_s"] = in_seconds(uptime);
  json["trace"] = node.trace->run_folder();
  json["trace_lost_records"] = node.trace->lost_records();
  json["journal_ok"] = !node.journal_failed;
  json["host_budget_bytes"] = node.ledger.host_budget();
  json["host_promised_bytes"] = node.ledger.host_needed();
  json["host_used_bytes"] = node.slabs->bytes_in_use();
  json["grants"] = context.leases.grants();
  json["without_effect"] = node.without_effect;
  return json;
}

Json head(const AdminContext& context) {
  Json json;
  json["schema"] = kSchema;
  json["simulated"] = context.node.simulated;
  json["node"] = context.node.options.node;
  return json;
}

std::string verb_of(const std::string& request) {
  Json parsed = Json::parse(request, nullptr, false);
  if (!parsed.is_object()) return "";
  auto verb = parsed.find("verb");
  return verb != parsed.end() && verb->is_string() ? verb->get<std::string>() : "";
}

std::string error_line(const AdminContext& context, const std::string& text) {
  Json json = head(context);
  json["error"] = text;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

bool is_reload(const std::string& request) { return verb_of(request) == "reload"; }

std::string admin_outcome(const AdminContext& context, const absl::Status& status) {
  if (!status.ok()) return error_line(context, message_of(status));
  Json json = head(context);
  json["done"] = true;
  return json.dump();
}

std::string admin_answer(const AdminContext& context, const std::string& request) {
  std::string verb = verb_of(request);
  if (verb.empty()) {
    return error_line(context, "a request is one line such as {\"verb\":\"jobs\"}");
  }
  Json json = head(context);
  if (verb == "status") {
    json["manager"] = manager_json(context);
    json["gpus"] = gpus_json(context);
    json["jobs"] = jobs_json(context);
  } else if (verb == "jobs") {
    json["jobs"] = jobs_json(context);
  } else if (verb == "gpus") {
    json["gpus"] = gpus_json(context);
  } else if (verb == "memory") {
    json["memory"] = memory_json(context);
  } else {
    const std::vector<std::string> verbs = {"status", "jobs", "gpus", "memory", "reload"};
    std::string nearest = settings::nearest_name(verb, verbs);
    return error_line(context, cat("unknown verb '", verb, "'",
                                   nearest.empty() ? "" : cat(", did you mean '", nearest, "'?")));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace plexrl::nodemgr
