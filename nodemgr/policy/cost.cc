#include "nodemgr/policy/cost.h"

#include <algorithm>

namespace plexrl::nodemgr::policy {
namespace {

/// Messages and wake-ups of a switch that moves nothing; on the high side of what was measured.
constexpr Duration kHandoff = 200us;

std::int64_t missing_on(const Gang& gang, int gpu) {
  auto it = gang.memory.find(gpu);
  return it == gang.memory.end() ? 0 : it->second.missing();
}

/// Bytes that others have to give up before all of the gang's memory is there.
std::int64_t short_on(const State& state, const Gang& gang, int gpu) {
  auto it = gang.memory.find(gpu);
  if (it == gang.memory.end()) return 0;
  return std::max<std::int64_t>(0, it->second.lacking() - state.free_bytes(gpu));
}

/// What moves without a copy takes a small part of the time: it is hashed, filled, mapped. Assumed:
/// as long as the rate is learned from copies, nothing tells it.
constexpr double kWithoutCopy = 0.1;

/// As if so many were copied.
std::int64_t copied(std::int64_t bytes, double share) {
  return static_cast<std::int64_t>(static_cast<double>(bytes) *
                                   (share + (1 - share) * kWithoutCopy));
}

/// Out and in go at the same time; what comes in last waits for what leaves last.
double exchange_ns(const Gpu& gpu, std::int64_t out, std::int64_t in) {
  const std::int64_t last = std::min({in, out, kExchangeUnit});
  return std::max(static_cast<double>(in) * gpu.in_ns_per_byte,
                  static_cast<double>(out) * gpu.out_ns_per_byte +
                      static_cast<double>(last) * gpu.in_ns_per_byte);
}

}  // namespace

Duration load_cost(const State& state, const Gang& gang) {
  double worst = 0;
  for (const auto& [gpu, info] : state.gpus) {
    if ((gang.gpus & gpu_bit(gpu)) == 0) continue;
    const auto in = static_cast<double>(copied(missing_on(gang, gpu), gang.in_share));
    worst = std::max(worst, in * info.in_ns_per_byte);
  }
  return Duration(static_cast<std::int64_t>(worst));
}

Duration switch_cost(const State& state, const Gang& holder, const Gang& newcomer) {
  double worst = 0;
  for (const auto& [gpu, info] : state.gpus) {
    if ((newcomer.gpus & gpu_bit(gpu)) == 0) continue;
    const std::int64_t in = copied(missing_on(newcomer, gpu), newcomer.in_share);
    const std::int64_t out = copied(short_on(state, newcomer, gpu), holder.out_share);
    worst = std::max(worst, exchange_ns(info, out, in));
  }
  return kHandoff + Duration(static_cast<std::int64_t>(worst + holder.drain_ns));
}

Duration return_cost(const State& state, const Gang& newcomer) {
  double back = 0;
  for (const auto& [gpu, info] : state.gpus) {
    if ((newcomer.gpus & gpu_bit(gpu)) == 0) continue;
    // What left for the newcomer comes back, and as much of the newcomer has to leave for it.
    const std::int64_t out = copied(short_on(state, newcomer, gpu), newcomer.out_share);
    back = std::max(back, exchange_ns(info, out, out));
  }
  return kHandoff + Duration(static_cast<std::int64_t>(back + newcomer.drain_ns));
}

Duration gap_cost(const State& state, const Gang& holder, const Gang& newcomer) {
  const Duration there = switch_cost(state, holder, newcomer);
  const bool has_gaps = newcomer.profile.gaps().weight() >= 1;
  const bool is_known = has_gaps || newcomer.service > 10 * there;
  return has_gaps || !is_known ? there : there + return_cost(state, newcomer);
}

Duration quantum(const State& state, Duration switch_cost) {
  const double share = std::clamp(state.config.switch_share, 0.001, 1.0);
  const double factor = std::max(state.config.quantum_factor, (1 - share) / share);
  double scaled = static_cast<double>(switch_cost.count()) * factor;
  return std::max(state.config.min_quantum, Duration(static_cast<std::int64_t>(scaled)));
}

void learn(double& average, double sample) {
  average = average == 0 ? sample : average + (sample - average) / 8;
}

}  // namespace plexrl::nodemgr::policy
