#include "proto/segment.h"

#include <zstd.h>

#include <array>

namespace plexrl::trace {
namespace {

constexpr std::uint32_t kFrameMagic = 0x54584c50;  // "PLXT"
constexpr std::size_t kHeaderBytes = 16;

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78u : 0u);
    table[byte] = crc;
  }
  return table;
}

std::uint32_t load_u32(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = (value << 8) | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

void append_u32(std::string& out, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = make_crc_table();
  std::uint32_t crc = ~0u;
  for (const char c : bytes)
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

std::string encode_frame(const TraceChunk& chunk, int compression_level) {
  const std::string plain = chunk.SerializeAsString();
  std::string packed(ZSTD_compressBound(plain.size()), '\0');
  packed.resize(
      ZSTD_compress(packed.data(), packed.size(), plain.data(), plain.size(), compression_level));
  std::string frame;
  append_u32(frame, kFrameMagic);
  append_u32(frame, static_cast<std::uint32_t>(packed.size()));
  append_u32(frame, static_cast<std::uint32_t>(plain.size()));
  append_u32(frame, crc32c(packed));
  return frame + packed;
}

bool SegmentParser::fail(const std::string& what) {
  problem_ = what + " at byte " + std::to_string(at_ + offset_);
  return false;
}

std::size_t SegmentParser::find_magic(std::string_view bytes, std::size_t from) {
  return bytes.find("PLXT", from);
}

bool SegmentParser::next(TraceChunk* chunk) {
  chunk->Clear();
  if (!problem_.empty() || offset_ == bytes_.size()) return false;
  const std::string_view rest = bytes_.substr(offset_);
  is_cut_short_ = rest.size() < kHeaderBytes;
  if (is_cut_short_) return fail("a frame is cut short");
  if (load_u32(rest, 0) != kFrameMagic) return fail("no frame begins");
  const std::uint32_t packed_bytes = load_u32(rest, 4);
  const std::uint32_t plain_bytes = load_u32(rest, 8);
  if (packed_bytes > kMaxFrameBytes || plain_bytes > kMaxFrameBytes) {
    return fail("a frame claims to be larger than 64 MiB");
  }
  is_cut_short_ = rest.size() - kHeaderBytes < packed_bytes;
  if (is_cut_short_) return fail("a frame is cut short");
  const std::string_view packed = rest.substr(kHeaderBytes, packed_bytes);
  if (crc32c(packed) != load_u32(rest, 12)) return fail("a frame's checksum is wrong");
  std::string plain(plain_bytes, '\0');
  const std::size_t got = ZSTD_decompress(plain.data(), plain.size(), packed.data(), packed.size());
  if (ZSTD_isError(got) || got != plain_bytes) return fail("a frame can't be decompressed");
  if (!chunk->ParseFromString(plain)) {
    chunk->Clear();
    return fail("a frame holds no trace records");
  }
  offset_ += kHeaderBytes + packed_bytes;
  return true;
}

}  // namespace plexrl::trace
