#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/trace/model.h"
#include "tools/trace/reader.h"

namespace plexrl::trace {

/// As read_trace, but one trace for each node that they name, in the order of the paths. What names
/// no node belongs to the one beside it.
[[nodiscard]] absl::StatusOr<std::vector<RawTrace>> read_nodes(
    const std::vector<std::string>& paths);

/// What happened on all of them, on one time line: that of the node that has been up for longest.
/// The others' times are moved by how far their boot clocks are apart, as each one's clock records
/// tell by wall time; so it is as good as the nodes' wall clocks agree. GPUs are numbered through
/// in the order of the nodes, and their names begin with their node's; sessions get numbers of
/// their own. Errors: FailedPrecondition for a node whose trace has no clock record, and for more
/// than 64 GPUs.
[[nodiscard]] absl::StatusOr<Model> merge_nodes(std::vector<RawTrace> nodes);

}  // namespace plexrl::trace
