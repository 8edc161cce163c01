#include "absl/strings/str_cat.h"
#include "tools/cli/table.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/verbs.h"

namespace plexrl::ctl {
namespace {

bool is_in_heading(const std::string& key) {
  return key == "schema" || key == "simulated" || key == "node";
}

// "generation: 3"; figures that the manager adds later show up without a change here.
void add_scalars(const Json& object, const std::string& prefix, std::string& out) {
  for (const auto& [key, value] : object.items()) {
    if (prefix.empty() && is_in_heading(key)) continue;
    if (value.is_array()) {
      for (const Json& item : value) {
        if (!item.is_string()) continue;
        absl::StrAppend(
            &out, cli::printable(absl::StrCat(prefix, key, ": ", item.get<std::string>())), "\n");
      }
    } else if (value.is_object()) {
      add_scalars(value, absl::StrCat(prefix, key, "."), out);
    } else if (!value.is_null()) {
      const bool is_bytes = key.size() > 6 && key.compare(key.size() - 6, 6, "_bytes") == 0;
      const bool is_seconds = key.size() > 2 && key.compare(key.size() - 2, 2, "_s") == 0;
      const std::string text = is_bytes            ? bytes_of(object, key.c_str())
                               : is_seconds        ? seconds_of(object, key.c_str())
                               : value.is_string() ? value.get<std::string>()
                                                   : value.dump();
      absl::StrAppend(&out, cli::printable(absl::StrCat(prefix, key, ": ", text)), "\n");
    }
  }
}

}  // namespace

std::string show_status(const Json& answer) {
  std::string out = heading(answer);
  add_scalars(answer, "", out);
  if (!array_of(answer, "gpus").empty())
    absl::StrAppend(&out, "\n", gpus_table(array_of(answer, "gpus")));
  if (!array_of(answer, "jobs").empty())
    absl::StrAppend(&out, "\n", jobs_table(array_of(answer, "jobs")));
  return out;
}

}  // namespace plexrl::ctl
