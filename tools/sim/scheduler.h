#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "clustermgr/placement/placer.h"

namespace plexrl::sim {

namespace placement = clustermgr::placement;

/// Decides where a job goes, from what node agents have recorded. Ours and the baselines get the
/// same profiles, the same nodes and the same memory checks.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual placement::PlaceDecision place(const placement::JobProfile& job) = 0;
  virtual void remove(placement::JobId job) = 0;
  /// Newer records of a placed job.
  virtual void learn(const placement::JobProfile& job) = 0;
  virtual placement::Slots& nodes() = 0;
};

/// clustermgr/placement as the cluster manager uses it.
std::unique_ptr<Scheduler> ours(const placement::PlacerConfig& config);

/// `name` is one of baseline_names(); null for another. Where it comes from is baseline_source().
std::unique_ptr<Scheduler> baseline(const std::string& name, const placement::PlacerConfig& config,
                                    std::uint64_t seed);
std::vector<std::string> baseline_names();
std::string baseline_source(const std::string& name);

}  // namespace plexrl::sim
