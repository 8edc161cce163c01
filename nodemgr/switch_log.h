#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nodemgr/gap_causes.h"
#include "nodemgr/policy/decision.h"
#include "nodemgr/trace.h"
#include "shim/wire.h"

namespace plexrl::nodemgr {

/// Collects the stages of each change of holder into one switch record per GPU, and the gaps of
/// gangs. Times are boot time.
///
/// A record is written when the newcomer runs and every process that was asked to leave for it has
/// answered: a process may still be leaving when there is room enough. What leaves while no holder
/// changes (the holder grows) is in no switch record, only in the paging records.
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
  /// The attempt was called off.
  void reopened(std::uint64_t gpus);
  /// Bytes have to leave the GPU; returns the change of holder that they leave for, 0: none.
  std::uint64_t evicting(int gpu, std::int64_t bytes, Instant now);
  /// A process was asked to leave; `evicted` follows once for each, zeros if it will not answer.
  void asked_to_leave(std::uint64_t for_switch);
  void evicted(std::uint64_t for_switch, const wire::Evicted& evicted, const wire::Paged& more,
               Instant now, const wire::DiskPaged& disk = {});
  void granted(const Who& newcomer, const policy::Decision& decision, Instant now);
  void loaded(std::uint64_t gpus, const wire::Loaded& loaded, const wire::Paged& more,
              const wire::DiskPaged& disk = {});
  /// The newcomer runs on these GPUs: writes a record for each whose holder changed.
  void running(const Who& newcomer, std::uint64_t gpus, Instant now);
  /// The holder has another name from now on: its gang has met another, or parted from it.
  void went_on(const Who& holder, std::uint64_t gpus);

  void idle(const Who& gang, Instant since);
  void busy(const Who& gang, Instant at);
  /// The gang lost its lease: its current gap, if it is in one, was lent.
  void lent(std::uint64_t gang);
  void gone(const Who& gang, Instant at);
  /// Tells the gaps that are open, each once: a trace that is read meanwhile, or that ends here,
  /// has them. A gap that is over is told when its causes have come, or will not.
  void tell_open_gaps(Instant now);
  bool has_untold_gaps() const;

  /// Is told of gaps from now on; null: nobody is. It outlives this.
  void set_watcher(GapWatcher* watcher) { watcher_ = watcher; }
  struct OpenGap {
    std::uint64_t gang = 0;
    Instant since{0};
  };
  std::vector<OpenGap> open_gaps() const;
  /// What the gang's gap that began at `since` is due to, as far as is known; with `is_final`
  /// nothing more will come.
  void explain(std::uint64_t gang, Instant since, const GapCauses& causes, bool is_final);
  /// No causes will come any more for gaps that are over.
  void give_up_causes();
  /// Of the gap that the gang is in; null: it is in none, or nothing is known.
  const GapCauses* causes(std::uint64_t gang) const;

 private:
  /// One change of holder, as far as it is known.
  struct Change {
    std::uint64_t id = 0;  ///< 0: no change is under way
    TraceSwitch record;
    Instant revoked_at{0};
    Instant evict_since{0};
    Instant granted_at{0};
    int leaving = 0;  ///< processes that were asked and have not answered
  };
  struct Gpu {
    Change change;
    Who last_holder;
  };
  struct Gap {
    std::string job;
    Instant since{0};
    bool is_open = false;
    bool was_lent = false;
    bool is_told = false;
    GapCauses causes;
  };
  /// Is over, and waits for its causes.
  struct EndedGap {
    TraceGap record;
    Instant until{0};
  };
  template <typename Visit>
  void each(std::uint64_t gpus, Visit visit) {
    for (int gpu = 0; gpu < policy::kMaxGpus; ++gpu) {
      if ((gpus >> gpu & 1) != 0) visit(gpu, gpus_[gpu]);
    }
  }

  /// The change under way on the GPU; begins one where there is none.
  Change& change_of(Gpu& gpu);
  Change* find(std::uint64_t id);
  bool waits_for_causes(std::uint64_t gang) const;

  TraceWriter& trace_;
  std::uint64_t last_id_ = 0;
  std::map<int, Gpu> gpus_;
  std::map<std::uint64_t, Change> late_;  ///< the newcomer runs, some are still leaving
  std::map<std::uint64_t, Gap> gaps_;
  std::vector<EndedGap> ended_gaps_;
  GapWatcher* watcher_ = nullptr;
};

}  // namespace plexrl::nodemgr
