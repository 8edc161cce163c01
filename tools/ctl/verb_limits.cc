#include "tools/cli/table.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/verbs.h"

namespace plexrl::ctl {

std::string teams_table(const Json& teams) {
  using cli::Table;
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"TEAM"},
               {"WEIGHT", kRight},
               {"JOBS", kRight},
               {"SHARE", kRight},
               {"PRIORITY MAX", kRight},
               {"SLOWDOWN MAX", kRight},
               {"MEMBERS"}});
  for (const Json& team : teams) {
    const std::string members = list_of(team, "members");
    table.add_row({text_of(team, "name"), count_of(team, "weight"), count_of(team, "jobs"),
                   ratio_of(team, "share_ratio"), count_of(team, "priority_max"),
                   times_of(team, "max_slowdown"), members.empty() ? "everybody" : members});
  }
  return table.str();
}

std::string show_limits(const Json& answer) {
  const Json& teams = array_of(answer, "teams");
  return heading(answer) + (teams.empty() ? "no teams: every name that a job gives is one of "
                                            "weight 1, open to everybody\n"
                                          : teams_table(teams));
}

}  // namespace plexrl::ctl
