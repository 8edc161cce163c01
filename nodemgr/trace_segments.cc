#include "nodemgr/trace_segments.h"

#include <fcntl.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <tuple>
#include <vector>

#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

namespace fs = std::filesystem;

}  // namespace

absl::Status TraceSegments::open_next() {
  file_.reset();
  std::error_code error;
  fs::create_directories(run_folder_, error);
  char name[32];
  std::snprintf(name, sizeof name, "%06d.plxt", next_number_);
  path_ = cat(run_folder_, "/", name);
  file_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (!file_.is_open()) return failed("trace '", path_, "': ", std::strerror(errno));
  ++next_number_;
  written_ = 0;
  return absl::OkStatus();
}

absl::Status TraceSegments::append(const std::string& frame) {
  ssize_t wrote = ::write(file_.get(), frame.data(), frame.size());
  if (wrote == static_cast<ssize_t>(frame.size())) {
    written_ += frame.size();
    return absl::OkStatus();
  }
  std::string why = wrote < 0 ? std::strerror(errno) : "disk full";
  if (::ftruncate(file_.get(), static_cast<off_t>(written_)) != 0) file_.reset();
  return failed("trace '", path_, "': ", why);
}

void prune_segments(const std::string& folder, std::uint64_t max_bytes,
                    std::chrono::seconds max_age, const std::string& keep) {
  struct Segment {
    fs::file_time_type changed;
    fs::path path;
    std::uint64_t bytes;
  };
  std::vector<Segment> segments;
  std::uint64_t total = 0;
  std::error_code error;
  for (const auto& run : fs::directory_iterator(folder, error)) {
    for (const auto& file : fs::directory_iterator(run.path(), error)) {
      if (file.path().extension() != ".plxt") continue;
      std::uint64_t bytes = file.file_size(error);
      if (error) continue;
      segments.push_back({file.last_write_time(error), file.path(), bytes});
      total += bytes;
    }
  }
  std::sort(segments.begin(), segments.end(), [](const Segment& a, const Segment& b) {
    return std::tie(a.changed, a.path) < std::tie(b.changed, b.path);
  });
  auto oldest_kept = fs::file_time_type::clock::now() - max_age;
  for (const Segment& segment : segments) {
    if (total <= max_bytes && segment.changed >= oldest_kept) break;
    if (segment.path == keep) continue;
    if (!fs::remove(segment.path, error)) continue;
    total -= segment.bytes;
    fs::remove(segment.path.parent_path(), error);  // only succeeds when it was the last
  }
}

}  // namespace plexrl::nodemgr
