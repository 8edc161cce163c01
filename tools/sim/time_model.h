#pragma once

#include <vector>

#include "tools/sim/random.h"

namespace plexrl::sim {

/// How long a phase takes, step by step. Seconds.
struct TimeModel {
  enum class Kind {
    kFixed,      ///< `mean_s`
    kUniform,    ///< `from_s` to `to_s`
    kLognormal,  ///< `mean_s`, `cv`
    kLongest,    ///< the longest of `samples` responses makes the time
  };
  /// Responses of one kind: lengths are normal, not below 1 token nor above the cap.
  struct Part {
    double weight = 1;
    double mean_tokens = 0;
    double sd_tokens = 0;
  };
  Kind kind = Kind::kFixed;
  double mean_s = 0;
  double cv = 0;
  double from_s = 0;
  double to_s = 0;
  std::vector<Part> mixture;
  int samples = 1;
  double cap_tokens = 0;      ///< 0: none
  double tokens_per_s = 1;    ///< of one response
  double start_s = 0;         ///< before the first token
  double drift_per_step = 0;  ///< the mean grows by this share each step
  double drift_limit = 4;     ///< but not beyond this factor
  double jitter_cv = 0;       ///< lognormal factor on top, mean 1

  static TimeModel fixed(double s);
  static TimeModel uniform(double from_s, double to_s);
  static TimeModel lognormal(double mean_s, double cv);

  double draw(Random& random, int step) const;
};

}  // namespace plexrl::sim
