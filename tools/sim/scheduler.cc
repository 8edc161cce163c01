#include "tools/sim/scheduler.h"

namespace plexrl::sim {
namespace {

class Ours : public Scheduler {
 public:
  explicit Ours(const placement::PlacerConfig& config) : placer_(config) {}
  placement::PlaceDecision place(const placement::JobProfile& job) override {
    return placer_.place(job);
  }
  void remove(placement::JobId job) override { placer_.remove(job); }
  void learn(const placement::JobProfile& job) override { placer_.learn(job); }
  placement::Slots& nodes() override { return placer_.nodes(); }

 private:
  placement::Placer placer_;
};

}  // namespace

std::unique_ptr<Scheduler> ours(const placement::PlacerConfig& config) {
  return std::make_unique<Ours>(config);
}

}  // namespace plexrl::sim
