#pragma once

#include <string>

#include "tools/trace/model.h"

namespace plexrl::trace {

/// The trace as Perfetto's own format (protobuf), for ui.perfetto.dev and its trace processor.
///
/// Tracks, from top to bottom:
///
/// - one a GPU. Slices are named after the holder (`a`, `a (paging)`, `a (draining)`), or
///   `switching` where nobody holds it while bytes move out. Those of argument `state` running add
///   up to the summary's running_s of the GPU, the others to its switching_s. Beneath it: the
///   changes of holder, with their stages as arguments, and the bytes that each job has resident;
/// - one a gang. Slices are named running, waiting, draining and paging (the state `loading`), so
///   that those of a job add up to the summary's running_s, waiting_s, draining_s and paging_s;
///   idle time is where there is no slice. Beneath it: its gaps (when its processes had nothing on
///   their GPUs, why, and whether the GPUs were lent meanwhile), the bytes copied out and in so
///   far, which end at the summary's out_bytes and in_bytes, and what each process moved when;
/// - problems, as instants.
///
/// Slices have the job's id as argument `job`. Where two jobs have one name, it is followed by
/// their ids.
std::string export_perfetto(const Model& model);

}  // namespace plexrl::trace
