#include <cstdio>
#include <iostream>

#include "tools/cli/exit_status.h"
#include "tools/cli/format.h"
#include "tools/cli/table.h"
#include "tools/trace/diff.h"
#include "tools/trace/verbs.h"

namespace plexrl::trace {
namespace {

using cli::Table;
constexpr auto kRight = Table::Align::kRight;

std::string value_text(const std::string& key, double value) {
  return key == "slowdown_ratio" && value <= 0 ? "" : cli::format_figure(key, value).value;
}

// Of ratios the difference in points, of all else the relative one.
std::string change_text(const std::string& key, double a, double b) {
  char text[32];
  if (key.ends_with("_ratio") && key != "slowdown_ratio") {
    std::snprintf(text, sizeof text, "%+.1f points", (b - a) * 100);
  } else if (a == b) {
    return "same";
  } else if (a == 0) {
    return "";
  } else {
    std::snprintf(text, sizeof text, "%+.1f %%", (b / a - 1) * 100);
  }
  return text;
}

void print_pair(const JobPair& pair, Table& table) {
  std::string name = cli::printable(pair.name);
  const std::vector<JobFigure> in_a = job_figures(pair.a), in_b = job_figures(pair.b);
  for (std::size_t i = 0; i < in_a.size(); ++i) {
    const auto [key, a] = in_a[i];
    const double b = in_b[i].value;
    if (a == 0 && b == 0) continue;
    table.add_row({name, key, pair.a == nullptr ? "" : value_text(key, a),
                   pair.b == nullptr ? "" : value_text(key, b),
                   pair.a == nullptr || pair.b == nullptr ? "" : change_text(key, a, b)});
    name.assign(1, ' ');
  }
}

void print_gpus(const Summary& a, const Summary& b, Table& table) {
  for (const GpuSummary& gpu : a.gpus) {
    for (const GpuSummary& other : b.gpus) {
      if (gpu.gpu.index != other.gpu.index) continue;
      table.add_row({"GPU " + std::to_string(gpu.gpu.index), "duty_ratio",
                     value_text("duty_ratio", gpu.duty_ratio),
                     value_text("duty_ratio", other.duty_ratio),
                     change_text("duty_ratio", gpu.duty_ratio, other.duty_ratio)});
    }
  }
}

}  // namespace

int print_diff(const Model& a, const Model& b, const VerbOptions& options) {
  if (options.json) {
    std::cout << diff_json(a, b).dump() << "\n";
    return cli::kDone;
  }
  const Summary first = summarize(a), second = summarize(b);
  std::cout << "A: " << heading(a) << "B: " << heading(b) << "\n";
  Table table({{"JOB"}, {"FIGURE"}, {"A", kRight}, {"B", kRight}, {"CHANGE", kRight}});
  for (const JobPair& pair : pair_jobs(first, second)) print_pair(pair, table);
  print_gpus(first, second, table);
  std::cout << (table.empty() ? "neither run has a job\n" : table.str());
  return cli::kDone;
}

}  // namespace plexrl::trace
