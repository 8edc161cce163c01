#include "tools/ctl/answer.h"

#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tools/cli/format.h"
#include "tools/cli/table.h"

namespace plexrl::ctl {
namespace {

std::optional<double> number(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

template <typename Format>
std::string formatted(const Json& object, const char* key, Format format) {
  const auto value = number(object, key);
  return value ? format(*value) : std::string();
}

}  // namespace

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string gap_of(const Json& job) {
  const std::string cause = text_of(job, "gap_cause");
  const Json& causes = array_of(job, "gap_causes");
  if (causes.empty() || text_of(causes[0], "cause") != cause) return cause;
  const std::string detail = text_of(causes[0], "detail");
  return detail.empty() ? cause : cause + " " + detail;
}

std::string count_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->dump() : "";
}

std::string bytes_of(const Json& object, const char* key) {
  return formatted(object, key, cli::format_bytes);
}

std::string rate_of(const Json& object, const char* key) {
  return formatted(object, key, [](double rate) { return cli::format_bytes(rate) + "/s"; });
}

std::string seconds_of(const Json& object, const char* key) {
  return formatted(object, key, [](double seconds) { return cli::format_ns(seconds * 1e9); });
}

std::string ratio_of(const Json& object, const char* key) {
  return formatted(object, key, cli::format_ratio);
}

std::string times_of(const Json& object, const char* key) {
  return formatted(object, key, cli::format_factor);
}

std::string list_of(const Json& object, const char* key) {
  std::string text;
  for (const Json& item : array_of(object, key)) {
    if (!text.empty()) text += ' ';
    text += item.is_string() ? item.get<std::string>() : item.dump();
  }
  return text;
}

std::string jobs_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return "";
  std::string text;
  for (const Json& job : found->is_array() ? *found : Json::array({*found})) {
    if (!job.is_string()) continue;
    absl::StrAppend(&text, text.empty() ? "" : " ", job.get<std::string>().substr(0, 8));
  }
  return text;
}

const Json& array_of(const Json& object, const char* key) {
  static const Json kEmpty = Json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : kEmpty;
}

std::string heading(const Json& answer) {
  const auto simulated = answer.find("simulated");
  const bool is_simulated =
      simulated != answer.end() && simulated->is_boolean() && simulated->get<bool>();
  return "node " + cli::printable(text_of(answer, "node")) +
         (is_simulated ? " (simulated GPU)" : "") + "\n";
}

}  // namespace plexrl::ctl
