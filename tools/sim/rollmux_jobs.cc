#include "tools/sim/rollmux_jobs.h"

#include "tools/sim/switch_costs.h"

namespace plexrl::sim {
namespace {

struct Range {
  double from_s;
  double to_s;
};
struct Profile {
  const char* kind;
  Range rollout[3];
  Range train[3];
};
constexpr Profile kProfiles[] = {
    {"balanced", {{50, 100}, {100, 200}, {200, 300}}, {{50, 100}, {100, 200}, {200, 300}}},
    {"rollout-heavy", {{100, 200}, {200, 400}, {400, 600}}, {{25, 50}, {50, 100}, {100, 200}}},
    {"train-heavy", {{25, 50}, {50, 100}, {100, 200}}, {{100, 200}, {200, 400}, {400, 600}}},
};
constexpr const char* kSizes[] = {"S", "M", "L"};
/// Host state per node of 8 GPUs, GB, for 7B, 14B, 32B.
constexpr double kRolloutGb[] = {276, 445, 490};
constexpr double kTrainGb[] = {240, 456, 520};

}  // namespace

const char* const kRollmuxOrigin =
    "phase profiles, bounds U(1,2): RollMux, arXiv 2512.11306, table 6 and section 7.5; memory: "
    "its "
    "table 2 (7B, 14B, 32B for S, M, L)";

JobModel rollmux_job(Random& random) {
  const Profile& profile = kProfiles[random.below(3)];
  const std::size_t size = random.below(3);
  const Range rollout = profile.rollout[size];
  const Range train = profile.train[size];
  JobModel job;
  job.name = std::string(profile.kind) + "-" + kSizes[size];
  double rollout_s = random.uniform(rollout.from_s, rollout.to_s);
  double train_s = random.uniform(train.from_s, train.to_s);
  job.max_slowdown = random.uniform(1, 2);
  job.gangs = {{"rollout", "rollout", 8, static_cast<std::int64_t>(kRolloutGb[size] / 8 * 1e9)},
               {"train", "train", 8, static_cast<std::int64_t>(kTrainGb[size] / 8 * 1e9)}};
  job.stages = {{"rollout", {0}, TimeModel::fixed(rollout_s), 1, {}},
                {"train", {1}, TimeModel::fixed(train_s), 1, {}}};
  return job;
}

Setup rollmux_cluster(int nodes) {
  Setup setup;
  setup.policy = phase_settings();
  setup.moves = our_moves();
  std::uint32_t next = 1;
  for (const char* pool : {"rollout", "train"}) {
    for (int i = 0; i < nodes; ++i) {
      placement::NodeInfo node;
      node.id = placement::NodeId{next++};
      node.pool = pool;
      node.hbm_bytes = setup.usable_hbm_bytes;
      node.tier_bytes = 2'000'000'000'000;
      setup.nodes.push_back(node);
    }
  }
  return setup;
}

placement::PlacerConfig placer_for(const Setup& setup) {
  placement::PlacerConfig config;
  config.predictor.policy = setup.policy;
  config.predictor.moves = setup.moves;
  config.predictor.usable_hbm_bytes = setup.usable_hbm_bytes;
  return config;
}

}  // namespace plexrl::sim
