#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace plexrl::sim {

/// One figure of a report (docs/contract.md, "bench JSON" and "plexrl-sim").
struct Row {
  std::string name;
  std::optional<double> value;
  std::string unit;
  std::string against;  ///< what it is measured against
  std::optional<double> goal;
  bool higher_is_better = false;
  std::optional<double> best_known;  ///< of a related system, on its own trace or testbed
  std::optional<double> bound;       ///< no scheduler can be better, on these inputs
  std::string bound_name;
  int rounds = 0;     ///< seeds
  double spread = 0;  ///< standard deviation over seeds
  std::vector<std::string> assumptions;
  std::string error;

  std::optional<bool> met() const;
};

/// Mean and standard deviation.
struct Spread {
  double mean = 0;
  double deviation = 0;
};
Spread spread_of(const std::vector<double>& values);

/// The row with mean, spread and rounds of these values.
Row row_of(std::string name, const std::vector<double>& values, std::string unit);

struct Report {
  std::string name;
  std::string command;
  std::uint64_t first_seed = 1;
  std::vector<Row> rows;
  std::vector<std::string> origins;  ///< where each input comes from
  std::vector<std::string> notes;
  std::uint64_t events = 0;
  double wall_s = 0;
};

nlohmann::json to_json(const Report& report);
std::string to_text(const Report& report);
std::string to_csv(const Report& report);

}  // namespace plexrl::sim
