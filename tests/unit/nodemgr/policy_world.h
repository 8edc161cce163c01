#pragma once

#include <cstdint>
#include <map>
#include <queue>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "nodemgr/policy/step.h"

namespace plexrl::nodemgr::policy::test {

/// How a fake gang behaves. It computes for `burst`, leaves a gap of `gap`, and so on for ever.
struct Habit {
  GpuMask gpus = 1;
  int priority = 50;
  std::int64_t bytes = 0;  ///< pageable, on each GPU
  Duration burst{0};
  Duration gap{0};
  double refuses_to_drain = 0;  ///< share of attempts that fail
  bool exclusive = false;
  std::string job = "job";
  std::string team = {};
  double max_slowdown = 0;
};

/// Gangs on a node in virtual time: carries out the policy's decisions as obedient processes would,
/// and records every breach of what must always hold. Moving takes 1 ns a byte.
class World {
 public:
  World(Config config, std::map<int, std::int64_t> gpu_bytes, std::uint64_t seed);

  GangId add(const Habit& habit, Instant starts_at);
  /// Runs until `end`, stepping at every event and wake-up.
  void run_until(Instant end);

  const std::vector<std::string>& breaches() const { return breaches_; }
  const std::map<GangId, Duration>& longest_wait() const { return longest_wait_; }
  const std::map<GangId, int>& grants() const { return grants_; }
  /// Bursts that came to their end.
  std::map<GangId, int>& bursts() { return bursts_; }
  const std::vector<Decision>& history() const { return history_; }
  /// Time with a running lease, in all.
  Duration served(GangId id);
  void weigh(const std::string& team, double weight);
  State& state() { return state_; }
  Instant now() const { return now_; }

 private:
  struct Fake {
    Habit habit;
    bool busy = false;   ///< inside a burst
    bool waits = false;  ///< at the gate
    Duration burst_left{0};
    Instant burst_ends{0};
    std::uint64_t life = 0;        ///< outdates scheduled burst ends
    std::uint64_t loads = 0;       ///< outdates scheduled ends of loads
    std::uint64_t prefetches = 0;  ///< outdates scheduled ends of prefetches
    bool loading = false;
  };
  enum class What {
    kStart,
    kBurstEnd,
    kIdleEdge,
    kDrained,
    kNotDrained,
    kLoaded,
    kEvicted,
    kPrefetched,
    kWants,
    kWake
  };
  struct Later {
    Instant at;
    std::uint64_t order;
    What what;
    GangId gang;
    std::uint64_t number;  ///< life, loads, or attempt
    int gpu;
    std::int64_t bytes;
    bool operator>(const Later& o) const { return std::tie(at, order) > std::tie(o.at, o.order); }
  };

  void later(Duration in, What what, GangId gang, std::uint64_t number = 0, int gpu = 0,
             std::int64_t bytes = 0);
  void happen(const Later& what, std::vector<Event>& events);
  void begin_burst(GangId id, std::vector<Event>& events);
  void go_on(GangId id);
  void call_off_prefetches(GangId id);
  void carry_out(const Decision& decision);
  void check();
  void breach(const std::string& text);
  double random() { return std::uniform_real_distribution<double>(0, 1)(rng_); }

  State state_;
  std::mt19937_64 rng_;
  std::map<GangId, Fake> fakes_;
  std::priority_queue<Later, std::vector<Later>, std::greater<>> queue_;
  std::uint64_t order_ = 0;
  std::uint64_t next_gang_ = 1;
  Instant now_{0};
  std::vector<Decision> history_;
  std::vector<std::string> breaches_;
  std::map<GangId, Duration> longest_wait_;
  std::map<GangId, int> grants_;
  std::map<GangId, int> bursts_;
};

}  // namespace plexrl::nodemgr::policy::test
