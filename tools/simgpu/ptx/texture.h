#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

/// What texture and surface objects stand for, as kernels see them ("Texture Fetching", CUDA C++
/// programming guide). The driver makes these; they are immutable.
namespace plexrl::simgpu::ptx {

enum class TexelFormat : std::uint8_t {
  kUint8,
  kUint16,
  kUint32,
  kInt8,
  kInt16,
  kInt32,
  kHalf,
  kFloat
};

inline std::size_t bytes_of(TexelFormat format) {
  switch (format) {
    case TexelFormat::kUint8:
    case TexelFormat::kInt8:
      return 1;
    case TexelFormat::kUint16:
    case TexelFormat::kInt16:
    case TexelFormat::kHalf:
      return 2;
    default:
      return 4;
  }
}

/// Texels in device memory. Also what a surface object stands for.
struct TexelArray {
  std::uint64_t address = 0;
  std::uint64_t width = 1, height = 1;
  std::uint64_t depth = 1;             ///< slices of a 3D array, layers, or six faces a cube
  std::uint64_t pitch = 0, slice = 0;  ///< bytes from row to row, and from slice to slice
  TexelFormat format = TexelFormat::kFloat;
  int channels = 1;  ///< 1, 2 or 4
  /// Plain memory, read by index only: outside of it there are zeros.
  bool is_linear_memory = false;

  std::size_t texel_bytes() const { return bytes_of(format) * static_cast<std::size_t>(channels); }
};

enum class AddressMode : std::uint8_t { kWrap, kClamp, kMirror, kBorder };

struct Texture {
  TexelArray texels;
  AddressMode modes[3] = {AddressMode::kClamp, AddressMode::kClamp, AddressMode::kClamp};
  bool is_filtered = false;    ///< linear filtering; else the nearest texel
  bool is_normalized = false;  ///< coordinates from 0 to 1
  /// 8- and 16-bit integers come as they are; else as floats from 0 or -1 to 1.
  bool reads_integers = false;
  float border[4] = {};

  // Mipmaps. A fetch's level of detail, with `level_bias` added, is kept between the other two.
  std::vector<TexelArray> smaller;  ///< levels 1, 2, …; `texels` is level 0
  bool mixes_levels = false;        ///< between the two nearest levels; else the nearest one
  float level_bias = 0, least_level = 0, most_level = 0;
};

}  // namespace plexrl::simgpu::ptx
