#pragma once

#include <string_view>

#include "tools/simgpu/ptx/syntax.h"

namespace plexrl::simgpu::ptx {

/// Parses one PTX text; the result's names are views into it. Registers and function-scope
/// variables are resolved to ids here, because inline assembly reuses their names in nested scopes.
/// Opcodes are not looked at. Throws Failure (kInvalidPtx) with the line of the first syntax error.
syntax::Source parse(std::string_view text);

}  // namespace plexrl::simgpu::ptx
