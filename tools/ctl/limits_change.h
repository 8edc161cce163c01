#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "tools/ctl/admin_client.h"

namespace plexrl::ctl {

/// The options of `limits` that change something. Sizes as a user writes them; "": not given.
struct LimitsChange {
  std::string team;
  bool each_job = false;
  std::string hbm, host, disk;

  void declare(CLI::App& command);
  /// Adds to the request what shall be changed, if anything. Errors are wrong usage.
  [[nodiscard]] absl::Status add_to(Json& request) const;
};

}  // namespace plexrl::ctl
