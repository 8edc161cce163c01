#include "tools/trace/html_report.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace plexrl::trace {
namespace {

using GapsByGang = std::map<std::pair<std::string, std::uint64_t>, Pieces>;

constexpr char kMark[] = "/*DATA*/";

// Each text once, by its place: slices repeat them thousands of times.
class Texts {
 public:
  std::size_t place_of(const std::string& text) {
    const auto [found, is_new] = places_.emplace(text, list_.size());
    if (is_new) list_.push_back(text);
    return found->second;
  }
  const Json& list() const { return list_; }

 private:
  std::map<std::string, std::size_t> places_;
  Json list_ = Json::array();
};

// At most `most` rows, in their order: the GPUs', then those of gangs that were busy for longest.
void keep_rows(std::vector<TimelineRow>& rows, std::size_t most) {
  if (rows.size() <= most) return;
  const auto weight = [](const TimelineRow& row) {
    std::int64_t busy = row.is_gpu ? std::int64_t{1} << 62 : 0;
    for (const Slice& slice : row.slices) busy += slice.state == "running" ? slice.length_ns() : 0;
    return busy;
  };
  std::vector<std::int64_t> weights;
  for (const TimelineRow& row : rows) weights.push_back(weight(row));
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  order.resize(most);
  std::sort(order.begin(), order.end());
  std::vector<TimelineRow> kept;
  for (const std::size_t place : order) kept.push_back(std::move(rows[place]));
  rows = std::move(kept);
}

// rows[].slices[]: [start, length, state, holder, reason], times in ns from the beginning, the rest
// places in texts[].
void add_rows(const Model& model, std::vector<TimelineRow> rows, const ReportLimits& limits,
              Json& data) {
  data["rows_in_all"] = rows.size();
  keep_rows(rows, limits.rows);
  for (TimelineRow& row : rows) {
    std::sort(row.slices.begin(), row.slices.end(),
              [](const Slice& a, const Slice& b) { return a.start_ns < b.start_ns; });
  }
  data["shortest_ns"] = thin_rows(rows, limits.slices);
  Texts texts;
  data["rows"] = Json::array();
  for (const TimelineRow& row : rows) {
    Json slices = Json::array();
    for (const TimelineSlice& slice : row.slices) {
      const std::string who = slice.gang == nullptr ? "" : model.job_name(slice.gang->job_id);
      slices.push_back({slice.start_ns - model.start_ns, slice.length_ns(),
                        texts.place_of(slice.state), texts.place_of(who),
                        texts.place_of(slice.reason)});
    }
    data["rows"].push_back({{"label", row.label}, {"is_gpu", row.is_gpu}, {"slices", slices}});
  }
  data["texts"] = texts.list();
}

Pieces busy_on(const Model& model, const GapsByGang& gaps, std::uint32_t gpu) {
  Pieces busy;
  for (const Gang& gang : model.gangs) {
    const auto its = gaps.find({gang.job_id, gang.id});
    const Activity activity =
        activity_of(gang, its == gaps.end() ? Pieces{} : its->second, static_cast<int>(gpu));
    busy.insert(busy.end(), activity.busy.begin(), activity.busy.end());
  }
  return merge(std::move(busy));
}

// The busy share of each of `bins` equal pieces of the trace's time.
Json duty_bins(const Model& model, const Pieces& busy, std::size_t bins) {
  const double width =
      static_cast<double>(model.end_ns - model.start_ns) / static_cast<double>(bins);
  std::vector<double> time(bins, 0);
  for (const auto& [from, to] : busy) {
    const auto begin = static_cast<double>(from - model.start_ns);
    const auto end = static_cast<double>(to - model.start_ns);
    for (auto bin = static_cast<std::size_t>(begin / width); bin < bins; ++bin) {
      const double left = static_cast<double>(bin) * width;
      if (left >= end) break;
      time[bin] += std::min(end, left + width) - std::max(begin, left);
    }
  }
  Json list = Json::array();
  for (const double share : time) list.push_back(width > 0 ? share / width : 0);
  return list;
}

Json duty_list(const Model& model, std::size_t bins) {
  Json list = Json::array();
  if (model.end_ns <= model.start_ns) return list;
  const GapsByGang gaps = gaps_by_gang(model);
  for (const Gpu& gpu : model.gpus) {
    list.push_back({{"gpu", gpu.index},
                    {"simulated", gpu.simulated},
                    {"bins", duty_bins(model, busy_on(model, gaps, gpu.index), bins)}});
  }
  return list;
}

std::int64_t cost_ns(const Swap& swap) {
  const auto decided = static_cast<std::int64_t>(swap.record.decided_at_ns());
  return decided == 0 ? 0 : swap.at_ns - decided;
}

void add_swaps(const Model& model, std::size_t most, Json& data) {
  std::vector<const Swap*> swaps;
  for (const Swap& swap : model.swaps) swaps.push_back(&swap);
  std::stable_sort(swaps.begin(), swaps.end(),
                   [](const Swap* a, const Swap* b) { return cost_ns(*a) > cost_ns(*b); });
  if (swaps.size() > most) swaps.resize(most);
  data["swaps_in_all"] = model.swaps.size();
  data["swaps"] = Json::array();
  for (const Swap* swap : swaps) {
    Json line = swap_json(model, *swap);
    line["at_ns"] = swap->at_ns - model.start_ns;
    for (const char* side : {"out_job", "in_job"}) {
      if (line[side].is_string()) line[side] = model.job_name(line[side].get<std::string>());
    }
    data["swaps"].push_back(std::move(line));
  }
}

}  // namespace

