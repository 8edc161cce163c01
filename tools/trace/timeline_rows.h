#pragma once

#include <string>
#include <vector>

#include "tools/trace/model.h"

namespace plexrl::trace {

/// The state of a part of a running slice in which nothing is outstanding.
inline constexpr const char* kHeldIdle = "held idle";

struct TimelineSlice : Slice {
  const Gang* gang;  ///< whose; nullptr: nobody's
};

struct TimelineRow {
  std::string label;  ///< "GPU 0", a job's name, or name/gang where a job has several
  bool is_gpu;
  std::vector<TimelineSlice> slices;  ///< of a gang: in order, without overlap
};

/// A row for each GPU, then one for each gang. A GPU's row has what its holders did; time in which
/// it moved bytes out while nobody held it is `loading`.
std::vector<TimelineRow> timeline_rows(const Model& model);

}  // namespace plexrl::trace
