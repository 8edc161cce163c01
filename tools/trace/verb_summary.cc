#include <iostream>

#include "tools/cli/exit_status.h"
#include "tools/cli/format.h"
#include "tools/cli/table.h"
#include "tools/trace/report_json.h"
#include "tools/trace/verbs.h"

namespace plexrl::trace {
namespace {

using cli::Table;
constexpr auto kRight = Table::Align::kRight;

std::string time(std::int64_t ns) { return cli::format_ns(static_cast<double>(ns)); }

std::string idle_causes(const JobSummary& job) {
  std::string text;
  for (const auto& [cause, ns] : job.idle_by_ns) {
    text += (text.empty() ? "" : ", ") + cause + " " + time(ns);
  }
  return text;
}

void print_jobs(const Summary& summary) {
  Table table({{"JOB"},
               {"TIME", kRight},
               {"QUEUED", kRight},
               {"BUSY", kRight},
               {"IDLE", kRight},
               {"WAITING", kRight},
               {"PAGING", kRight},
               {"DUTY", kRight},
               {"HELD", kRight},
               {"SLOWDOWN", kRight},
               {"OUT", kRight},
               {"IN", kRight},
               {"SAVED", kRight}});
  for (const JobSummary& job : summary.jobs) {
    const double slowdown = job.slowdown_ratio();
    table.add_row({job.name, time(job.wall_ns), time(job.queued_ns), time(job.busy_ns),
                   time(job.idle_ns), time(job.waiting_ns), time(job.paging_ns),
                   cli::format_ratio(job.duty_ratio()), time(job.held_ns),
                   slowdown > 0 ? cli::format_factor(slowdown) : "",
                   cli::format_bytes(static_cast<double>(job.out_bytes)),
                   cli::format_bytes(static_cast<double>(job.in_bytes)),
                   cli::format_bytes(static_cast<double>(job.saved.total()))});
  }
  std::cout << table.str();
}

void print_gpus(const Summary& summary) {
  Table table({{"GPU"},
               {"NAME"},
               {"BUSY", kRight},
               {"DUTY", kRight},
               {"HELD", kRight},
               {"SWITCHING", kRight},
               {"SWAPS", kRight}});
  for (const GpuSummary& gpu : summary.gpus) {
    table.add_row({std::to_string(gpu.gpu.index),
                   gpu.gpu.name + (gpu.gpu.simulated ? " (simulated)" : ""), time(gpu.busy_ns),
                   cli::format_ratio(gpu.duty_ratio), time(gpu.held_ns), time(gpu.switching_ns),
                   std::to_string(gpu.swaps)});
  }
  std::cout << "\n" << table.str();
}

}  // namespace

std::string heading(const Model& model) {
  return "node " + cli::printable(model.node.empty() ? "?" : model.node) + ", " +
         time(model.end_ns - model.start_ns) + " traced" +
         (model.simulated ? ", simulated GPU" : "") + "\n";
}

std::string relative_time(const Model& model, std::int64_t at_ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6f s", static_cast<double>(at_ns - model.start_ns) / 1e9);
  return text;
}

int print_summary(const Model& model, const Summary& summary, const VerbOptions& options) {
  if (options.json) {
    std::cout << summary_json(model, summary).dump() << "\n";
    return cli::kDone;
  }
  std::cout << heading(model) << "\n";
  print_jobs(summary);
  print_gpus(summary);
  if (!model.has_activity) {
    std::cout
        << "\nthis trace does not tell when work was outstanding: BUSY and DUTY count all time "
           "with a running lease\n";
  }
  bool first = true;
  for (const JobSummary& job : summary.jobs) {
    const std::string causes = idle_causes(job);
    if (causes.empty()) continue;
    std::cout << (first ? "\nidle: " : "      ") << cli::printable(job.name + ": " + causes)
              << "\n";
    first = false;
  }
  for (const Problem& problem : model.problems) {
    std::cout << "problem at " << relative_time(model, problem.at_ns) << ": "
              << cli::printable(problem.record.what() + ": " + problem.record.text()) << "\n";
  }
  return cli::kDone;
}

}  // namespace plexrl::trace
