#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shim/wire.h"

namespace plexrl::nodemgr {

/// 128 bits from the kernel's generator.
wire::Id128 random_id();

/// 32 lower-case hex digits, and back.
std::string id_text(const wire::Id128& id);
std::optional<wire::Id128> parse_id(std::string_view text);

/// Takes the same time wherever the first difference is: for secrets.
bool equal_secrets(const wire::Id128& a, const wire::Id128& b);

}  // namespace plexrl::nodemgr
