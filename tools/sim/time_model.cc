#include "tools/sim/time_model.h"

#include <algorithm>

namespace plexrl::sim {
namespace {

double longest_tokens(const TimeModel& model, Random& random, double scale) {
  double weights = 0;
  for (const TimeModel::Part& part : model.mixture) weights += part.weight;
  double longest = 1;
  for (int i = 0; i < model.samples; ++i) {
    double pick = random.uniform() * weights;
    const TimeModel::Part* chosen = &model.mixture.back();
    for (const TimeModel::Part& part : model.mixture) {
      pick -= part.weight;
      if (pick < 0) {
        chosen = &part;
        break;
      }
    }
    double tokens = scale * (chosen->mean_tokens + chosen->sd_tokens * random.normal());
    longest = std::max(longest, tokens);
  }
  return model.cap_tokens > 0 ? std::min(longest, model.cap_tokens) : longest;
}

}  // namespace

TimeModel TimeModel::fixed(double s) {
  TimeModel model;
  model.mean_s = s;
  return model;
}

TimeModel TimeModel::uniform(double from_s, double to_s) {
  TimeModel model;
  model.kind = Kind::kUniform;
  model.from_s = from_s;
  model.to_s = to_s;
  return model;
}

TimeModel TimeModel::lognormal(double mean_s, double cv) {
  TimeModel model;
  model.kind = Kind::kLognormal;
  model.mean_s = mean_s;
  model.cv = cv;
  return model;
}

double TimeModel::draw(Random& random, int step) const {
  double scale = std::clamp(1 + drift_per_step * step, 1 / drift_limit, drift_limit);
  double time = 0;
  switch (kind) {
    case Kind::kFixed:
      time = mean_s * scale;
      break;
    case Kind::kUniform:
      time = random.uniform(from_s, to_s) * scale;
      break;
    case Kind::kLognormal:
      time = random.lognormal(mean_s, cv) * scale;
      break;
    case Kind::kLongest:
      time = start_s + longest_tokens(*this, random, scale) / tokens_per_s;
      break;
  }
  return jitter_cv > 0 ? time * random.lognormal(1, jitter_cv) : time;
}

}  // namespace plexrl::sim
