#include "tools/sim/rows.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/cli/format.h"
#include "tools/cli/table.h"

namespace plexrl::sim {
namespace {

using Json = nlohmann::json;

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

std::string digits(double value) {
  char text[40];
  std::snprintf(text, sizeof text, std::abs(value) >= 1000 ? "%.0f" : "%.4g", value);
  return text;
}
std::string digits(const std::optional<double>& value) { return value ? digits(*value) : ""; }

}  // namespace

std::optional<bool> Row::met() const {
  if (!goal) return std::nullopt;
  if (!value) return false;
  return higher_is_better ? *value >= *goal : *value <= *goal;
}

Spread spread_of(const std::vector<double>& values) {
  Spread spread;
  if (values.empty()) return spread;
  const auto n = static_cast<double>(values.size());
  for (double value : values) spread.mean += value / n;
  double squares = 0;
  for (double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.deviation = values.size() > 1 ? std::sqrt(squares / (n - 1)) : 0;
  return spread;
}

Row row_of(std::string name, const std::vector<double>& values, std::string unit) {
  Row row;
  row.name = std::move(name);
  row.unit = std::move(unit);
  row.rounds = static_cast<int>(values.size());
  Spread spread = spread_of(values);
  if (!values.empty()) row.value = spread.mean;
  row.spread = spread.deviation;
  return row;
}

Json to_json(const Report& report) {
  Json rows = Json::array();
  for (const Row& row : report.rows) {
    Json one = {{"name", row.name},
                {"value", or_null(row.value)},
                {"unit", row.unit},
                {"against", row.against},
                {"goal", or_null(row.goal)},
                {"better", row.higher_is_better ? "higher" : "lower"},
                {"met", or_null(row.met())},
                {"simulated", true},
                {"rounds", row.rounds},
                {"spread", row.spread},
                {"best_known", or_null(row.best_known)},
                {"bound", or_null(row.bound)},
                {"bound_name", row.bound_name},
                {"assumptions", row.assumptions}};
    if (!row.error.empty()) one["error"] = row.error;
    rows.push_back(std::move(one));
  }
  return {{"schema", 1},
          {"simulated", true},
          {"node", nullptr},
          {"name", report.name},
          {"command", report.command},
          {"first_seed", report.first_seed},
          {"rows", std::move(rows)},
          {"origins", report.origins},
          {"notes", report.notes},
          {"events", report.events},
          {"wall_s", report.wall_s},
          {"events_per_s",
           report.wall_s > 0 ? static_cast<double>(report.events) / report.wall_s : 0.0}};
}

std::string to_text(const Report& report) {
  using Align = cli::Table::Align;
  cli::Table table({{"what (simulated)", Align::kLeft},
                    {"value", Align::kRight},
                    {"± sd", Align::kRight},
                    {"unit", Align::kLeft},
                    {"goal", Align::kRight},
                    {"met", Align::kLeft},
                    {"best known", Align::kRight},
                    {"bound", Align::kRight},
                    {"seeds", Align::kRight}});
  for (const Row& row : report.rows) {
    std::string met = row.met() ? (*row.met() ? "yes" : "no") : "";
    table.add_row({row.name, row.error.empty() ? digits(row.value) : row.error,
                   row.rounds > 1 ? digits(row.spread) : "", row.unit, digits(row.goal), met,
                   digits(row.best_known), digits(row.bound), std::to_string(row.rounds)});
  }
  std::string text = table.str();
  std::vector<std::string> said;
  auto list = [&](const char* title, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    text += std::string("\n") + title + "\n";
    for (const std::string& line : lines) text += "  - " + line + "\n";
  };
  std::vector<std::string> assumptions;
  for (const Row& row : report.rows) {
    for (const std::string& one : row.assumptions) assumptions.push_back(row.name + ": " + one);
    if (row.bound && !row.bound_name.empty()) {
      assumptions.push_back(row.name + ": bound is " + row.bound_name);
    }
  }
  list("Assumptions and bounds", assumptions);
  list("Where inputs come from", report.origins);
  list("Notes", report.notes);
  if (report.wall_s > 0) {
    text += "\n" + std::to_string(report.events) + " events, " +
            digits(static_cast<double>(report.events) / report.wall_s) + " a second\n";
  }
  return text;
}

std::string to_csv(const Report& report) {
  std::string text =
      "name,value,spread,unit,against,goal,better,met,best_known,bound,rounds,simulated\n";
  for (const Row& row : report.rows) {
    std::string met = row.met() ? (*row.met() ? "true" : "false") : "";
    text += cli::csv_cell(row.name) + "," + digits(row.value) + "," + digits(row.spread) + "," +
            cli::csv_cell(row.unit) + "," + cli::csv_cell(row.against) + "," + digits(row.goal) +
            "," + (row.higher_is_better ? "higher" : "lower") + "," + met + "," +
            digits(row.best_known) + "," + digits(row.bound) + "," + std::to_string(row.rounds) +
            ",true\n";
  }
  return text;
}

}  // namespace plexrl::sim
