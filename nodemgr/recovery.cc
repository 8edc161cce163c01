#include "nodemgr/recovery.h"

#include <filesystem>
#include <fstream>
#include <map>

#include "nodemgr/checkpoints.h"
#include "nodemgr/disk_requests.h"
#include "nodemgr/ids.h"
#include "nodemgr/job_processes.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  file >> text;
  return text;
}

JournalRecord generation_record(std::uint64_t generation) {
  JournalRecord record{"generation", {}};
  record.fields["gen"] = cat(generation);
  record.fields["boot"] = boot_id();
  return record;
}

/// What a "quota" record says instead of bytes.
constexpr char kNoQuota[] = "none";
constexpr char kAsInFile[] = "file";

void apply_quota(const JournalRecord& record, QuotaChanges& changes) {
  QuotaChanges::Whose whose;
  if (record["of"] == "team") whose = record["team"];
  for (const Tier tier : kTiers) {
    if (record["tier"] != tier_name(tier)) continue;
    const std::string& bytes = record["bytes"];
    if (bytes == kAsInFile) {
      changes.take_back(whose, tier);
    } else {
      changes.set(whose, tier,
                  bytes == kNoQuota ? std::nullopt : std::optional(record.number("bytes")));
    }
  }
}

/// What the records say in the end: later ones take back earlier ones.
struct Replay {
  std::uint64_t generation = 0;
  std::string boot;
  std::map<std::string, JournalRecord> jobs;  ///< by id
  struct Process {
    JournalRecord record;
    std::map<std::string, JournalRecord> gpus;  ///< the last "attach" of each
    std::string place;                          ///< "leaving", "away"; else it is on its GPUs
    std::uint64_t spill_inode = 0;
  };
  std::map<std::uint64_t, Process> processes;
  std::map<wire::Epoch, JournalRecord> grants;  ///< not revoked
  bool draining = false;
  QuotaChanges quota_changes;

  void apply(const JournalRecord& record) {
    if (record.kind == "generation") {
      generation = record.number("gen");
      boot = record["boot"];
    } else if (record.kind == "drain") {
      draining = record.number("on") != 0;
    } else if (record.kind == "quota") {
      apply_quota(record, quota_changes);
    } else if (record.kind == "job") {
      jobs[record["id"]] = record;
    } else if (record.kind == "job_end") {
      jobs.erase(record["id"]);
    } else if (record.kind == "process") {
      processes[record.number("session")].record = record;
    } else if (record.kind == "attach") {
      auto it = processes.find(record.number("session"));
      if (it != processes.end()) it->second.gpus[record["gpu"]] = record;
    } else if (record.kind == "place") {
      for (auto& [id, process] : processes) {
        if (cat(",", record["sessions"], ",").find(cat(",", id, ",")) == std::string::npos)
          continue;
        process.place = record["place"];
      }
    } else if (record.kind == "spill") {
      auto it = processes.find(record.number("session"));
      if (it != processes.end()) it->second.spill_inode = record.number("inode");
    } else if (record.kind == "process_end") {
      processes.erase(record.number("session"));
    } else if (record.kind == "grant") {
      grants[{record.number("gen"), record.number("ctr")}] = record;
    } else if (record.kind == "revoke") {
      grants.erase({record.number("gen"), record.number("ctr")});
    }
  }
};

std::unique_ptr<Session> session_from(const JournalRecord& record) {
  auto session = std::make_unique<Session>();
  session->id = record.number("session");
  session->process.pid = static_cast<pid_t>(record.number("pid"));
  session->process.start_time_ticks = record.number("start");
  session->command = record["command"];
  session->pidfd = open_process(session->process);
  if (!session->pidfd.is_open()) return nullptr;  // it has died meanwhile
  return session;
}

bool is_off_gpu(const std::string& place) { return place == "leaving" || place == "away"; }

/// Where checkpoints had it. One that was on its way may be anywhere: it is brought back.
void place(Session& session, const std::string& where, Node& node, Leases& leases) {
  if (!is_off_gpu(where)) return;
  session.off_gpu = true;
  session.away = where == "away";
  session.unsettled = where == "leaving";
  node.ledger.place({session.id}, session.away ? Ledger::Place::kAway : Ledger::Place::kLeaving);
  leases.set_absence(session.gang,
                     session.away ? policy::Absence::kAway : policy::Absence::kLeaves);
}

