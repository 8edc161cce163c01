#include "tools/trace/reader.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/trace/run_folder.h"
#include "tools/trace/segment_file.h"

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

absl::Status read_segment(const std::string& file, const TakeRecord& take,
                          std::vector<std::string>& warnings) {
  SegmentFile segment(file);
  std::size_t left_out = 0;
  for (TraceChunk chunk; segment.next(&chunk);) left_out += take_records(chunk, take);
  if (!segment.status().ok()) return segment.status();
  if (left_out > 0) {
    warnings.push_back(absl::StrCat(file, ": ", left_out,
                                    " records left out: they name times that no clock shows"));
  }
  if (!segment.problem().empty()) {
    std::error_code error;
    warnings.push_back(absl::StrCat(file, ": ", segment.problem(), " of ",
                                    fs::file_size(file, error), "; read up to there"));
  }
  return absl::OkStatus();
}

/// CLOCK_BOOTTIME of a machine that has been up for nine years; durations are shorter. Sums and
/// differences of such times stay far from where 64 bits end.
constexpr std::uint64_t kLatestNs = std::uint64_t{1} << 58;

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

/// The fields of a kind of message that are times or durations, by their names, or may hold some.
const std::vector<const FieldDescriptor*>& timed_fields(const Descriptor* type) {
  static std::unordered_map<const Descriptor*, std::vector<const FieldDescriptor*>> known;
  const auto [found, is_new] = known.try_emplace(type);
  for (int i = 0; is_new && i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    if (field->is_repeated()) continue;
    const bool is_time = field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64 &&
                         absl::EndsWith(field->name(), "_ns");
    if (is_time || field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      found->second.push_back(field);
    }
  }
  return found->second;
}

/// Whether all times and durations in it can be true.
bool has_possible_times(const google::protobuf::Message& message) {
  const auto* const reflection = message.GetReflection();
  for (const FieldDescriptor* const field : timed_fields(message.GetDescriptor())) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (reflection->HasField(message, field) &&
          !has_possible_times(reflection->GetMessage(message, field)))
        return false;
    } else if (reflection->GetUInt64(message, field) > kLatestNs) {
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

std::size_t take_records(TraceChunk& chunk, const TakeRecord& take) {
  std::size_t left_out = 0;
  for (TraceRecord& record : *chunk.mutable_records()) {
    if (has_possible_times(record)) {
      take(std::move(record));
    } else {
      ++left_out;
    }
  }
  return left_out;
}

absl::Status read_records(const std::vector<std::string>& paths, const TakeRecord& take,
                          std::vector<std::string>& warnings) {
  std::set<fs::path> seen;  // a segment named twice counts once
  for (const std::string& path : paths) {
    const auto files = segments_of(path);
    if (!files.ok()) return files.status();
    for (const std::string& file : *files) {
      std::error_code error;
      if (!seen.insert(fs::weakly_canonical(file, error)).second) continue;
      if (auto status = read_segment(file, take, warnings); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RawTrace> read_trace(const std::vector<std::string>& paths) {
  RawTrace trace;
  const auto status = read_records(
      paths, [&](TraceRecord&& record) { trace.records.push_back(std::move(record)); },
      trace.warnings);
  if (!status.ok()) return status;
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
