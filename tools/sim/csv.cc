#include "tools/sim/csv.h"

#include <algorithm>
#include <charconv>
#include <fstream>

#include "nodemgr/settings/cat.h"

namespace plexrl::sim {
namespace {

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells(1);
  for (char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back().push_back(c);
    }
  }
  return cells;
}

bool to_number(const std::string& text, double& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

absl::StatusOr<std::vector<TraceJob>> read_trace_jobs(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line)) return nodemgr::failed("can't read '", path, "'");
  const std::vector<std::string> header = split(line);
  std::size_t columns[3];
  const char* const names[3] = {"num_gpu", "submit_time", "duration"};
  for (int i = 0; i < 3; ++i) {
    columns[i] = static_cast<std::size_t>(std::find(header.begin(), header.end(), names[i]) -
                                          header.begin());
    if (columns[i] == header.size()) {
      return nodemgr::invalid("'", path, "' has no column '", names[i], "'");
    }
  }
  std::vector<TraceJob> jobs;
  for (int number = 2; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    const std::vector<std::string> cells = split(line);
    double values[3];
    for (int i = 0; i < 3; ++i) {
      bool good = columns[i] < cells.size() && to_number(cells[columns[i]], values[i]);
      if (!good || !(values[i] >= 0 && values[i] <= 1e15)) {
        return nodemgr::invalid("'", path, "' line ", number, ": '", names[i],
                                "' is not a number that can be used");
      }
    }
    if (values[0] < 1 || values[0] > 65536) {
      return nodemgr::invalid("'", path, "' line ", number, ": 'num_gpu' must be 1 to 65536");
    }
    jobs.push_back({values[1] / 1e3, values[2] / 1e3, static_cast<int>(values[0])});
  }
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const TraceJob& a, const TraceJob& b) { return a.submit_s < b.submit_s; });
  return jobs;
}

}  // namespace plexrl::sim
