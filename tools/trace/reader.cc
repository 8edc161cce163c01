#include "tools/trace/reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/segment.h"
#include "tools/trace/run_folder.h"

namespace plexrl::trace {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::vector<std::string>> segments_of(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  if (!fs::is_directory(path, error)) return std::vector<std::string>{path};
  if (auto files = segments_in(path); !files.empty()) return files;
  auto run = newest_run({path});
  if (!run.ok()) return absl::NotFoundError(absl::StrCat(path, " holds no trace (*.plxt)"));
  return segments_in(*run);
}

absl::Status read_segment(const std::string& file, RawTrace& trace) {
  std::ifstream in(file, std::ios::binary);
  std::stringstream contents;
  contents << in.rdbuf();
  if (!in) {
    const int why = errno;
    std::error_code error;
    if (fs::file_size(file, error) == 0 && !error) return absl::OkStatus();  // just begun
    return absl::UnavailableError(absl::StrCat(file, ": ", strerror(why)));
  }
  const std::string bytes = contents.str();
  SegmentParser parser(bytes);
  std::size_t left_out = 0;
  for (TraceChunk chunk; parser.next(&chunk);) left_out += take_records(chunk, trace);
  if (left_out > 0) {
    trace.warnings.push_back(absl::StrCat(
        file, ": ", left_out, " records left out: they name times that no clock shows"));
  }
  if (!parser.problem().empty()) {
    trace.warnings.push_back(
        absl::StrCat(file, ": ", parser.problem(), " of ", bytes.size(), "; read up to there"));
  }
  return absl::OkStatus();
}

/// CLOCK_BOOTTIME of a machine that has been up for nine years; durations are shorter. Sums and
/// differences of such times stay far from where 64 bits end.
constexpr std::uint64_t kLatestNs = std::uint64_t{1} << 58;

/// Whether all times and durations in it, by the names of the fields, can be true.
bool has_possible_times(const google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const auto* const reflection = message.GetReflection();
  const auto* const type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    if (field->is_repeated()) continue;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (reflection->HasField(message, field) &&
          !has_possible_times(reflection->GetMessage(message, field)))
        return false;
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64 &&
               absl::EndsWith(field->name(), "_ns") &&
               reflection->GetUInt64(message, field) > kLatestNs) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<std::string> segments_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".plxt") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void sort_by_time(RawTrace& trace) {
  std::stable_sort(trace.records.begin(), trace.records.end(),
                   [](const auto& a, const auto& b) { return a.at_ns() < b.at_ns(); });
}

std::size_t take_records(TraceChunk& chunk, RawTrace& trace) {
  std::size_t left_out = 0;
  for (TraceRecord& record : *chunk.mutable_records()) {
    if (has_possible_times(record)) {
      trace.records.push_back(std::move(record));
    } else {
      ++left_out;
    }
  }
  return left_out;
}

absl::StatusOr<RawTrace> read_trace(const std::vector<std::string>& paths) {
  RawTrace trace;
  std::set<fs::path> seen;  // a segment named twice counts once
  for (const std::string& path : paths) {
    const auto files = segments_of(path);
    if (!files.ok()) return files.status();
    for (const std::string& file : *files) {
      std::error_code error;
      if (!seen.insert(fs::weakly_canonical(file, error)).second) continue;
      if (auto status = read_segment(file, trace); !status.ok()) return status;
    }
  }
  sort_by_time(trace);
  return trace;
}

absl::StatusOr<std::string> newest_run(const std::vector<std::string>& folders) {
  std::string newest;
  fs::file_time_type newest_time = fs::file_time_type::min();
  for (const std::string& folder : folders) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (!entry.is_directory(error)) continue;
      for (const std::string& file : segments_in(entry.path().string())) {
        const auto time = fs::last_write_time(file, error);
        if (error || time < newest_time) continue;
        newest_time = time;
        newest = entry.path().string();
      }
    }
  }
  if (newest.empty()) return absl::NotFoundError("there is no trace yet");
  return newest;
}

}  // namespace plexrl::trace
