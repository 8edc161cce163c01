#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "nodemgr/policy/decision.h"
#include "nodemgr/trace.h"
#include "shim/wire.h"

namespace plexrl::nodemgr {

/// Collects the stages of each change of holder into one switch record per GPU, and the gaps of
/// gangs. Times are boot time.
class SwitchLog {
 public:
  using Instant = std::chrono::nanoseconds;
  struct Who {
    std::string job;
    std::uint64_t gang = 0;
  };

  explicit SwitchLog(TraceWriter& trace) : trace_(trace) {}

  void withdrawn(const Who& holder, const policy::Decision& decision, Instant now);
  void revoked(const Who& holder, std::uint64_t gpus, Instant now);
  void evicting(int gpu, std::int64_t bytes, Instant now);
  void evicted(const wire::Evicted& evicted, Instant now);
  void granted(const Who& newcomer, const policy::Decision& decision, Instant now);
  void loaded(std::uint64_t gpus, const wire::Loaded& loaded);
  /// The newcomer runs on these GPUs: writes a record for each whose holder changed.
  void running(const Who& newcomer, std::uint64_t gpus, Instant now);

  void idle(const Who& gang, Instant since);
  void busy(const Who& gang, Instant at);
  /// The gang lost its lease: its current gap, if it is in one, was lent.
  void lent(std::uint64_t gang);
  void gone(std::uint64_t gang);

 private:
  struct Gpu {
    TraceSwitch record;
    Who last_holder;
    Instant evict_since{0};
    Instant granted_at{0};
  };
  struct Gap {
    Instant since{0};
    bool is_open = false;
    bool was_lent = false;
  };
  template <typename Visit>
  void each(std::uint64_t gpus, Visit visit) {
    for (int gpu = 0; gpu < policy::kMaxGpus; ++gpu) {
      if ((gpus >> gpu & 1) != 0) visit(gpu, gpus_[gpu]);
    }
  }

  TraceWriter& trace_;
  std::map<int, Gpu> gpus_;
  std::map<std::uint64_t, Gap> gaps_;
};

}  // namespace plexrl::nodemgr
