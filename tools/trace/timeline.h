#pragma once

#include <cstdint>
#include <string>

#include "tools/cli/terminal.h"
#include "tools/trace/model.h"

/// The timeline as text: a row for each GPU and each gang, a column for each equal piece of time.
namespace plexrl::trace {

struct TimelineView {
  std::int64_t from_ns;  ///< CLOCK_BOOTTIME
  std::int64_t to_ns;    ///< above from_ns
  int columns = 80;      ///< of the terminal, the labels included; at least 40 are used
  bool has_colour = false;
  bool has_unicode = false;
};

/// Each cell shows the state that took most of its piece of time, so a switch shorter than half a
/// cell may not be seen; a smaller window shows it. On a GPU's row, a cell shows what its holder
/// did; where a lease ran without work outstanding, that it was held idle. A legend and the scale
/// are part of the result.
std::string draw_timeline(const Model& model, const TimelineView& view);

}  // namespace plexrl::trace
