#pragma once

#include <string>

#include "tools/trace/model.h"

namespace plexrl::trace {

/// The trace as Perfetto's own format (protobuf), for ui.perfetto.dev and its trace processor.
///
/// A track a gang and a track a GPU. Slices are named running, waiting, draining and paging (the
/// state `loading`), so that on the gang tracks of a job they add up to summary's running_s,
/// waiting_s, draining_s and paging_s; idle time is where there is no slice. On a GPU's track a
/// slice is named after its holder. Counters: the resident bytes of each job on each GPU. Problems
/// are instants.
std::string export_perfetto(const Model& model);

}  // namespace plexrl::trace
