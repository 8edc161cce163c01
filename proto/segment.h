#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/trace.pb.h"

/// The frames of a trace segment file; the layout is at the head of trace.proto. The writer (the
/// node manager) and the readers share this file, so that they can't disagree.
namespace plexrl::trace {

/// One frame, ready to be appended to a segment file.
std::string encode_frame(const TraceChunk& chunk, int compression_level = 1);

/// Takes frames off the front of a segment's bytes.
///
///   SegmentParser parser(bytes);
///   TraceChunk chunk;
///   while (parser.next(&chunk)) use(chunk);
///   if (!parser.problem().empty()) say(parser.problem());
///
/// The bytes are not trusted: a frame's sizes and checksum are checked before it is used, and no
/// frame is larger than kMaxFrameBytes. What follows a bad frame is not looked at, because its
/// beginning can't be known.
class SegmentParser {
 public:
  static constexpr std::uint32_t kMaxFrameBytes = 64u << 20;

  /// `bytes` must outlive the parser. They begin at byte `at` of a file: problem() counts from
  /// there.
  explicit SegmentParser(std::string_view bytes, std::uint64_t at = 0) : bytes_(bytes), at_(at) {}

  /// False at the end and at the first bad frame; `*chunk` is then empty.
  bool next(TraceChunk* chunk);

  /// Why reading ended early, with the offset; empty at a clean end.
  const std::string& problem() const { return problem_; }
  /// The last frame is not whole: of a file that is being written, the rest may come.
  bool is_cut_short() const { return is_cut_short_; }
  /// Where, from `from` on, a frame may begin; npos: nowhere.
  static std::size_t find_magic(std::string_view bytes, std::size_t from);
  /// Behind the last frame that was good.
  std::size_t offset() const { return offset_; }

 private:
  bool fail(const std::string& what);

  std::string_view bytes_;
  std::uint64_t at_;
  std::size_t offset_ = 0;
  std::string problem_;
  bool is_cut_short_ = false;
};

/// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78; RFC 3720, appendix B.4).
std::uint32_t crc32c(std::string_view bytes);

}  // namespace plexrl::trace
