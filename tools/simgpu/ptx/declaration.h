#pragma once

#include <string_view>
#include <vector>

#include "tools/simgpu/ptx/cursor.h"
#include "tools/simgpu/ptx/syntax.h"

/// Declarations of variables and formal parameters. The functions throw Failure with the line.
namespace plexrl::simgpu::ptx {

/// After the state space directive `space` (".global", ".shared", ".local", ".param", …): the
/// variables up to and with the semicolon, with their initialisers. Linkage is left for the caller.
std::vector<syntax::Variable> parse_variables(Cursor& in, std::string_view space);

/// One formal of a function or prototype, from its `.param` or `.reg`.
syntax::Variable parse_formal(Cursor& in);

}  // namespace plexrl::simgpu::ptx
