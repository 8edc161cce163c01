#include "tools/trace/report_json.h"

#include <algorithm>

namespace plexrl::trace {
namespace {

constexpr int kSchema = 1;

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json bytes_saved(const SwitchRecord& record) {
  return {{"untouched_bytes", record.untouched_bytes()},
          {"repeated_bytes", record.repeated_bytes()},
          {"unchanged_bytes", record.unchanged_bytes()},
          {"shared_bytes", record.shared_bytes()}};
}

Json gap_json(const Model& model, const Gap& gap) {
  Json object = moment_json(model, gap.start_ns);
  object["job"] = gap.job_id;
  object["name"] = model.job_name(gap.job_id);
  object["gang"] = std::to_string(gap.gang);
  object["length_ns"] = gap.length_ns();
  object["cause"] = text_or_null(gap.cause);
  object["causes"] = Json::array();
  for (const CauseTime& one : gap.causes) {
    object["causes"].push_back(
        {{"cause", one.cause}, {"detail", text_or_null(one.detail)}, {"time_ns", one.time_ns}});
  }
  object["lent"] = gap.lent;
  return object;
}

Json slice_json(const Model& model, const Gang& gang, const Slice& slice) {
  return {{"job", gang.job_id},
          {"name", model.job_name(gang.job_id)},
          {"gang", std::to_string(gang.id)},
          {"state", slice.state},
          {"start_mono_ns", slice.start_ns},
          {"end_mono_ns", slice.end_ns},
          {"gpus", gpus_in(slice.gpus_mask)},
          {"epoch", text_or_null(epoch_text(slice.generation, slice.counter))},
          {"reason", text_or_null(slice.reason)}};
}

Json swap_list(const Model& model) {
  Json list = Json::array();
  for (const Swap& swap : model.swaps) list.push_back(swap_json(model, swap));
  return list;
}

Json paging_list(const Model& model) {
  Json list = Json::array();
  for (const auto& [at_ns, record] : model.paging) {
    list.push_back(
        {{"kind", paging_name(record)},
         {"job", record.job_id()},
         {"gang", std::to_string(record.gang())},
         {"session", std::to_string(record.session())},
         {"pid", record.pid()},
         {"gpus", gpus_in(record.gpus_mask())},
         {"epoch", text_or_null(epoch_text(record.epoch().generation(), record.epoch().counter()))},
         {"outcome", record.outcome()},
         {"asked_mono_ns", record.asked_ns()},
         {"start_mono_ns", record.start_ns()},
         {"end_mono_ns", record.end_ns() == 0 ? Json() : Json(record.end_ns())},
         {"told_mono_ns", at_ns},
         {"out_bytes", record.out_bytes()},
         {"in_bytes", record.in_bytes()},
         {"untouched_bytes", record.untouched_bytes()},
         {"repeated_bytes", record.repeated_bytes()},
         {"unchanged_bytes", record.unchanged_bytes()},
         {"disk_bytes", record.disk_bytes()},
         {"disk_ns", record.disk_ns()}});
  }
  return list;
}

Json process_list(const Model& model) {
  Json list = Json::array();
  for (const Process& process : model.processes) {
    Json gangs = Json::array();
    for (const auto& [since_ns, gang] : process.gangs) {
      gangs.push_back({{"gang", std::to_string(gang)}, {"since_mono_ns", since_ns}});
    }
    list.push_back({{"pid", process.pid},
                    {"session", std::to_string(process.session)},
                    {"job", process.job_id},
                    {"gang", std::to_string(process.gang)},
                    {"gangs", gangs},
                    {"start_mono_ns", process.start_ns},
                    {"end_mono_ns", process.end_ns}});
  }
  return list;
}

Json memory_list(const Model& model) {
  Json list = Json::array();
  for (const MemoryPoint& point : model.memory) {
    list.push_back({{"mono_ns", point.at_ns},
                    {"job", point.job_id},
                    {"gpu", point.gpu},
                    {"hbm_bytes", point.resident_bytes},
                    {"host_bytes", point.host_bytes},
                    {"disk_bytes", point.disk_bytes},
                    {"unbacked_bytes", point.unbacked_bytes},
                    {"unpageable_bytes", point.unpageable_bytes}});
  }
  return list;
}

}  // namespace

std::string epoch_text(std::uint64_t generation, std::uint64_t counter) {
  if (generation == 0 && counter == 0) return "";
  return std::to_string(generation) + "." + std::to_string(counter);
}

std::string paging_name(const PagingRecord& record) {
  switch (record.kind()) {
    case PagingRecord::EVICT:
      return "evict";
    case PagingRecord::LOAD:
      return "load";
    case PagingRecord::PREFETCH:
      return "prefetch";
    default:
      return "unknown";
  }
}

std::vector<int> gpus_in(std::uint64_t mask) {
  std::vector<int> gpus;
  for (; mask != 0; mask &= mask - 1) gpus.push_back(__builtin_ctzll(mask));
  return gpus;
}

Json head_json(const Model& model) {
  return {{"schema", kSchema}, {"simulated", model.simulated}, {"node", text_or_null(model.node)}};
}

Json moment_json(const Model& model, std::int64_t at_ns) {
  const auto wall = model.wall_time(at_ns);
  return {{"at", wall ? Json(*wall) : Json()}, {"mono_ns", at_ns}};
}

Json job_json(const JobSummary& job) {
  Json idle_by = Json::object();
  for (const auto& [cause, ns] : job.idle_by_ns) idle_by[cause] = seconds(ns);
  const double slowdown = job.slowdown_ratio();
  return {{"id", job.id},
          {"name", job.name},
          {"team", text_or_null(job.team)},
          {"user", text_or_null(job.user)},
          {"wall_s", seconds(job.wall_ns)},
          {"queued_s", seconds(job.queued_ns)},
          {"running_s", seconds(job.running_ns)},
          {"waiting_s", seconds(job.waiting_ns)},
          {"paging_s", seconds(job.paging_ns)},
          {"draining_s", seconds(job.draining_ns)},
          {"paused_s", seconds(job.paused_ns)},
          {"held_s", seconds(job.held_ns)},
          {"busy_s", seconds(job.busy_ns)},
          {"idle_s", seconds(job.idle_ns)},
          {"idle_by", idle_by},
          {"duty_ratio", job.duty_ratio()},
          {"slowdown_ratio", slowdown > 0 ? Json(slowdown) : Json()},
          {"out_bytes", job.out_bytes},
          {"in_bytes", job.in_bytes},
          {"saved",
           {{"untouched_bytes", job.saved.untouched_bytes},
            {"repeated_bytes", job.saved.repeated_bytes},
            {"unchanged_bytes", job.saved.unchanged_bytes},
            {"shared_bytes", job.saved.shared_bytes}}},
          {"swaps_out", job.swaps_out},
          {"swaps_in", job.swaps_in}};
}

Json gpu_json(const GpuSummary& gpu) {
  return {{"index", gpu.gpu.index},
          {"uuid", text_or_null(gpu.gpu.uuid)},
          {"name", text_or_null(gpu.gpu.name)},
          {"simulated", gpu.gpu.simulated},
          {"running_s", seconds(gpu.running_ns)},
          {"held_s", seconds(gpu.held_ns)},
          {"busy_s", seconds(gpu.busy_ns)},
          {"switching_s", seconds(gpu.switching_ns)},
          {"duty_ratio", gpu.duty_ratio},
          {"swaps", gpu.swaps}};
}

Json swap_json(const Model& model, const Swap& swap) {
  const SwitchRecord& record = swap.record;
  Json object = moment_json(model, swap.at_ns);
  object["gpu"] = record.gpu_index();
  object["out_job"] = text_or_null(record.out_job_id());
  object["in_job"] = text_or_null(record.in_job_id());
  object["reason"] = record.reason();
  object["needed_bytes"] = record.needed_bytes();
  object["moved_bytes"] = record.out_bytes() + record.in_bytes();
  object["out_bytes"] = record.out_bytes();
  object["in_bytes"] = record.in_bytes();
  object["out_disk_bytes"] = record.out_disk_bytes();
  object["in_disk_bytes"] = record.in_disk_bytes();
  object["saved"] = bytes_saved(record);
  const auto decided_ns = static_cast<std::int64_t>(record.decided_at_ns());
  object["stages"] = {{"total_ns", decided_ns == 0 ? 0 : swap.at_ns - decided_ns},
                      {"drain_ns", record.drain_ns()},
                      {"evict_ns", record.evict_ns()},
                      {"evict_copy_ns", record.evict_copy_ns()},
                      {"evict_hash_ns", record.evict_hash_ns()},
                      {"evict_disk_ns", record.evict_disk_ns()},
                      {"evict_unmap_ns", record.evict_unmap_ns()},
                      {"load_ns", record.load_ns()},
                      {"load_create_ns", record.load_create_ns()},
                      {"load_map_ns", record.load_map_ns()},
                      {"load_copy_ns", record.load_copy_ns()},
                      {"load_disk_ns", record.load_disk_ns()},
                      {"load_blocked_ns", record.load_blocked_ns()}};
  object["link_ratio"] = record.link_ratio() > 0 ? Json(record.link_ratio()) : Json();
  return object;
}

Json decision_json(const Model& model, const Decision& decision) {
  Json object = moment_json(model, decision.at_ns);
  object["kind"] = decision.record.kind();
  object["job"] = text_or_null(decision.record.job_id());
  object["gang"] = std::to_string(decision.record.gang());
  object["gpus"] = gpus_in(decision.record.gpus_mask());
  object["reason"] = decision.record.reason();
  object["figures"] = Json::object();
  for (const Figure& figure : decision.record.figures()) {
    object["figures"][figure.name()] = figure.value();
  }
  return object;
}

Json problem_list(const Model& model) {
  Json list = Json::array();
  for (const Problem& problem : model.problems) {
    Json line = moment_json(model, problem.at_ns);
    line["job"] = text_or_null(problem.record.job_id());
    line["what"] = problem.record.what();
    line["text"] = problem.record.text();
    list.push_back(line);
  }
  return list;
}

Json summary_json(const Model& model, const Summary& summary) {
  Json object = head_json(model);
  Json& inner = object["summary"];
  inner["span_s"] = seconds(summary.span_ns);
  inner["has_activity"] = model.has_activity;
  inner["jobs"] = Json::array();
  for (const JobSummary& job : summary.jobs) inner["jobs"].push_back(job_json(job));
  inner["gpus"] = Json::array();
  for (const GpuSummary& gpu : summary.gpus) inner["gpus"].push_back(gpu_json(gpu));
  inner["problems"] = problem_list(model);
  inner["unknown_records"] = model.unknown_records;
  return object;
}

Json swaps_json(const Model& model) {
  Json object = head_json(model);
  object["swaps"] = swap_list(model);
  return object;
}

Json gaps_json(const Model& model, const GapReport& report) {
  Json object = head_json(model);
  object["gaps"] = Json::array();
  for (const Gap& gap : report.longest) object["gaps"].push_back(gap_json(model, gap));
  object["by_cause"] = Json::array();
  for (const CauseTotal& sum : report.causes) {
    object["by_cause"].push_back({{"cause", sum.cause},
                                  {"detail", text_or_null(sum.detail)},
                                  {"gaps", sum.gaps},
                                  {"total_ns", sum.total_ns}});
  }
  object["histogram"] = Json::array();
  for (const GapBucket& bucket : report.histogram) {
    object["histogram"].push_back({{"from_ns", bucket.from_ns},
                                   {"to_ns", bucket.to_ns},
                                   {"count", bucket.count},
                                   {"total_ns", bucket.total_ns}});
  }
  return object;
}

Json timeline_json(const Model& model, std::int64_t from_ns, std::int64_t to_ns) {
  Json object = head_json(model);
  object["from_mono_ns"] = from_ns;
  object["to_mono_ns"] = to_ns;
  object["slices"] = Json::array();
  for (const Gang& gang : model.gangs) {
    for (const Slice& slice : gang.slices) {
      if (slice.end_ns <= from_ns || slice.start_ns >= to_ns) continue;
      object["slices"].push_back(slice_json(model, gang, slice));
    }
  }
  return object;
}

Json export_json(const Model& model) {
  Json object = summary_json(model, summarize(model));
  object["start_mono_ns"] = model.start_ns;
  object["end_mono_ns"] = model.end_ns;
  object["processes"] = process_list(model);
  object["slices"] = timeline_json(model, INT64_MIN, INT64_MAX)["slices"];
  object["swaps"] = swap_list(model);
  object["paging"] = paging_list(model);
  object["gaps"] = Json::array();
  for (const Gap& gap : model.gaps) object["gaps"].push_back(gap_json(model, gap));
  object["memory"] = memory_list(model);
  object["decisions"] = Json::array();
  for (const Decision& decision : model.decisions) {
    object["decisions"].push_back(decision_json(model, decision));
  }
  return object;
}

}  // namespace plexrl::trace