std::int64_t thin_rows(std::vector<TimelineRow>& rows, std::size_t most) {
  std::vector<std::int64_t> lengths;
  for (const TimelineRow& row : rows) {
    for (const Slice& slice : row.slices) lengths.push_back(slice.length_ns());
  }
  if (lengths.size() <= most) return 0;
  const auto kept = lengths.begin() + static_cast<std::ptrdiff_t>(most);
  std::nth_element(lengths.begin(), kept, lengths.end(), std::greater<>());
  const std::int64_t shortest = *kept + 1;
  for (TimelineRow& row : rows) {
    std::vector<TimelineSlice> slices;
    for (TimelineSlice& slice : row.slices) {
      if (slices.empty() || slice.length_ns() >= shortest) {
        slices.push_back(std::move(slice));
      } else if (slice.start_ns - slices.back().end_ns < shortest) {
        slices.back().end_ns = std::max(slices.back().end_ns, slice.end_ns);
      }
    }
    row.slices = std::move(slices);
  }
  return shortest;
}

Json report_data(const Model& model, const ReportLimits& limits) {
  Json data = head_json(model);
  data["began"] = moment_json(model, model.start_ns);
  data["span_ns"] = model.end_ns - model.start_ns;
  const Summary summary = summarize(model);
  data["jobs"] = Json::array();
  for (const JobSummary& job : summary.jobs) data["jobs"].push_back(job_json(job));
  data["gpus"] = Json::array();
  for (const GpuSummary& gpu : summary.gpus) data["gpus"].push_back(gpu_json(gpu));
  data["has_activity"] = model.has_activity;
  add_rows(model, timeline_rows(model), limits, data);
  data["duty"] = duty_list(model, limits.duty_bins);
  const Json gaps = gaps_json(model, gap_report(model, limits.gaps));
  data["gaps"] = gaps["gaps"];
  data["histogram"] = gaps["histogram"];
  add_swaps(model, limits.swaps, data);
  data["problems_in_all"] = model.problems.size();
  data["problems"] = problem_list(model);
  if (data["problems"].size() > limits.problems) {
    data["problems"].erase(data["problems"].begin() + static_cast<std::ptrdiff_t>(limits.problems),
                           data["problems"].end());
  }
  data["start_mono_ns"] = model.start_ns;
  return data;
}

std::string html_report(const Model& model, const ReportLimits& limits) {
  // No "<" in it can end the script that it is in.
  std::string data =
      report_data(model, limits).dump(-1, ' ', false, Json::error_handler_t::replace);
  for (auto at = data.find('<'); at != std::string::npos; at = data.find('<', at)) {
    data.replace(at, 1, "\\u003c");
  }
  std::string page = kReportPage;
  page.replace(page.find(kMark), sizeof kMark - 1, data);
  return page;
}

}  // namespace plexrl::trace
