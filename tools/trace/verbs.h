#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/trace/gap_report.h"
#include "tools/trace/model.h"
#include "tools/trace/summary.h"

/// The verbs of plexrl-trace: each prints on stdout and returns the exit status.
namespace plexrl::trace {

struct VerbOptions {
  bool json = false;
  std::optional<std::int64_t> from_ns, to_ns;  ///< from the trace's beginning
  int width = 0;                               ///< of the timeline; 0: the terminal's
  std::size_t top = 10;                        ///< of gaps
  std::string format;                          ///< of export
  std::string output;                          ///< of export and report; empty: stdout
  std::string job_at;                          ///< of why: JOB@TIME
};

int print_summary(const Model& model, const Summary& summary, const VerbOptions& options);
int print_timeline(const Model& model, const VerbOptions& options);
int print_swaps(const Model& model, const VerbOptions& options);
int print_gaps(const Model& model, const GapReport& report, const VerbOptions& options);
int print_why(const Model& model, const VerbOptions& options);
int print_diff(const Model& a, const Model& b, const VerbOptions& options);
int write_export(const Model& model, const VerbOptions& options);
int write_report(const Model& model, const VerbOptions& options);

/// Writes to the file that `options` names, else to stdout; says so on stderr when it can't.
int write_output(const std::string& bytes, const VerbOptions& options);

/// "node a, 12.3 s, simulated GPU": the line above each table.
std::string heading(const Model& model);

/// `at_ns` as a time from the trace's beginning.
std::string relative_time(const Model& model, std::int64_t at_ns);

}  // namespace plexrl::trace
