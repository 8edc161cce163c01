#include "tools/trace/timeline_rows.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "tools/trace/summary.h"

namespace plexrl::trace {
namespace {

// Between the end of one holder's draining and the beginning of the next one's loading nobody holds
// the GPU, but it is busy moving bytes out.
void add_evictions(const Model& model, const Gpu& gpu, TimelineRow& row) {
  Pieces held;
  for (const Slice& slice : row.slices) held.emplace_back(slice.start_ns, slice.end_ns);
  for (const auto& [start, end] : subtract(switches_of(model, gpu.index), merge(held))) {
    row.slices.push_back({{start, end, "loading", 0, 0, 0, ""}, nullptr});
  }
}

// The gang's slices, with running ones cut where they are busy and where they are not.
std::vector<TimelineSlice> split_at_gaps(const Gang& gang, const Pieces& gaps) {
  std::vector<TimelineSlice> slices;
  auto next = gaps.begin();
  for (const Slice& slice : gang.slices) {
    while (next != gaps.end() && next->second <= slice.start_ns) ++next;
    std::int64_t at = slice.start_ns;
    const auto until = [&](std::int64_t end, const char* state) {
      if (end <= at) return;
      TimelineSlice piece{slice, &gang};
      piece.start_ns = at;
      piece.end_ns = at = end;
      piece.state = state;
      slices.push_back(std::move(piece));
    };
    for (auto gap = next;
         slice.state == "running" && gap != gaps.end() && gap->first < slice.end_ns; ++gap) {
      until(gap->first, "running");
      until(std::min(gap->second, slice.end_ns), kHeldIdle);
    }
    until(slice.end_ns, slice.state.c_str());
  }
  return slices;
}

}  // namespace

std::vector<TimelineRow> timeline_rows(const Model& model) {
  std::vector<TimelineRow> rows;
  const auto gaps = gaps_by_gang(model);
  std::map<const Gang*, std::vector<TimelineSlice>> shown;
  for (const Gang& gang : model.gangs) {
    const auto its = gaps.find({gang.job_id, gang.id});
    shown[&gang] = split_at_gaps(gang, its == gaps.end() ? Pieces{} : its->second);
  }
  for (const Gpu& gpu : model.gpus) {
    TimelineRow& row = rows.emplace_back();
    row.label = absl::StrCat("GPU ", gpu.index);
    row.is_gpu = true;
    for (const Gang& gang : model.gangs) {
      for (const TimelineSlice& slice : shown[&gang]) {
        const bool holds = slice.state == "running" || slice.state == kHeldIdle ||
                           slice.state == "loading" || slice.state == "draining";
        if (holds && ((slice.gpus_mask >> gpu.index) & 1) != 0) row.slices.push_back(slice);
      }
    }
    add_evictions(model, gpu, row);
  }
  for (const Gang& gang : model.gangs) {
    const bool only_gang = model.gangs_of(gang.job_id).size() == 1;
    const std::string name = model.job_name(gang.job_id);
    rows.push_back({only_gang ? name : absl::StrCat(name, "/", gang.id), false, shown[&gang]});
  }
  return rows;
}

}  // namespace plexrl::trace
