#include "tools/ctl/limits_change.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "nodemgr/settings/values.h"

namespace plexrl::ctl {

void LimitsChange::declare(CLI::App& command) {
  command.add_option("--team", team, "change the limits of this team")->type_name("TEAM");
  command.add_flag("--each-job", each_job, "change the limits of each job");
  const auto add = [&](const char* name, std::string& value, const std::string& help) {
    command.add_option(name, value, help)->type_name("SIZE");
  };
  add("--hbm", hbm,
      "what may be promised of HBM; none: no limit; file: as the settings file says again");
  add("--host", host, "likewise, of host memory for all that is promised");
  add("--disk", disk, "likewise, of disk space for all that is promised");
}

absl::Status LimitsChange::add_to(Json& request) const {
  Json set = Json::object();
  for (const auto& [name, value] : {std::pair("hbm", &hbm), {"host", &host}, {"disk", &disk}}) {
    if (value->empty()) continue;
    if (*value == "none") {
      set[name] = nullptr;
    } else if (*value == "file") {
      set[name] = *value;
    } else {
      const auto bytes = nodemgr::settings::parse_bytes(*value);
      if (!bytes.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", name, ": ", bytes.status().message(), "; or give none, or file"));
      }
      set[name] = *bytes;
    }
  }
  const bool is_whose = !team.empty() || each_job;
  if (!is_whose && set.empty()) return absl::OkStatus();
  if (team.empty() != each_job) {
    return absl::InvalidArgumentError("whose limits? give --team TEAM or --each-job");
  }
  if (set.empty()) {
    return absl::InvalidArgumentError("which limit? give --hbm, --host or --disk");
  }
  if (each_job) {
    request["each_job"] = true;
  } else {
    request["team"] = team;
  }
  request["set"] = std::move(set);
  return absl::OkStatus();
}

}  // namespace plexrl::ctl
