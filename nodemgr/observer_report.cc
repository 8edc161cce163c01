#include "nodemgr/observer_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/utf8.h"

namespace plexrl::nodemgr {
namespace {

using Json = nlohmann::json;

/// More than an observer has to tell of a gap; what is beyond is left out.
constexpr std::size_t kMostCauses = 64;
constexpr std::size_t kLongestText = 128;
constexpr std::size_t kMostOpeners = 4096;
constexpr std::uint64_t kHighestPid = 1 << 22;  // PID_MAX_LIMIT, proc(5)
constexpr std::uint64_t kHighestUid = 0xffffffff;

/// One printable line of a limited length.
std::string text_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return "";
  return as_line(found->get<std::string>(), kLongestText);
}

/// A whole number that is not negative; else none.
bool read_count(const Json& object, const char* key, std::uint64_t& out) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return false;
  out = found->get<std::uint64_t>();
  return true;
}

absl::StatusOr<ObserverLine> parse_hello(const Json& json) {
  ObserverHello hello;
  std::uint64_t version = 0;
  if (!json.is_object() || !read_count(json, "version", version)) {
    return invalid("hello has no version");
  }
  hello.version = static_cast<int>(std::min<std::uint64_t>(version, 1 << 20));
  if (const auto lacks = json.find("lacks"); lacks != json.end() && lacks->is_array()) {
    for (const Json& lack : *lacks) {
      if (lack.is_string() && hello.lacks.size() < kMostCauses) {
        hello.lacks.push_back(text_in(Json{{"text", lack}}, "text"));
      }
    }
  }
  return hello;
}

absl::StatusOr<ObserverLine> parse_causes(const Json& json) {
  ObserverCauses causes;
  if (!json.is_object() || !read_count(json, "gap", causes.gap)) {
    return invalid("causes have no gap");
  }
  const auto is_final = json.find("final");
  causes.is_final = is_final != json.end() && is_final->is_boolean() && is_final->get<bool>();
  const auto list = json.find("causes");
  if (list == json.end() || !list->is_array()) return invalid("causes are no list");
  for (const Json& one : *list) {
    std::uint64_t time = 0;
    if (!one.is_object() || !read_count(one, "time_ns", time))
      return invalid("a cause has no time");
    if (causes.causes.size() == kMostCauses) break;
    constexpr std::uint64_t kLongest = std::uint64_t{1} << 60;
    causes.causes.push_back({text_in(one, "cause"), text_in(one, "detail"),
                             std::chrono::nanoseconds(std::min(time, kLongest))});
    if (causes.causes.back().cause.empty()) return invalid("a cause has no name");
  }
  return causes;
}

absl::StatusOr<ObserverLine> parse_openers(const Json& json) {
  if (!json.is_array()) return invalid("openers are no list");
  ObserverOpeners openers;
  for (const Json& one : json) {
    std::uint64_t pid = 0;
    std::uint64_t uid = 0;
    const bool is_process = one.is_object() && read_count(one, "pid", pid) &&
                            read_count(one, "uid", uid) && pid <= kHighestPid && uid <= kHighestUid;
    if (!is_process) return invalid("an opener has no pid or uid");
    if (openers.processes.size() == kMostOpeners) break;
    ObserverOpeners::Process process;
    process.pid = static_cast<std::int64_t>(pid);
    process.uid = static_cast<std::uint32_t>(uid);
    process.command = text_in(one, "command");
    const auto preloaded = one.find("preloaded");
    process.is_preloaded =
        preloaded != one.end() && preloaded->is_boolean() && preloaded->get<bool>();
    if (const auto files = one.find("files"); files != one.end() && files->is_array()) {
      for (const Json& file : *files) {
        if (file.is_string() && process.files.size() < kMostCauses) {
          process.files.push_back(text_in(Json{{"text", file}}, "text"));
        }
      }
    }
    openers.processes.push_back(std::move(process));
  }
  return openers;
}

}  // namespace

absl::StatusOr<ObserverLine> parse_observer_line(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return invalid("not a JSON object");
  if (const auto hello = json.find("hello"); hello != json.end()) return parse_hello(*hello);
  if (const auto causes = json.find("causes"); causes != json.end()) return parse_causes(*causes);
  if (const auto all = json.find("openers"); all != json.end()) return parse_openers(*all);
  return ObserverUnknown{};
}

}  // namespace plexrl::nodemgr
