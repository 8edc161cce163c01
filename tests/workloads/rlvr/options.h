#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace plexrl::workloads::rlvr {

/// The command line; main.cc says what each means.
struct Options {
  std::string name = "rlvr";
  int steps = 16;
  std::uint64_t seed = 1;
  std::size_t state_bytes = 64 << 20;
  double rollout_ms = 0;
  double tool_ms = 0;
  double train_ms = 0;
  int device = 0;
  int ranks = 1;
  bool disaggregated = false;
  std::string until;
  bool times = false;
};

inline std::uint64_t to_ns(double ms) { return static_cast<std::uint64_t>(ms * 1e6); }

}  // namespace plexrl::workloads::rlvr
