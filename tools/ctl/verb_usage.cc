#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/cli/format.h"
#include "tools/cli/table.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/verbs.h"

namespace plexrl::ctl {
namespace {

double number_of(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_number() ? object[key].get<double>() : 0;
}

std::string hours_of(const Json& row, const char* key) {
  return absl::StrFormat("%.2f", number_of(row, key) / 3600);
}

std::string csv_cell(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? cli::csv_cell(value.get<std::string>()) : value.dump();
}

/// What a row is about, by the answer's `by`.
std::vector<std::string> names_of(const std::string& by, const Json& row) {
  const auto team = [&] { return text_of(row, "team"); };
  if (by == "team") return {team()};
  if (by == "user") return {text_of(row, "user")};
  return {text_of(row, "job").substr(0, 8), text_of(row, "name"), text_of(row, "user"), team()};
}

}  // namespace

std::string show_usage(const Json& answer) {
  using cli::Table;
  constexpr auto kRight = Table::Align::kRight;
  const std::string by = text_of(answer, "by");
  std::vector<Table::Column> columns;
  if (by == "team") columns = {{"TEAM"}};
  if (by == "user") columns = {{"USER"}};
  if (by == "job") columns = {{"JOB"}, {"NAME"}, {"USER"}, {"TEAM"}};
  for (const char* title :
       {"JOBS", "GPU HOURS HELD", "ALONE", "SAVED", "OF ALONE", "SLOWDOWN", "WAITED"}) {
    columns.push_back({title, kRight});
  }
  Table table(columns);
  for (const Json& row : array_of(answer, "usage")) {
    std::vector<std::string> cells = names_of(by, row);
    const double alone = number_of(row, "needed_gpu_s");
    cells.insert(cells.end(),
                 {count_of(row, "jobs"), hours_of(row, "held_gpu_s"), hours_of(row, "needed_gpu_s"),
                  hours_of(row, "saved_gpu_s"),
                  alone > 0 ? cli::format_ratio(number_of(row, "saved_gpu_s") / alone) : "",
                  times_of(row, "slowdown_ratio"), seconds_of(row, "wait_s")});
    table.add_row(std::move(cells));
  }
  std::string text = heading(answer) + "from " + text_of(answer, "since") + " to " +
                     text_of(answer, "until") + "\n";
  if (const std::string problem = text_of(answer, "unwritten"); !problem.empty()) {
    text += "the last of it is not in these figures: " + cli::printable(problem) + "\n";
  }
  return text + (table.empty() ? "no job held a GPU\n" : table.str());
}

std::string usage_csv(const Json& answer) {
  std::vector<std::string> keys;
  const std::string by = text_of(answer, "by");
  if (by == "job") keys = {"job", "name"};
  if (by != "team") keys.emplace_back("user");
  if (by != "user") keys.emplace_back("team");
  for (const char* key :
       {"jobs", "held_gpu_s", "needed_gpu_s", "saved_gpu_s", "slowdown_ratio", "wait_s"}) {
    keys.emplace_back(key);
  }
  std::string text;
  for (const std::string& key : keys) absl::StrAppend(&text, text.empty() ? "" : ",", key);
  text += "\r\n";
  for (const Json& row : array_of(answer, "usage")) {
    std::string line;
    for (const std::string& key : keys) {
      absl::StrAppend(&line, key == keys.front() ? "" : ",",
                      csv_cell(row.contains(key) ? row[key] : Json()));
    }
    text += line + "\r\n";
  }
  return text;
}

}  // namespace plexrl::ctl