void bring_back(const Replay& replay, Node& node, Jobs& jobs, Sessions& sessions, Leases& leases) {
  for (const auto& [epoch, grant] : replay.grants) leases.remember(grant);
  std::map<std::string, std::vector<std::unique_ptr<Session>>> living;
  for (const auto& [id, process] : replay.processes) {
    std::unique_ptr<Session> session = session_from(process.record);
    if (session == nullptr) continue;
    session->spill_inode = process.spill_inode;
    living[process.record["job"]].push_back(std::move(session));
  }
  for (const auto& [id, record] : replay.jobs) {
    std::unique_ptr<Job> job = job_from(record);
    if (job == nullptr) continue;
    bool has_runner = open_process(job->runner_process).is_open();
    if (!has_runner) job->runner_process = {};
    if (!has_runner && living[id].empty()) {
      JobSearch search = find_process_of(id, job->uid);
      if (search.answer == JobSearch::Answer::kNone) continue;
      job->survivor = std::move(search.pidfd);
      job->survivor_pid = search.pid;
    }
    Job& restored = *job;
    jobs.restore(std::move(job));
    log_line(LogLevel::kInfo, "recovery",
             cat("job of the manager before job='", restored.name, "' id=", id,
                 " processes=", living[id].size()));
    for (std::unique_ptr<Session>& session : living[id]) {
      session->job = &restored;
      Session& awaited = *session;
      sessions.expect(std::move(session));
      const std::string& where = replay.processes.at(awaited.id).place;
      for (const auto& [uuid, attach] : replay.processes.at(awaited.id).gpus) {
        std::optional<wire::GpuUuid> parsed = parse_uuid(uuid);
        int gpu = parsed ? node.find_gpu(*parsed) : -1;
        if (gpu < 0) continue;
        awaited.memory[gpu];
        node.ledger.attach(awaited.id, restored.key, gpu, 0);
        // Before it can be measured again, jobs are admitted beside it.
        node.ledger.measured(awaited.id, gpu, attach.number("overhead"));
        // What is checkpointed has not changed since, and is in host memory before it is heard of.
        if (is_off_gpu(where)) {
          node.ledger.restore(awaited.id, gpu, attach.number("pageable"),
                              attach.number("unpageable"));
        }
        leases.attach(awaited, gpu);
      }
      place(awaited, where, node, leases);
    }
  }
}

}  // namespace

void recover(Node& node, Jobs& jobs, Sessions& sessions, Leases& leases) {
  std::string folder = node.options.state_dir + "/journal";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::string path = folder + "/nodemgr.journal";
  absl::StatusOr<Journal::Contents> contents = Journal::read(path);
  Replay replay;
  if (!contents.ok()) {
    log_line(LogLevel::kWarning, "recovery", message_of(contents.status()) + ", ignoring");
  } else {
    for (const JournalRecord& record : contents->records) replay.apply(record);
    if (contents->damaged) {
      log_line(LogLevel::kWarning, "recovery",
               cat("journal '", path, "' ends in a damaged record, ignoring what follows"));
    }
  }
  node.generation = replay.generation + 1;
  node.draining = replay.draining;
  node.quota_changes = std::move(replay.quota_changes);
  node.journal = std::make_unique<Journal>(path);
  if (replay.boot == boot_id()) bring_back(replay, node, jobs, sessions, leases);
  absl::Status status = node.journal->rewrite(snapshot(node, leases));
  if (!status.ok()) {
    log_line(LogLevel::kWarning, "recovery",
             message_of(status) + ": going on; nothing will survive a crash of this manager");
    node.journal_failed = true;
  }
  leases.thaw();
}

JournalRecord drain_record(const Node& node) {
  JournalRecord record{"drain", {}};
  record.fields["on"] = cat(node.draining ? 1 : 0);
  return record;
}

JournalRecord quota_record(const QuotaChanges& changes, const QuotaChanges::Key& key) {
  JournalRecord record{"quota", {}};
  if (key.first) record.fields["team"] = *key.first;
  record.fields["of"] = key.first ? "team" : "job";
  record.fields["tier"] = tier_name(key.second);
  const auto change = changes.all().find(key);
  record.fields["bytes"] = change == changes.all().end() ? kAsInFile
                           : change->second              ? cat(*change->second)
                                                         : kNoQuota;
  return record;
}

std::vector<JournalRecord> snapshot(const Node& node, const Leases& leases) {
  std::vector<JournalRecord> records = {generation_record(node.generation)};
  if (node.draining) records.push_back(drain_record(node));
  for (const auto& [key, bytes] : node.quota_changes.all()) {
    records.push_back(quota_record(node.quota_changes, key));
  }
  for (const auto& [key, job] : node.jobs) {
    if (job->admitted) records.push_back(job_record(*job));
  }
  for (const auto& [id, session] : node.sessions) {
    records.push_back(process_record(*session));
    for (const auto& [gpu, memory] : session->memory) {
      records.push_back(attach_record(node, *session, gpu));
    }
    if (session->spill_inode != 0) records.push_back(spill_record(id, session->spill_inode));
    if (session->off_gpu) {
      records.push_back(place_record({id}, session->away ? "away" : "leaving"));
    }
  }
  for (JournalRecord& grant : leases.remembered()) records.push_back(std::move(grant));
  for (const auto& [id, gang] : leases.gangs()) {
    if (gang.epoch != wire::Epoch{}) records.push_back(grant_record(gang));
  }
  return records;
}

}  // namespace plexrl::nodemgr
