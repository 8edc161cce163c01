#include <algorithm>
#include <iostream>
#include <string>

#include "tools/cli/exit_status.h"
#include "tools/cli/format.h"
#include "tools/cli/table.h"
#include "tools/trace/report_json.h"
#include "tools/trace/verbs.h"

namespace plexrl::trace {
namespace {

constexpr int kBarColumns = 40;

/// The largest one with its detail.
std::string cause_text(const Gap& gap) {
  const CauseTime first = causes_of(gap).front();
  return first.detail.empty() ? first.cause : first.cause + " " + first.detail;
}

void print_longest(const Model& model, const std::vector<Gap>& gaps) {
  using cli::Table;
  Table table({{"AT", Table::Align::kRight},
               {"JOB"},
               {"GANG", Table::Align::kRight},
               {"LENGTH", Table::Align::kRight},
               {"CAUSE"},
               {"LENT"}});
  for (const Gap& gap : gaps) {
    table.add_row({relative_time(model, gap.start_ns), model.job_name(gap.job_id),
                   std::to_string(gap.gang), cli::format_ns(static_cast<double>(gap.length_ns())),
                   cause_text(gap), gap.lent ? "yes" : "no"});
  }
  std::cout << table.str();
}

void print_causes(const std::vector<CauseTotal>& causes) {
  using cli::Table;
  Table table(
      {{"CAUSE"}, {"DETAIL"}, {"GAPS", Table::Align::kRight}, {"IN ALL", Table::Align::kRight}});
  for (const CauseTotal& sum : causes) {
    table.add_row({sum.cause, sum.detail, std::to_string(sum.gaps),
                   cli::format_ns(static_cast<double>(sum.total_ns))});
  }
  std::cout << "\n" << table.str();
}

void print_histogram(const std::vector<GapBucket>& histogram) {
  using cli::Table;
  Table table({{"LENGTH", Table::Align::kRight},
               {"GAPS", Table::Align::kRight},
               {"IN ALL", Table::Align::kRight},
               {""}});
  std::uint64_t most = 1;
  for (const GapBucket& bucket : histogram) most = std::max(most, bucket.count);
  for (const GapBucket& bucket : histogram) {
    const auto bar = static_cast<std::size_t>((bucket.count * kBarColumns + most - 1) / most);
    table.add_row({"< " + cli::format_ns(static_cast<double>(bucket.to_ns)),
                   std::to_string(bucket.count),
                   cli::format_ns(static_cast<double>(bucket.total_ns)),
                   bar == 0 ? " " : std::string(bar, '#')});
  }
  std::cout << "\n" << table.str();
}

}  // namespace

int print_gaps(const Model& model, const GapReport& report, const VerbOptions& options) {
  if (options.json) {
    std::cout << gaps_json(model, report).dump() << "\n";
    return cli::kDone;
  }
  std::cout << heading(model) << "\n";
  if (report.longest.empty()) {
    std::cout << "no gaps\n";
    return cli::kDone;
  }
  print_longest(model, report.longest);
  auto causes = report.causes;
  if (causes.size() > options.top) causes.resize(options.top);
  print_causes(causes);
  print_histogram(report.histogram);
  return cli::kDone;
}

}  // namespace plexrl::trace
