#include "tools/sim/reproduce.h"

namespace plexrl::sim {

absl::StatusOr<Report> reproduce_paper(const ReproduceOptions& options);
absl::StatusOr<Report> reproduce_rollmux(const ReproduceOptions& options);
absl::StatusOr<Report> reproduce_optimality(const ReproduceOptions& options);
absl::StatusOr<Report> reproduce_llmd(const ReproduceOptions& options);
absl::StatusOr<Report> reproduce_scale(const ReproduceOptions& options);

const std::vector<Reproduction>& reproductions() {
  static const std::vector<Reproduction> all = {
      {"plexrl-paper", "private rollout GPUs, shared training pool: GPU hours saved",
       reproduce_paper},
      {"rollmux", "300 jobs with RollMux's phase profiles and bounds: cost against Isolated",
       reproduce_rollmux},
      {"optimality", "cost over the exact optimum and over the configuration LP",
       reproduce_optimality},
      {"scale", "time of a decision at 2,000 and 20,000 jobs, and of the exact search",
       reproduce_scale},
      {"llm-d", "the recorded synchronous pair with our switch costs (needs --data)",
       reproduce_llmd},
  };
  return all;
}

}  // namespace plexrl::sim
