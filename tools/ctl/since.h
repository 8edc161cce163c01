#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace plexrl::ctl {

/// A moment in the past as `--since` has it, in Unix seconds: how long ago (`12h`, `7d`), a day
/// (`2026-11-01`, from its midnight here) or a moment (RFC 3339, `2026-11-01T08:00:00Z`). Errors
/// quote the text and name the forms.
[[nodiscard]] absl::StatusOr<std::int64_t> parse_since(const std::string& text, std::int64_t now_s);

}  // namespace plexrl::ctl
