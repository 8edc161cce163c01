#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/sim/rows.h"

namespace plexrl::sim {

struct ReproduceOptions {
  std::string data;  ///< folder with recorded data of others; empty: none
  int seeds = 20;
  std::uint64_t first_seed = 1;
  /// Told what is done, now and then.
  std::function<void(const std::string&)> progress;

  void say(const std::string& what) const {
    if (progress) progress(what);
  }
};

struct Reproduction {
  const char* name;
  const char* help;
  absl::StatusOr<Report> (*run)(const ReproduceOptions& options);
};

/// All of them, by name as in docs/contract.md.
const std::vector<Reproduction>& reproductions();

}  // namespace plexrl::sim
