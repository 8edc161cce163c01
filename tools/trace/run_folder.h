#pragma once

#include <string>
#include <vector>

#include "tools/trace/reader.h"

namespace plexrl::trace {

/// The segment files of a run's folder, in the order in which they were written; none where there
/// is no such folder.
std::vector<std::string> segments_in(const std::string& folder);

/// Records of one moment stay in the order that they have.
void sort_by_time(RawTrace& trace);

}  // namespace plexrl::trace
