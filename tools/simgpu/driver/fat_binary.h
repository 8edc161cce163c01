#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Fat binaries, as nvcc and fatbinary make them: a header and files of PTX or machine code, one
/// for each architecture, plain or compressed. The wrapper is that of CUDA's public header
/// fatbinary_section.h.
///
/// Images in memory come by pointer alone; then only their own headers tell their sizes.
namespace plexrl::simgpu {

/// One file of a fat binary. `payload` points into the image.
struct FatFile {
  enum class Kind { kPtx, kMachineCode, kOther };
  enum class Packing { kPlain, kZstd, kLz4 };
  Kind kind = Kind::kOther;
  Packing packing = Packing::kPlain;
  int sm = 0;                     ///< architecture, for example 75
  std::string_view payload;       ///< as stored
  std::uint64_t plain_bytes = 0;  ///< size after unpacking
};

/// Whether `image` begins like a fat binary or its wrapper. Reads 4 bytes.
bool is_fat_binary(const void* image) noexcept;

/// The files of a fat binary, or of the one that a wrapper points to. False when headers contradict
/// each other, or reach beyond `bytes`, the image's size where that is known (0: it isn't; only
/// then may there be a wrapper).
bool read_fat_binary(const void* image, std::size_t bytes, std::vector<FatFile>* files);

/// The text of a PTX file without the zeros that end it. False when it can't be unpacked.
bool unpack(const FatFile& file, std::string* text);

}  // namespace plexrl::simgpu
