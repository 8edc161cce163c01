#include "tools/cli/job_match.h"

#include "absl/strings/str_cat.h"
#include "tools/cli/nearest.h"

namespace plexrl::cli {

absl::StatusOr<std::string> find_job(const std::vector<NamedJob>& jobs, const std::string& word) {
  std::vector<std::string> by_name, by_prefix, names;
  for (const auto& [id, name] : jobs) {
    if (id == word) return id;
    if (name == word) by_name.push_back(id);
    if (id.rfind(word, 0) == 0) by_prefix.push_back(id);
    names.push_back(name);
  }
  const auto& found = by_name.empty() ? by_prefix : by_name;
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return absl::NotFoundError(absl::StrCat("no job '", word, "'", did_you_mean(word, names)));
  }
  std::string ids;
  for (const std::string& id : found) absl::StrAppend(&ids, " ", id);
  return absl::InvalidArgumentError(
      absl::StrCat("'", word, "' fits ", found.size(), " jobs, use an id:", ids));
}

}  // namespace plexrl::cli
