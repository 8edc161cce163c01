#include "tools/sim/reproduce.h"

namespace plexrl::sim {

absl::StatusOr<Report> reproduce_paper(const ReproduceOptions& options);

const std::vector<Reproduction>& reproductions() {
  static const std::vector<Reproduction> all = {
      {"plexrl-paper", "private rollout GPUs, shared training pool: GPU hours saved",
       reproduce_paper},
  };
  return all;
}

}  // namespace plexrl::sim
