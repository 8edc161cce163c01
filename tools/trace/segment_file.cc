#include "tools/trace/segment_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/segment.h"

namespace plexrl::trace {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

/// Whether a good frame begins somewhere in it, behind its first byte.
bool has_frame_inside(std::string_view bytes) {
  for (auto at = SegmentParser::find_magic(bytes, 1); at != std::string_view::npos;
       at = SegmentParser::find_magic(bytes, at + 1)) {
    SegmentParser parser(bytes.substr(at));
    TraceChunk chunk;
    if (parser.next(&chunk)) return true;
  }
  return false;
}

}  // namespace

SegmentFile::SegmentFile(std::string path, std::uint64_t from)
    : path_(std::move(path)), in_(path_, std::ios::binary), offset_(from) {
  in_.seekg(static_cast<std::streamoff>(from));
  if (!in_) status_ = absl::UnavailableError(absl::StrCat(path_, ": ", std::strerror(errno)));
}

bool SegmentFile::read_more() {
  buffer_.erase(0, used_);
  used_ = 0;
  const std::size_t had = buffer_.size();
  buffer_.resize(had + kReadBytes);
  errno = 0;
  in_.read(buffer_.data() + had, static_cast<std::streamsize>(kReadBytes));
  buffer_.resize(had + static_cast<std::size_t>(in_.gcount()));
  if (in_.bad() || (errno != 0 && !in_.eof())) {
    status_ = absl::UnavailableError(absl::StrCat(path_, ": ", std::strerror(errno)));
  }
  return buffer_.size() > had;
}

bool SegmentFile::next(TraceChunk* chunk) {
  if (!problem_.empty() || !status_.ok()) return false;
  while (true) {
    const std::string_view rest = std::string_view(buffer_).substr(used_);
    SegmentParser parser(rest, offset_);
    if (parser.next(chunk)) {
      used_ += parser.offset();
      offset_ += parser.offset();
      return true;
    }
    const bool may_be_longer = rest.empty() || parser.is_cut_short();
    if (may_be_longer && read_more()) continue;
    problem_ = parser.problem();
    may_go_on_ = parser.is_cut_short() && !has_frame_inside(rest);
    return false;
  }
}

}  // namespace plexrl::trace
