#include "tools/trace/nodes.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace plexrl::trace {
namespace {

using google::protobuf::FieldDescriptor;

std::string node_of(const RawTrace& trace) {
  for (const TraceRecord& record : trace.records) {
    if (!record.session().node().empty()) return record.session().node();
  }
  return "";
}

/// Wall time when the boot clock was 0; of several records the last is the best.
std::optional<std::int64_t> realtime_at_0(const RawTrace& trace) {
  std::optional<std::int64_t> found;
  for (const TraceRecord& record : trace.records) {
    if (!record.has_clock()) continue;
    found = record.clock().realtime_ns() - static_cast<std::int64_t>(record.at_ns());
  }
  return found;
}

/// GPUs that its records speak of: 0 to this - 1.
unsigned count_gpus(const RawTrace& trace) {
  unsigned count = 0;
  for (const TraceRecord& record : trace.records) {
    if (record.session().event() == SessionRecord::GPU) {
      count = std::max(count, record.session().gpu_index() + 1);
    }
    count = std::max<unsigned>(count, std::bit_width(record.lease().gpus_mask()));
  }
  return count;
}

struct Move {
  std::uint64_t later_ns = 0;
  unsigned gpus = 0;       ///< of the nodes before
  std::uint64_t node = 0;  ///< how many those are
};

/// By the names and types of trace.proto: moments are fixed64 (0: not known), durations are not.
void move(google::protobuf::Message& message, const Move& by) {
  const auto* const reflection = message.GetReflection();
  const auto* const type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    if (field->is_repeated()) continue;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (reflection->HasField(message, field))
        move(*reflection->MutableMessage(&message, field), by);
    } else if (field->name() == "gpu_index") {
      reflection->SetUInt32(&message, field, reflection->GetUInt32(message, field) + by.gpus);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
      const std::uint64_t value = reflection->GetUInt64(message, field);
      if (value == 0) continue;
      if (field->type() == FieldDescriptor::TYPE_FIXED64 && absl::EndsWith(field->name(), "_ns")) {
        reflection->SetUInt64(&message, field, value + by.later_ns);
      } else if (field->name() == "gpus_mask") {
        reflection->SetUInt64(&message, field, value << by.gpus);
      } else if (field->name() == "session") {
        constexpr int kNodeBit = 56;  // far above what a manager counts to
        reflection->SetUInt64(&message, field, value ^ by.node << kNodeBit);
      }
    }
  }
}

template <typename T>
void append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::move_iterator(from.begin()), std::move_iterator(from.end()));
}

void append(Model& to, Model from) {
  absl::StrAppend(&to.node, to.node.empty() ? "" : ", ", from.node);
  to.simulated |= from.simulated;
  to.start_ns = to.start_ns == 0 ? from.start_ns : std::min(to.start_ns, from.start_ns);
  to.end_ns = std::max(to.end_ns, from.end_ns);
  to.has_activity |= from.has_activity;
  to.has_paging |= from.has_paging;
  to.unknown_records += from.unknown_records;
  to.realtime_at_0 = from.realtime_at_0;  // the same for all, as they are moved
  for (Gpu& gpu : from.gpus) gpu.name = absl::StrCat(from.node, ": ", gpu.name);
  append(to.jobs, from.jobs);
  append(to.gangs, from.gangs);
  append(to.gpus, from.gpus);
  append(to.processes, from.processes);
  append(to.swaps, from.swaps);
  append(to.paging, from.paging);
  append(to.gaps, from.gaps);
  append(to.memory, from.memory);
  append(to.problems, from.problems);
  append(to.decisions, from.decisions);
}

template <typename T>
void sort_by_time(std::vector<T>& all) {
  std::stable_sort(all.begin(), all.end(),
                   [](const T& a, const T& b) { return a.at_ns < b.at_ns; });
}

}  // namespace

absl::StatusOr<std::vector<RawTrace>> read_nodes(const std::vector<std::string>& paths) {
  std::vector<RawTrace> traces;
  if (paths.size() == 1) {
    absl::StatusOr<RawTrace> trace = read_trace(paths);
    if (!trace.ok()) return trace.status();
    traces.push_back(*std::move(trace));
    return traces;
  }
  std::vector<std::pair<std::string, std::vector<std::string>>> nodes;
  for (const std::string& path : paths) {
    const absl::StatusOr<RawTrace> trace = read_trace({path});
    if (!trace.ok()) return trace.status();
    const std::string name = node_of(*trace);
    auto node = std::find_if(nodes.begin(), nodes.end(),
                             [&](const auto& one) { return one.first == name; });
    if (node == nodes.end() && !nodes.empty() && (name.empty() || nodes.back().first.empty())) {
      node = std::prev(nodes.end());
      if (node->first.empty()) node->first = name;
    }
    if (node == nodes.end()) node = nodes.insert(nodes.end(), {name, {}});
    node->second.push_back(path);
  }
  for (const auto& [name, its] : nodes) {
    absl::StatusOr<RawTrace> trace = read_trace(its);
    if (!trace.ok()) return trace.status();
    traces.push_back(*std::move(trace));
  }
  return traces;
}

absl::StatusOr<Model> merge_nodes(std::vector<RawTrace> nodes) {
  if (nodes.size() == 1) return build_model(nodes.front());
  std::vector<std::int64_t> began;
  for (const RawTrace& trace : nodes) {
    const std::optional<std::int64_t> at_0 = realtime_at_0(trace);
    if (!at_0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the trace of node '", node_of(trace),
          "' does not tell its wall time, so it can't be laid beside others: show it alone"));
    }
    began.push_back(*at_0);
  }
  Model merged;
  Move by;
  for (RawTrace& trace : nodes) {
    const std::int64_t first = *std::min_element(began.begin(), began.end());
    by.later_ns = static_cast<std::uint64_t>(began[by.node]) - static_cast<std::uint64_t>(first);
    const unsigned gpus = count_gpus(trace);
    constexpr unsigned kMostGpus = 64;
    if (by.gpus + gpus > kMostGpus) {
      return absl::FailedPreconditionError("more than 64 GPUs: show fewer nodes at a time");
    }
    for (TraceRecord& record : trace.records) move(record, by);
    append(merged, build_model(trace));
    by.gpus += gpus;
    ++by.node;
  }
  sort_by_time(merged.swaps);
  sort_by_time(merged.paging);
  sort_by_time(merged.memory);
  sort_by_time(merged.problems);
  sort_by_time(merged.decisions);
  return merged;
}

}  // namespace plexrl::trace
