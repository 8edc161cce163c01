#pragma once

#include <string>
#include <vector>

#include "tools/trace/report_json.h"

/// Two runs beside each other.
namespace plexrl::trace {

/// Jobs of one name are paired in the order in which they began; one side is nullptr where the
/// other run has no such job. Pointers are into the summaries.
struct JobPair {
  std::string name;
  const JobSummary* a = nullptr;
  const JobSummary* b = nullptr;
};
std::vector<JobPair> pair_jobs(const Summary& a, const Summary& b);

/// What is compared of a job, in the order shown: figures of `summary --json`, and `saved_bytes`,
/// the sum of its `saved`.
struct JobFigure {
  const char* key;  ///< its end is the unit
  double value;     ///< 0 also where there is none
};
/// Zeros for nullptr.
std::vector<JobFigure> job_figures(const JobSummary* job);

/// `diff`: {node, simulated, span_s}[2], jobs[]{name, a{}, b{}} and gpus[]{index, a{}, b{}}, the
/// inner objects as in `summary --json`, null where a run lacks the job or GPU.
Json diff_json(const Model& a, const Model& b);

}  // namespace plexrl::trace
