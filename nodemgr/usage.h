#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "nodemgr/ledger.h"

namespace plexrl::nodemgr {

/// An amount that comes about over time: how much of it lately, and in all.
///
/// "Lately" is a window that ends now. It is kept in parts of a fortieth, so its length is between
/// 39 and 40 parts; `window_begin` says where it begins. Takes constant memory, whatever it is
/// told.
class WindowSum {
 public:
  using Instant = std::chrono::nanoseconds;
  static constexpr int kParts = 40;

  explicit WindowSum(std::chrono::nanoseconds window) : part_(window / kParts) {}

  /// `amount` came about evenly between `from` and `to`.
  void add(Instant from, Instant to, double amount);
  double recent(Instant now) const;
  double total() const { return total_; }
  Instant window_begin(Instant now) const;

 private:
  struct Part {
    std::int64_t number = -1;  ///< time divided by the length of a part
    double amount = 0;
  };
  std::chrono::nanoseconds part_;
  std::array<Part, kParts> parts_;
  double total_ = 0;
};

/// What GPUs and their links were used for since this manager began, from the states of gangs,
/// their edges of busy and idle, and the bytes that processes report as moved.
///
/// Pure: times (since boot) are passed in and never go backwards but for edges, which tell of the
/// past. A gang is in one state at a time; its states are those of docs/contract.md. One thread.
class Usage {
 public:
  using Instant = std::chrono::nanoseconds;
  static constexpr std::chrono::seconds kWindow{10};        ///< of duty and link rates
  static constexpr std::chrono::seconds kShareWindow{300};  ///< longer than any usual turn

  explicit Usage(Instant now) : began_(now), granted_(kShareWindow) {}

  /// From now on the gang, which needs or holds `gpus` (a mask), is in this state; "gone" ends it.
  /// A lease that begins to run begins with work: it was granted because a thread waited.
  void state(JobKey job, std::uint64_t gang, std::string_view state, std::uint64_t gpus,
             Instant now);
  /// Work of the gang is outstanding, or wanted, since `at`; or none is.
  void activity(std::uint64_t gang, bool busy, Instant at);
  void moved_out(int gpu, std::uint64_t bytes, Instant from, Instant to);
  void moved_in(int gpu, std::uint64_t bytes, Instant from, Instant to);
  void forget(JobKey job) { jobs_.erase(job); }

  struct GpuFigures {
    double duty_ratio = 0;              ///< of the window: work of a holder was outstanding
    double duty_since_start_ratio = 0;  ///< the same, since this manager began
    double out_bytes_s = 0, in_bytes_s = 0;
    std::uint64_t out_bytes = 0, in_bytes = 0;  ///< since this manager began
  };
  GpuFigures gpu(int index, Instant now) const;

  struct JobFigures {
    /// Of all GPU time granted in the share window; none when none was granted.
    std::optional<double> share_ratio;
    /// All of its gangs' time over the time they would have taken alone (running or idle).
    std::optional<double> slowdown_ratio;
    std::chrono::nanoseconds waited{0};
  };
  JobFigures job(JobKey key, Instant now) const;

  /// Of all gangs of a job together, since this manager began.
  struct Totals {
    double held_gpu_ns = 0;             ///< GPU time under a lease
    double needed_gpu_ns = 0;           ///< GPU time that it would have held alone: running or idle
    std::chrono::nanoseconds alone{0};  ///< running or idle: what it would have taken alone
    std::chrono::nanoseconds lost{0};   ///< waiting, loading or draining
    std::chrono::nanoseconds waited{0};  ///< of it, waiting

    /// All of its time over that which it would have taken alone; none before it had any.
    std::optional<double> slowdown_ratio() const;
  };
  Totals totals(JobKey key, Instant now) const;

 private:
  enum class State { kIdle, kWaiting, kLoading, kRunning, kDraining, kOther };
  struct Gang {
    JobKey job = 0;
    State state = State::kOther;
    std::uint64_t gpus = 0;
    Instant since{0};
    bool works = false;  ///< runs, and work is outstanding
    Instant works_since{0};
    bool is_idle = false;
    Instant idle_since{0};
  };
  struct Job {
    Totals totals;
    WindowSum granted{kShareWindow};
  };
  struct Gpu {
    WindowSum busy{kWindow}, out{kWindow}, in{kWindow};
  };
  static State parse(std::string_view state);
  static bool holds(State state) { return state >= State::kLoading && state <= State::kDraining; }
  static bool runs(State state) { return state == State::kRunning || state == State::kDraining; }
  static double gpu_time(const Gang& gang, Instant from, Instant to);
  static void count(const Gang& gang, Instant to, Totals& totals);
  void stop_work(Gang& gang, Instant at);

  Instant began_;
  WindowSum granted_;
  std::map<std::uint64_t, Gang> gangs_;
  std::map<JobKey, Job> jobs_;
  std::map<int, Gpu> gpus_;
};

}  // namespace plexrl::nodemgr
