#include "tools/ctl/since.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "nodemgr/settings/values.h"

namespace plexrl::ctl {

absl::StatusOr<std::int64_t> parse_since(const std::string& text, std::int64_t now_s) {
  const auto fail = [&](const char* why) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' ", why,
                     ": give how long ago (12h, 7d), a day (2026-11-01) or a moment "
                     "(2026-11-01T08:00:00Z)"));
  };
  std::int64_t since = 0;
  absl::Time moment;
  std::string ignored;
  if (absl::ParseTime("%Y-%m-%d", text, absl::LocalTimeZone(), &moment, &ignored) ||
      absl::ParseTime(absl::RFC3339_full, text, &moment, &ignored)) {
    since = absl::ToUnixSeconds(moment);
  } else {
    const auto ago = nodemgr::settings::parse_duration(text);
    if (!ago.ok()) return fail("is no time");
    since = now_s - std::chrono::duration_cast<std::chrono::seconds>(*ago).count();
  }
  if (since > now_s) return fail("is yet to come");
  if (since < 0) return fail("is before 1970");
  return since;
}

}  // namespace plexrl::ctl
