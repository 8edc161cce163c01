#pragma once

#include "tools/simgpu/ptx/cursor.h"
#include "tools/simgpu/ptx/syntax.h"

namespace plexrl::simgpu::ptx {

/// Parses a function's body, from its opening brace past its closing one, into `function` (whose
/// signature is already there). Throws Failure with the line.
void parse_body(Cursor& in, syntax::Function& function);

}  // namespace plexrl::simgpu::ptx
