#pragma once

#include <string>

#include "tools/trace/model.h"

namespace plexrl::trace {

/// One line per slice of a gang (RFC 4180, with a header line): job, name, gang, gpus, state,
/// times.
std::string export_csv(const Model& model);

}  // namespace plexrl::trace
