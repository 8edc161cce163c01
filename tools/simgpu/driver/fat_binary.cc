#include "tools/simgpu/driver/fat_binary.h"

#include <lz4.h>
#include <zstd.h>

#include <cstddef>
#include <cstring>

namespace plexrl::simgpu {
namespace {

constexpr std::uint32_t kWrapperMagic = 0x466243B1;
constexpr std::uint32_t kHeaderMagic = 0xBA55ED50;
constexpr std::uint64_t kFlagLz4 = 0x2000;
constexpr std::uint64_t kFlagZstd = 0x8000;
// No PTX comes near it, and LZ4 can't shrink by more than the ratio: a damaged size does not ask
// for all memory.
constexpr std::uint64_t kMaxPlainBytes = 1ull << 31;
constexpr std::uint64_t kMaxLz4Ratio = 255;

struct Wrapper {
  std::uint32_t magic;
  std::uint32_t version;
  const std::byte* header;
  const void* unused;
};

struct Header {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t header_bytes;
  std::uint64_t files_bytes;  // behind this header
};
static_assert(sizeof(Header) == 16);

struct FileHeader {
  std::uint16_t kind;
  std::uint16_t version;
  std::uint32_t header_bytes;
  std::uint64_t payload_bytes;  // with padding
  std::uint32_t packed_bytes;   // 0 when it isn't compressed
  std::uint32_t unused1[2];
  std::uint32_t sm;
  std::uint32_t unused2[2];
  std::uint64_t flags;
  std::uint64_t unused3;
  std::uint64_t plain_bytes;
};
static_assert(offsetof(FileHeader, sm) == 28 && offsetof(FileHeader, flags) == 40 &&
              offsetof(FileHeader, plain_bytes) == 56 && sizeof(FileHeader) == 64);

template <typename T>
T read_at(const void* where) noexcept {
  T value;
  std::memcpy(&value, where, sizeof(value));
  return value;
}

FatFile::Kind kind_of(std::uint16_t kind) noexcept {
  if (kind == 1) return FatFile::Kind::kPtx;
  if (kind == 2) return FatFile::Kind::kMachineCode;
  return FatFile::Kind::kOther;
}

bool read_file(const std::byte* where, const FileHeader& header, FatFile* file) {
  file->kind = kind_of(header.kind);
  file->sm = static_cast<int>(header.sm);
  if ((header.flags & kFlagZstd) != 0) file->packing = FatFile::Packing::kZstd;
  if ((header.flags & kFlagLz4) != 0) file->packing = FatFile::Packing::kLz4;
  const bool is_packed = file->packing != FatFile::Packing::kPlain;
  const std::uint64_t bytes = is_packed ? header.packed_bytes : header.payload_bytes;
  if (bytes > header.payload_bytes) return false;
  file->payload = {reinterpret_cast<const char*>(where) + header.header_bytes, bytes};
  file->plain_bytes = is_packed ? header.plain_bytes : bytes;
  return true;
}

bool unpack_zstd(const FatFile& file, std::string* text) {
  if (ZSTD_getFrameContentSize(file.payload.data(), file.payload.size()) != file.plain_bytes) {
    return false;
  }
  text->resize(file.plain_bytes);
  const std::size_t got =
      ZSTD_decompress(text->data(), text->size(), file.payload.data(), file.payload.size());
  return ZSTD_isError(got) == 0 && got == text->size();
}

bool unpack_lz4(const FatFile& file, std::string* text) {
  if (file.plain_bytes > (file.payload.size() + 1) * kMaxLz4Ratio) return false;
  text->resize(file.plain_bytes);
  const int got =
      LZ4_decompress_safe(file.payload.data(), text->data(), static_cast<int>(file.payload.size()),
                          static_cast<int>(text->size()));
  return got >= 0 && static_cast<std::size_t>(got) == text->size();
}

}  // namespace

bool is_fat_binary(const void* image) noexcept {
  const auto magic = read_at<std::uint32_t>(image);
  return magic == kWrapperMagic || magic == kHeaderMagic;
}

bool read_fat_binary(const void* image, std::size_t bytes, std::vector<FatFile>* files) {
  const auto* at = static_cast<const std::byte*>(image);
  if (bytes != 0 && bytes < sizeof(Header)) return false;
  if (read_at<std::uint32_t>(at) == kWrapperMagic) {
    if (bytes != 0) return false;
    at = read_at<Wrapper>(at).header;
    if (at == nullptr) return false;
  }
  const auto header = read_at<Header>(at);
  if (header.magic != kHeaderMagic || header.header_bytes < sizeof(Header)) return false;
  if (bytes != 0 &&
      (header.header_bytes > bytes || header.files_bytes > bytes - header.header_bytes)) {
    return false;
  }
  at += header.header_bytes;
  std::uint64_t left = header.files_bytes;
  while (left >= sizeof(FileHeader)) {
    const auto file_header = read_at<FileHeader>(at);
    const std::uint64_t head = file_header.header_bytes;
    if (head < sizeof(FileHeader) || head > left || file_header.payload_bytes > left - head) {
      return false;
    }
    FatFile file;
    if (!read_file(at, file_header, &file)) return false;
    files->push_back(file);
    at += head + file_header.payload_bytes;
    left -= head + file_header.payload_bytes;
  }
  return true;
}

bool unpack(const FatFile& file, std::string* text) {
  if (file.plain_bytes > kMaxPlainBytes || file.payload.size() > kMaxPlainBytes) return false;
  if (file.packing == FatFile::Packing::kPlain) {
    text->assign(file.payload);
  } else {
    const bool is_ok =
        file.packing == FatFile::Packing::kZstd ? unpack_zstd(file, text) : unpack_lz4(file, text);
    if (!is_ok) return false;
  }
  text->resize(text->find_last_not_of('\0') + 1);
  return true;
}

}  // namespace plexrl::simgpu
