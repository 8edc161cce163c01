#include "tools/sim/run_file.h"

#include <map>
#include <nlohmann/json.hpp>

namespace plexrl::sim {
namespace {

using Json = nlohmann::json;

Row row(const std::string& scheduler, const char* what, double value, const char* unit) {
  Row row;
  row.name = scheduler + ": " + what;
  row.value = value;
  row.unit = unit;
  row.rounds = 1;
  return row;
}

std::size_t unfinished(const Result& result) {
  std::size_t count = 0;
  for (const JobResult& job : result.jobs) count += job.finished ? 0 : 1;
  return count;
}

struct Sums {
  double gpu_s = 0;
  double slowdown = 0;
  double completion_s = 0;
  double queueing_s = 0;
  double bound_met = 0;
  std::uint64_t switches = 0;
  double moved_bytes = 0;
  double jobs = 0;
};

Json by_team(const Result& result) {
  std::map<std::string, Sums> teams;
  for (const JobResult& job : result.jobs) {
    if (!job.finished) continue;
    Sums& sums = teams[job.team];
    sums.gpu_s += job.worked_gpu_s;
    sums.slowdown += job.slowdown;
    sums.completion_s += job.finished_s - job.arrival_s;
    sums.queueing_s += job.started_s - job.arrival_s;
    sums.bound_met += job.within_bound ? 1 : 0;
    sums.switches += job.switches;
    sums.moved_bytes += static_cast<double>(job.moved_bytes);
    sums.jobs += 1;
  }
  Json all = Json::array();
  for (const auto& [team, sums] : teams) {
    all.push_back({{"team", team},
                   {"jobs", sums.jobs},
                   {"worked_gpu_s", sums.gpu_s},
                   {"slowdown_ratio", sums.slowdown / sums.jobs},
                   {"completion_s", sums.completion_s / sums.jobs},
                   {"queueing_s", sums.queueing_s / sums.jobs},
                   {"bound_met_ratio", sums.bound_met / sums.jobs},
                   {"switches", sums.switches},
                   {"moved_bytes", sums.moved_bytes}});
  }
  return all;
}

}  // namespace

std::vector<SchedulerRun> run_workload(const Workload& workload,
                                       const std::function<void(const std::string&)>& progress) {
  std::vector<SchedulerRun> runs;
  for (const std::string& name : workload.schedulers) {
    std::unique_ptr<Scheduler> scheduler =
        name == "plexrl" ? ours(workload.placer)
                         : baseline(name, workload.placer, derive(workload.setup.seed, 0));
    auto tell = [&](std::size_t done) {
      if (progress && (done % 16 == 0 || done == workload.jobs.size())) {
        progress(name + ": " + std::to_string(done) + " of " +
                 std::to_string(workload.jobs.size()) + " jobs");
      }
    };
    runs.push_back({name, simulate(workload.setup, workload.jobs, *scheduler, tell)});
  }
  return runs;
}

Report report_of(const Workload& workload, const std::vector<SchedulerRun>& runs) {
  Report report;
  report.name = workload.name;
  report.first_seed = workload.setup.seed;
  for (const SchedulerRun& run : runs) {
    const Result& result = run.result;
    const std::string& name = run.scheduler;
    report.events += result.events;
    if (std::size_t left = unfinished(result); left > 0) {
      Row failed = row(name, "GPU hours", 0, "GPU h");
      failed.value.reset();
      std::string why;
      for (const JobResult& job : result.jobs) {
        if (!job.finished) why = job.reason;
      }
      failed.error = std::to_string(left) + " jobs never ran: " + why;
      report.rows.push_back(failed);
      continue;
    }
    Row hours = row(name, "GPU hours", result.gpu_s / 3600, "GPU h");
    hours.bound = result.worked_gpu_s / 3600;
    hours.bound_name = "the work itself (volume)";
    report.rows.push_back(hours);
    report.rows.push_back(row(name, "GPU duty", result.worked_gpu_s / result.gpu_s, "ratio"));
    report.rows.back().higher_is_better = true;
    report.rows.push_back(row(name, "mean completion", result.mean_completion_s(), "s"));
    report.rows.push_back(row(name, "mean queueing", result.mean_queueing_s(), "s"));
    report.rows.push_back(row(name, "mean slowdown", result.mean_slowdown(), "ratio"));
    report.rows.back().bound = 1;
    report.rows.push_back(row(name, "slowdown p50", result.quantile_slowdown(0.5), "ratio"));
    report.rows.push_back(row(name, "slowdown p99", result.quantile_slowdown(0.99), "ratio"));
    report.rows.push_back(row(name, "jobs within their bound", result.bound_met(), "ratio"));
    report.rows.back().higher_is_better = true;
    double switches = 0;
    double bytes = 0;
    for (const JobResult& job : result.jobs) {
      switches += static_cast<double>(job.switches);
      bytes += static_cast<double>(job.moved_bytes);
    }
    report.rows.push_back(row(name, "leases granted", switches, "count"));
    report.rows.push_back(row(name, "bytes moved", bytes / 1e9, "GB"));
  }
  report.origins = {"jobs, nodes and costs: the workload file",
                    "who runs when: nodemgr/policy, the library that the node daemon links"};
  for (const SchedulerRun& run : runs) {
    if (std::string source = baseline_source(run.scheduler); !source.empty()) {
      report.origins.push_back(run.scheduler + ": " + source);
    }
  }
  if (workload.setup.history_steps > 0) {
    report.notes.push_back(
        "each job has run before: " + std::to_string(workload.setup.history_steps) +
        " steps of it, with other draws, are on record when it arrives");
  }
  return report;
}

Json details_of(const std::vector<SchedulerRun>& runs) {
  Json all = Json::array();
  for (const SchedulerRun& run : runs) {
    Json jobs = Json::array();
    for (const JobResult& job : run.result.jobs) {
      jobs.push_back({{"name", job.name},
                      {"team", job.team},
                      {"finished", job.finished},
                      {"arrival_s", job.arrival_s},
                      {"started_s", job.started_s},
                      {"finished_s", job.finished_s},
                      {"alone_s", job.alone_s},
                      {"gpus", job.gpus},
                      {"slowdown_ratio", job.slowdown},
                      {"max_slowdown_ratio", job.max_slowdown},
                      {"longest_wait_s", job.longest_wait_s},
                      {"switches", job.switches},
                      {"moved_bytes", job.moved_bytes},
                      {"slots", job.slots},
                      {"reason", job.reason}});
    }
    Json slots = Json::array();
    for (const SlotUse& slot : run.result.slots) {
      slots.push_back({{"slot", slot.number},
                       {"pool", slot.pool},
                       {"gpus", slot.gpus},
                       {"opened_s", slot.opened_s},
                       {"closed_s", slot.closed_s},
                       {"worked_s", slot.worked_s}});
    }
    all.push_back({{"scheduler", run.scheduler},
                   {"end_s", run.result.end_s},
                   {"gpu_s", run.result.gpu_s},
                   {"worked_gpu_s", run.result.worked_gpu_s},
                   {"teams", by_team(run.result)},
                   {"jobs", std::move(jobs)},
                   {"slots", std::move(slots)}});
  }
  return all;
}

}  // namespace plexrl::sim
