#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/cli/table.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/verbs.h"

namespace plexrl::ctl {
namespace {

bool ends_with_unit(const std::string& key, const char* unit) {
  return key.size() > std::strlen(unit) && key.ends_with(unit);
}

// "host_budget_bytes" is "host budget" to people, and its value has a unit.
std::string label_of(std::string key) {
  for (const char* unit : {"_bytes", "_s"}) {
    if (ends_with_unit(key, unit)) key.resize(key.size() - std::strlen(unit));
  }
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

std::string value_of(const Json& object, const std::string& key, const Json& value) {
  if (ends_with_unit(key, "_bytes")) return bytes_of(object, key.c_str());
  if (ends_with_unit(key, "_s")) return seconds_of(object, key.c_str());
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Whether somebody finds out what jobs wait for, and what is missing for it.
std::string observer_text(const Json& observer) {
  if (!observer.is_object()) {
    return "none: what jobs wait for is not known; plexrl-observer, run as root, finds it out";
  }
  std::string text = absl::StrCat("pid ", count_of(observer, "pid"));
  for (const Json& lack : array_of(observer, "lacks")) {
    if (lack.is_string()) absl::StrAppend(&text, ", without ", lack.get<std::string>());
  }
  return text;
}

// The manager in a few lines. `told` are the keys that they cover.
std::string manager_lines(const Json& manager, std::set<std::string>& told) {
  std::string out;
  auto known = [&](const char* key) {
    told.insert(key);
    const auto found = manager.find(key);
    return found == manager.end() || found->is_null() ? std::string()
                                                      : value_of(manager, key, *found);
  };
  auto line = [&](const char* label, const std::string& text) {
    if (!text.empty()) absl::StrAppend(&out, cli::printable(absl::StrCat(label, text)), "\n");
  };
  std::string about;
  auto add = [&](const char* before, const std::string& text, const char* after) {
    if (!text.empty()) absl::StrAppend(&about, about.empty() ? "" : ", ", before, text, after);
  };
  add("pid ", known("pid"), "");
  add("up ", known("uptime_s"), "");
  add("", known("grants"), " leases granted");
  add("generation ", known("generation"), "");
  line("manager      ", about);
  line("socket       ", known("socket"));
  line("trace        ", known("trace"));
  std::string host;
  const std::pair<const char*, const char*> parts[] = {{"host_used_bytes", " in use"},
                                                       {"host_promised_bytes", " promised"},
                                                       {"host_budget_bytes", " budget"}};
  for (const auto& [key, meaning] : parts) {
    const std::string bytes = known(key);
    if (!bytes.empty()) absl::StrAppend(&host, host.empty() ? "" : ", ", bytes, meaning);
  }
  line("host memory  ", host);
  if (const auto observer = manager.find("observer"); observer != manager.end()) {
    told.insert("observer");
    line("observer     ", observer_text(*observer));
  }
  if (known("journal_ok") == "no") {
    line("journal      ", "can't be written: after a crash jobs may have to be restarted");
  }
  if (const auto lost = known("trace_lost_records"); !lost.empty() && lost != "0") {
    line("trace        ", lost + " records lost");
  }
  for (const char* key : {"started", "started_mono_ns"}) told.insert(key);
  return out;
}

bool is_in_heading(const std::string& key) {
  return key == "schema" || key == "simulated" || key == "node";
}

// What the manager adds later shows up without a change here.
void add_others(const Json& object, const std::set<std::string>& told, std::string& out) {
  for (const auto& [key, value] : object.items()) {
    if (told.contains(key) || is_in_heading(key)) continue;
    if (value.is_array()) {
      for (const Json& item : value) {
        if (!item.is_string()) continue;
        absl::StrAppend(
            &out, cli::printable(absl::StrCat(label_of(key), ": ", item.get<std::string>())), "\n");
      }
    }
    if (value.is_object() || value.is_array() || value.is_null()) continue;
    absl::StrAppend(&out,
                    cli::printable(absl::StrCat(label_of(key), ": ", value_of(object, key, value))),
                    "\n");
  }
}

}  // namespace

std::string show_status(const Json& answer) {
  std::string out = heading(answer);
  const auto manager = answer.find("manager");
  if (manager != answer.end() && manager->is_object()) {
    std::set<std::string> told;
    out += manager_lines(*manager, told);
    add_others(*manager, told, out);
  }
  add_others(answer, {}, out);
  if (!array_of(answer, "gpus").empty())
    absl::StrAppend(&out, "\n", gpus_table(array_of(answer, "gpus")));
  if (!array_of(answer, "teams").empty())
    absl::StrAppend(&out, "\n", teams_table(array_of(answer, "teams")));
  if (!array_of(answer, "jobs").empty())
    absl::StrAppend(&out, "\n", jobs_table(array_of(answer, "jobs")));
  return out;
}

}  // namespace plexrl::ctl
