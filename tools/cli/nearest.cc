#include "tools/cli/nearest.h"

#include "nodemgr/settings/nearest.h"

namespace plexrl::cli {

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string best = nodemgr::settings::nearest_name(word, known);
  return best.empty() ? "" : " (did you mean " + best + "?)";
}

}  // namespace plexrl::cli
