#include "tools/cli/table.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/verbs.h"

namespace plexrl::ctl {
namespace {

/// A quota, with a star where plexrl-ctl has set it over the settings file.
std::string quota_of(const Json& whose, const char* tier) {
  const std::string key = std::string(tier) + "_bytes";
  bool is_changed = false;
  for (const Json& changed : array_of(whose, "changed")) is_changed |= changed == tier;
  const std::string bytes = bytes_of(whose, key.c_str());
  return (bytes.empty() && is_changed ? "none" : bytes) + (is_changed ? "*" : "");
}

bool has_changes(const Json& whose) { return !array_of(whose, "changed").empty(); }

std::string each_job_words(const Json& answer) {
  const auto each = answer.find("each_job");
  if (each == answer.end() || !each->is_object()) return "";
  std::string words;
  for (const char* tier : {"hbm", "host", "disk"}) {
    const std::string quota = quota_of(*each, tier);
    if (!quota.empty()) words += (words.empty() ? "" : ", ") + std::string(tier) + " " + quota;
  }
  return words.empty() ? "" : "each job: " + words + "\n";
}

}  // namespace

std::string teams_table(const Json& teams) {
  using cli::Table;
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"TEAM"},
               {"WEIGHT", kRight},
               {"JOBS", kRight},
               {"SHARE", kRight},
               {"PROMISED", kRight},
               {"OF HBM", kRight},
               {"HBM MAX", kRight},
               {"HOST MAX", kRight},
               {"DISK MAX", kRight},
               {"PRIORITY MAX", kRight},
               {"SLOWDOWN MAX", kRight},
               {"MEMBERS"}});
  for (const Json& team : teams) {
    const std::string members = list_of(team, "members");
    table.add_row({text_of(team, "name"), count_of(team, "weight"), count_of(team, "jobs"),
                   ratio_of(team, "share_ratio"), bytes_of(team, "promised_bytes"),
                   bytes_of(team, "hbm_promised_bytes"), quota_of(team, "hbm"),
                   quota_of(team, "host"), quota_of(team, "disk"), count_of(team, "priority_max"),
                   times_of(team, "max_slowdown"), members.empty() ? "everybody" : members});
  }
  return table.str();
}

std::string show_limits(const Json& answer) {
  const Json& teams = array_of(answer, "teams");
  std::string out =
      heading(answer) + (teams.empty() ? "no teams: every name that a job gives is one of "
                                         "weight 1, open to everybody\n"
                                       : teams_table(teams));
  out += each_job_words(answer);
  const auto each = answer.find("each_job");
  bool is_changed = each != answer.end() && has_changes(*each);
  for (const Json& team : teams) is_changed |= has_changes(team);
  if (is_changed) out += "* set with plexrl-ctl limits, over the settings file\n";
  return out;
}

}  // namespace plexrl::ctl
