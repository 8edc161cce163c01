#pragma once

#include <nlohmann/json.hpp>

#include "tools/trace/gap_report.h"
#include "tools/trace/model.h"
#include "tools/trace/summary.h"

/// The `--json` objects (docs/contract.md, rows "every --json" and "trace JSON").
namespace plexrl::trace {

using Json = nlohmann::ordered_json;

Json summary_json(const Model& model, const Summary& summary);
Json swaps_json(const Model& model);
Json gaps_json(const Model& model, const GapReport& report);
Json timeline_json(const Model& model, std::int64_t from_ns, std::int64_t to_ns);
/// Everything the model has: `export --format json`.
Json export_json(const Model& model);

/// Parts that several of those objects share. `head_json`: schema, simulated, node. `moment_json`:
/// `at` (wall time; null where the trace has no anchor) and `mono_ns`.
Json head_json(const Model& model);
Json moment_json(const Model& model, std::int64_t at_ns);
Json job_json(const JobSummary& job);
Json gpu_json(const GpuSummary& gpu);
Json swap_json(const Model& model, const Swap& swap);
Json decision_json(const Model& model, const Decision& decision);
Json problem_list(const Model& model);

/// An epoch as users see it: "3.17" (generation.counter); empty for none.
std::string epoch_text(std::uint64_t generation, std::uint64_t counter);

/// "evict", "load" or "prefetch"; "unknown" for a kind that this version doesn't know.
std::string paging_name(const PagingRecord& record);

/// Indices of the GPUs in a mask.
std::vector<int> gpus_in(std::uint64_t mask);

}  // namespace plexrl::trace
