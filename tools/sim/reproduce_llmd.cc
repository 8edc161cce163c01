#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "clustermgr/placement/predictor.h"
#include "nodemgr/settings/cat.h"
#include "tools/sim/reproduce.h"
#include "tools/sim/switch_costs.h"

namespace plexrl::sim {
namespace {

namespace placement = clustermgr::placement;
using Json = nlohmann::json;
using placement::Burst;
using placement::from_seconds;

/// Above this utilisation the recorder counts a sample as busy.
constexpr double kBusyPercent = 5;
/// The whole of an 80 GB GPU that such jobs are given by default (0.9), moved at each switch.
constexpr std::int64_t kJobBytes = 72'000'000'000;
constexpr std::int64_t kUsableBytes = 80'000'000'000;

struct Sample {
  double at_s = 0;
  double percent = 0;
};

std::vector<Sample> read_series(const Json& series) {
  std::vector<Sample> samples;
  for (const Json& one : series) samples.push_back({one.at(0), one.at(1)});
  return samples;
}

/// Runs of samples with any use, as bursts. A sample covers the time since the one before; the
/// first and the last of a run are taken as busy for the share of their use in the run's median.
std::vector<Burst> bursts_of(const std::vector<Sample>& samples) {
  std::vector<Burst> bursts;
  for (std::size_t i = 1; i < samples.size();) {
    if (samples[i].percent <= 0) {
      ++i;
      continue;
    }
    std::size_t end = i;
    std::vector<double> used;
    while (end < samples.size() && samples[end].percent > 0) used.push_back(samples[end++].percent);
    std::nth_element(used.begin(), used.begin() + static_cast<long>(used.size() / 2), used.end());
    double full = used[used.size() / 2];
    auto share = [&](std::size_t k) { return std::min(1.0, samples[k].percent / full); };
    double begin_s = samples[i].at_s - share(i) * (samples[i].at_s - samples[i - 1].at_s);
    double end_s = samples[end - 1].at_s;
    if (end - i > 1) {
      end_s -= (1 - share(end - 1)) * (samples[end - 1].at_s - samples[end - 2].at_s);
    }
    if (end_s - begin_s >= 60) {
      Burst burst{from_seconds(begin_s), from_seconds(end_s), from_seconds(end_s - begin_s)};
      bursts.push_back(burst);
    }
    i = end;
  }
  return bursts;
}

double busy_share(const std::vector<Sample>& samples) {
  double busy = 0;
  for (const Sample& sample : samples) busy += sample.percent > kBusyPercent ? 1 : 0;
  return samples.empty() ? 0 : busy / static_cast<double>(samples.size());
}

/// Two jobs like the recorded one on its two GPUs: how much work they do together over one alone.
double speedup(const placement::JobProfile& job, const placement::MoveModel& moves,
               Report& report) {
  placement::PredictorConfig config;
  config.policy = phase_settings();
  config.policy.max_wait = std::chrono::minutes(30);
  config.moves = moves;
  config.usable_hbm_bytes = kUsableBytes;
  config.steps = 40;
  placement::Predictor predictor(config);
  placement::Group group;
  for (std::uint64_t id : {1, 2}) {
    placement::JobProfile copy = job;
    copy.id = placement::JobId{id};
    predictor.learn(copy);
    group.jobs.push_back(copy.id);
    group.slots.push_back({0, 1});
  }
  const placement::Prediction& prediction = predictor.predict(group);
  report.events += predictor.replay_events();
  return 1 / prediction.slowdown[0] + 1 / prediction.slowdown[1];
}

Row value_row(const char* name, double value, const char* unit) {
  Row row;
  row.name = name;
  row.value = value;
  row.unit = unit;
  row.rounds = 1;
  row.higher_is_better = true;
  return row;
}

absl::StatusOr<Json> read_runs(const std::string& path) {
  std::ifstream file(path);
  if (!file) return nodemgr::failed("can't read '", path, "'");
  try {
    return Json::parse(file).at("runs");
  } catch (const Json::exception& error) {
    return nodemgr::invalid("'", path, "': ", error.what());
  }
}

absl::Status add_sync(const Json& run, Report& report) {
  const Json& series = run.at("baseline").at("duty_gpus");
  std::vector<Sample> sampler = read_series(series.at("0"));
  std::vector<Sample> trainer = read_series(series.at("1"));
  placement::JobProfile job;
  job.gangs.resize(2);
  job.gangs[0].bursts = bursts_of(sampler);
  job.gangs[1].bursts = bursts_of(trainer);
  for (placement::GangProfile& gang : job.gangs) gang.hbm_bytes = kJobBytes;
  placement::JobShape shape = placement::shape_of(job);
  if (!shape.known) return nodemgr::invalid("the recorded baseline has too few bursts");
  const double recorded = run.at("summary").at("speedup");
  const double bound = 1 / std::max(shape.duty(0), shape.duty(1));
  const double by_minutes = 1 / std::max(busy_share(sampler), busy_share(trainer));
  const double ours = speedup(job, our_moves(), report);
  const double peer = speedup(job, peer_moves(), report);

  Row row = value_row("sync pair, our switches: throughput over one job alone", ours, "ratio");
  row.against = "the recorded solo run";
  row.best_known = recorded;
  row.bound = bound;
  row.bound_name = "one over the duty of the busier pool in the record that is replayed";
  row.assumptions = {
      "both jobs are like the recorded one; 72 GB of each GPU move at each switch; "
      "[policy] min_quantum = 30m, max_wait = 30m"};
  report.rows.push_back(row);
  row = value_row("sync pair, our switches: share of the bound", ours / bound, "ratio");
  row.against = "one over the duty of the busier pool in the record that is replayed";
  row.goal = 0.95;
  row.best_known = recorded / bound;
  row.bound = 1;
  row.bound_name = "the busier pool is never idle";
  report.rows.push_back(row);
  row = value_row("sync pair, recorded switches charged: throughput over one job alone", peer,
                  "ratio");
  row.against = "the recorded solo run";
  row.best_known = recorded;
  row.bound = bound;
  row.bound_name = "one over the duty of the busier pool in the record that is replayed";
  row.assumptions = {
      "21.3 s out, then 2.5 s in, one after the other at every hand-over of either "
      "pool; the recorded run also has a first round of 25 minutes"};
  report.rows.push_back(row);
  row = value_row("bound by the recorder's own duty, whole minutes", by_minutes, "ratio");
  row.assumptions = {
      "it counts a minute with more than 5 % use as busy, so it is below the bound by "
      "what was really used; by the duty in the recorder's summary, 58.7 %, it is 1.70"};
  report.rows.push_back(row);
  row = value_row("solo: period of the job in the replayed record", shape.period_s, "s");
  report.rows.push_back(row);
  row = value_row("solo: duty of the trainer in the replayed record over the recorder's own",
                  shape.duty(1) / busy_share(trainer), "ratio");
  report.rows.push_back(row);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Report> reproduce_llmd(const ReproduceOptions& options) {
  if (options.data.empty()) {
    return absl::InvalidArgumentError("needs --data DIR with llm-d-replay.json");
  }
  auto runs = read_runs(options.data + "/llm-d-replay.json");
  if (!runs.ok()) return runs.status();
  Report report;
  try {
    if (auto status = add_sync(runs->at(0), report); !status.ok()) return status;
  } catch (const Json::exception& error) {
    return nodemgr::invalid("llm-d-replay.json: ", error.what());
  }
  report.origins = {
      "solo phases, switch times, recorded speedup: llm-d-incubation/llm-d-rl-time-slicing, "
      "docs/diagrams/rl-timeslice-replay.html (veRL sync, 0.5B, 2 x H100)",
      our_moves_text()};
  report.notes = {"nothing is drawn at random: seeds do not matter",
                  "bursts from samples of 60 s: shorter gaps are not seen",
                  "not built: the prediction of the recorded asynchronous run"};
  return report;
}

}  // namespace plexrl::sim
