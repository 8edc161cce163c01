#include "absl/strings/str_cat.h"
#include "tools/cli/format.h"
#include "tools/cli/table.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/verbs.h"

namespace plexrl::ctl {
namespace {

std::string figure_line(const std::string& name, double value) {
  const auto [words, text] = cli::format_figure(name, value);
  return cli::printable(absl::StrCat("    ", words, ": ", text)) + "\n";
}

// The figures under `key` of the gang, with what they are.
std::string figures_of(const Json& gang, const char* key, const char* title) {
  const auto part = gang.find(key);
  if (part == gang.end() || !part->is_object()) return "";
  const auto figures = part->find("figures");
  if (figures == part->end() || !figures->is_object() || figures->empty()) return "";
  std::string out = absl::StrCat("  ", title, "\n");
  for (const auto& [name, value] : figures->items()) {
    if (value.is_number() && name != "other_gang") out += figure_line(name, value.get<double>());
  }
  return out;
}

}  // namespace

std::string show_explain(const Json& answer) {
  std::string out = heading(answer);
  const auto explain = answer.find("explain");
  if (explain == answer.end() || !explain->is_object()) return out;
  out += cli::printable(absl::StrCat("job '", text_of(*explain, "name"), "'")) + "\n";
  const std::string text = text_of(*explain, "text");
  if (!text.empty()) out += cli::printable(text) + "\n";
  for (const Json& quota : array_of(*explain, "quotas")) {
    if (quota.is_string()) out += cli::printable("quota: " + quota.get<std::string>()) + "\n";
  }
  for (const Json& gang : array_of(*explain, "gangs")) {
    out +=
        cli::printable(absl::StrCat("gang ", text_of(gang, "id"), " on GPU ", list_of(gang, "gpus"),
                                    ", ", text_of(gang, "state"), ": ", text_of(gang, "text"))) +
        "\n";
    out += figures_of(gang, "decision", "decided on:");
    out += figures_of(gang, "now", "as it is now:");
  }
  return out;
}

}  // namespace plexrl::ctl
