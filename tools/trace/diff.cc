#include "tools/trace/diff.h"

#include <algorithm>
#include <map>
#include <set>

namespace plexrl::trace {
namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

Json run_json(const Model& model, const Summary& summary) {
  Json run = head_json(model);
  run.erase("schema");
  run["span_s"] = seconds(summary.span_ns);
  return run;
}

const GpuSummary* find_gpu(const Summary& summary, std::uint32_t index) {
  for (const GpuSummary& gpu : summary.gpus) {
    if (gpu.gpu.index == index) return &gpu;
  }
  return nullptr;
}

}  // namespace

std::vector<JobPair> pair_jobs(const Summary& a, const Summary& b) {
  std::vector<JobPair> pairs;
  for (const JobSummary& job : a.jobs) pairs.push_back({job.name, &job, nullptr});
  for (const JobSummary& job : b.jobs) {
    const auto free = std::find_if(pairs.begin(), pairs.end(), [&](const JobPair& pair) {
      return pair.name == job.name && pair.b == nullptr;
    });
    if (free != pairs.end()) {
      free->b = &job;
    } else {
      pairs.push_back({job.name, nullptr, &job});
    }
  }
  return pairs;
}

std::vector<JobFigure> job_figures(const JobSummary* job) {
  constexpr const char* kKeys[] = {
      "wall_s",     "queued_s",       "busy_s",    "idle_s",   "waiting_s",   "paging_s", "held_s",
      "duty_ratio", "slowdown_ratio", "out_bytes", "in_bytes", "saved_bytes", "swaps_out"};
  Json all = Json::object();
  if (job != nullptr) {
    all = job_json(*job);
    all["saved_bytes"] = job->saved.total();
  }
  std::vector<JobFigure> figures;
  for (const char* key : kKeys) {
    const bool is_known = job != nullptr && !all.at(key).is_null();
    figures.push_back({key, is_known ? all.at(key).get<double>() : 0});
  }
  return figures;
}

Json diff_json(const Model& a, const Model& b) {
  const Summary first = summarize(a), second = summarize(b);
  Json object = head_json(a);
  object["simulated"] = a.simulated || b.simulated;
  Json& diff = object["diff"];
  diff["a"] = run_json(a, first);
  diff["b"] = run_json(b, second);
  diff["jobs"] = Json::array();
  for (const JobPair& pair : pair_jobs(first, second)) {
    diff["jobs"].push_back({{"name", pair.name},
                            {"a", pair.a == nullptr ? Json() : job_json(*pair.a)},
                            {"b", pair.b == nullptr ? Json() : job_json(*pair.b)}});
  }
  std::set<std::uint32_t> indices;
  for (const Summary* summary : {&first, &second}) {
    for (const GpuSummary& gpu : summary->gpus) indices.insert(gpu.gpu.index);
  }
  diff["gpus"] = Json::array();
  for (const std::uint32_t index : indices) {
    const GpuSummary* in_a = find_gpu(first, index);
    const GpuSummary* in_b = find_gpu(second, index);
    diff["gpus"].push_back({{"index", index},
                            {"a", in_a == nullptr ? Json() : gpu_json(*in_a)},
                            {"b", in_b == nullptr ? Json() : gpu_json(*in_b)}});
  }
  return object;
}

}  // namespace plexrl::trace
