#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/trace/report_json.h"
#include "tools/trace/timeline_rows.h"

/// The page of `plexrl-trace report`: one HTML file that loads nothing else.
namespace plexrl::trace {

/// report_page.html, with a mark where the data go.
extern const char kReportPage[];

/// How much of a trace a page holds, so that it opens in a browser whatever the trace's length.
struct ReportLimits {
  std::size_t rows = 400;        ///< the GPUs, then the gangs that were busy for longest
  std::size_t slices = 200'000;  ///< of all rows; shorter ones are joined to what is before them
  std::size_t swaps = 500;       ///< the longest
  std::size_t gaps = 30;         ///< the longest
  std::size_t problems = 1000;   ///< the first
  std::size_t duty_bins = 240;   ///< equal pieces of the whole time
};

/// What the page shows; everything that comes from jobs is text in it.
Json report_data(const Model& model, const ReportLimits& limits = {});
std::string html_report(const Model& model, const ReportLimits& limits = {});

/// For rows whose slices are in the order of their starts. Leaves at most `most` slices (or one a
/// row): the longest ones. A shorter one becomes part of what is close before it, else it goes.
/// Returns the length from which on all were kept; 0: all were.
std::int64_t thin_rows(std::vector<TimelineRow>& rows, std::size_t most);

}  // namespace plexrl::trace
