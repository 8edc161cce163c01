#include "tools/simgpu/ptx/texture_ops.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tools/simgpu/ptx/half.h"
#include "tools/simgpu/ptx/texture_operands.h"

namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

using Texel = std::array<std::uint32_t, 4>;  // bits of floats or integers

constexpr std::int64_t kOutside = -1;  // an index that reads the border
constexpr std::uint32_t kOne = std::bit_cast<std::uint32_t>(1.0f);

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

std::uint64_t address_of(const TexelArray& array, const Place& at) {
  return array.address + static_cast<std::uint64_t>(at[2]) * array.slice +
         static_cast<std::uint64_t>(at[1]) * array.pitch +
         static_cast<std::uint64_t>(at[0]) * array.texel_bytes();
}

template <typename T>
T element(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

/// -128 and -127 are both -1.
template <typename T>
std::uint32_t normalised(T value) {
  constexpr auto kMost = static_cast<float>(std::numeric_limits<T>::max());
  return bits_of(std::max(static_cast<float>(value) / kMost, -1.0f));
}

template <typename T>
std::uint32_t small_integer(const std::byte* from, bool is_integer) {
  const T value = element<T>(from);
  return is_integer ? static_cast<std::uint32_t>(static_cast<std::int32_t>(value))
                    : normalised(value);
}

std::uint32_t channel(TexelFormat format, const std::byte* from, bool is_integer) {
  switch (format) {
    case TexelFormat::kUint8:
      return small_integer<std::uint8_t>(from, is_integer);
    case TexelFormat::kUint16:
      return small_integer<std::uint16_t>(from, is_integer);
    case TexelFormat::kInt8:
      return small_integer<std::int8_t>(from, is_integer);
    case TexelFormat::kInt16:
      return small_integer<std::int16_t>(from, is_integer);
    case TexelFormat::kHalf:
      return bits_of(float_from_half(element<std::uint16_t>(from)));
    default:
      return element<std::uint32_t>(from);
  }
}

bool gives_integers(const Texture& texture) {
  switch (texture.texels.format) {
    case TexelFormat::kUint32:
    case TexelFormat::kInt32:
      return true;
    case TexelFormat::kHalf:
    case TexelFormat::kFloat:
      return false;
    default:
      return texture.reads_integers;
  }
}

/// One lane's fetch from a level of a texture.
class Fetch {
 public:
  Fetch(Warp& warp, const Op* op, int lane, const Texture& texture, const TexelArray& texels,
        Geometry geometry)
      : warp_(warp),
        op_(op),
        lane_(lane),
        texture_(texture),
        texels_(texels),
        geometry_(geometry) {}

  /// Coordinates in texels. False after a fault.
  bool by_index(Place at, Texel* out) {
    const int count = dimensions(geometry_);
    if (texels_.is_linear_memory) {
      if (at[0] >= 0 && static_cast<std::uint64_t>(at[0]) < texels_.width) return read(at, out);
      *out = {};
      return true;
    }
    for (int d = 0; d < count; ++d) at[idx(d)] = inside(d, at[idx(d)]);
    return read(at, out);
  }

  bool nearest(const std::array<float, 3>& coordinates, std::int64_t layer, Texel* out) {
    Place at = {0, 0, layer};
    for (int d = 0; d < dimensions(geometry_); ++d)
      at[idx(d)] = inside(d, whole(std::floor(in_texels(d, coordinates[idx(d)]))));
    return read(at, out);
  }

  bool filtered(const std::array<float, 3>& coordinates, std::int64_t layer, Texel* out) {
    const int count = dimensions(geometry_);
    std::array<std::int64_t, 3> first = {};
    std::array<float, 3> weight = {};  // of the second texel
    for (int d = 0; d < count; ++d) split(d, coordinates[idx(d)], &first[idx(d)], &weight[idx(d)]);
    std::array<float, 4> sum = {};
    for (int corner = 0; corner < 1 << count; ++corner) {
      Place at = {0, 0, layer};
      float share = 1;
      for (int d = 0; d < count; ++d) {
        const int second = corner >> d & 1;
        at[idx(d)] = inside(d, first[idx(d)] + second);
        share *= second != 0 ? weight[idx(d)] : 1 - weight[idx(d)];
      }
      Texel texel;
      if (!read(at, &texel)) return false;
      for (std::size_t c = 0; c < 4; ++c) sum[c] += share * float_of(texel[c]);
    }
    for (std::size_t c = 0; c < 4; ++c) (*out)[c] = bits_of(sum[c]);
    return true;
  }

  /// "Counter-clockwise, starting at the lower left".
  bool gathered(const std::array<float, 3>& coordinates, std::size_t component, Texel* out) {
    std::int64_t x = 0;
    std::int64_t y = 0;
    float ignored = 0;
    split(0, coordinates[0], &x, &ignored);
    split(1, coordinates[1], &y, &ignored);
    const std::int64_t corners[4][2] = {{x, y + 1}, {x + 1, y + 1}, {x + 1, y}, {x, y}};
    for (std::size_t i = 0; i < 4; ++i) {
      Texel texel;
      if (!read({inside(0, corners[i][0]), inside(1, corners[i][1]), 0}, &texel)) return false;
      (*out)[i] = texel[component];
    }
    return true;
  }

 private:
  static std::size_t idx(int d) { return static_cast<std::size_t>(d); }

  std::int64_t extent(int d) const {
    return static_cast<std::int64_t>(d == 0   ? texels_.width
                                     : d == 1 ? texels_.height
                                              : texels_.depth);
  }

  bool is_normalized() const { return texture_.is_normalized || is_cube(geometry_); }

  float in_texels(int d, float coordinate) const {
    return is_normalized() ? coordinate * static_cast<float>(extent(d)) : coordinate;
  }

  /// A whole float as a number; not-a-number and what is far outside become a place far outside.
  static std::int64_t whole(float value) {
    constexpr float kFar = 1e9f;
    if (!(value > -kFar)) return -static_cast<std::int64_t>(kFar);
    return static_cast<std::int64_t>(std::min(value, kFar));
  }

  /// The first of the two texels that filtering takes, and the share of the second.
  void split(int d, float coordinate, std::int64_t* first, float* weight) const {
    const float x = in_texels(d, coordinate) - 0.5f;
    const float below = std::floor(x);
    *first = whole(below);
    *weight = std::floor((x - below) * 256 + 0.5f) / 256;
  }

  /// The index that the address mode makes of one, or kOutside.
  std::int64_t inside(int d, std::int64_t index) const {
    const std::int64_t n = extent(d);
    if (index >= 0 && index < n) return index;
    AddressMode mode = texture_.modes[d];
    // "Only available with normalized coordinates"
    if (!is_normalized() && mode != AddressMode::kBorder) mode = AddressMode::kClamp;
    switch (mode) {
      case AddressMode::kWrap:
        return (index % n + n) % n;
      case AddressMode::kMirror: {
        const std::int64_t in_pair = (index % (2 * n) + 2 * n) % (2 * n);
        return in_pair < n ? in_pair : 2 * n - 1 - in_pair;
      }
      case AddressMode::kBorder:
        return kOutside;
      default:
        return index < 0 ? 0 : n - 1;
    }
  }

  /// Channels that the array lacks are 0, the fourth is 1.
  bool read(const Place& at, Texel* out) {
    const bool is_integer = gives_integers(texture_);
    *out = {0, 0, 0, is_integer ? 1 : kOne};
    const auto channels = static_cast<std::size_t>(texels_.channels);
    if (at[0] == kOutside || at[1] == kOutside || at[2] == kOutside) {
      for (std::size_t c = 0; c < channels; ++c) (*out)[c] = bits_of(texture_.border[c]);
      return true;
    }
    const std::uint64_t address = address_of(texels_, at);
    const std::size_t bytes = texels_.texel_bytes();
    const std::byte* const from = generic_address(warp_, address, bytes, lane_);
    if (from == nullptr) {
      raise_fault(warp_, op_, Fault::Kind::kIllegalAddress, address);
      return false;
    }
    warp_.global_bytes += bytes;
    for (std::size_t c = 0; c < channels; ++c)
      (*out)[c] = channel(texels_.format, from + c * bytes_of(texels_.format), is_integer);
    return true;
  }

  Warp& warp_;
  const Op* const op_;
  const int lane_;
  const Texture& texture_;
  const TexelArray& texels_;
  const Geometry geometry_;
};

/// The binary logarithm to 8 bits of fraction, by operations that are the same everywhere.
float rough_log2(float value) {
  constexpr float kLeast = -126, kMost = 127;
  if (!(value > 0)) return kLeast;
  if (!std::isfinite(value)) return kMost;
  int exponent = 0;
  float mantissa = 2 * std::frexp(value, &exponent);  // 1 to 2
  float result = static_cast<float>(exponent - 1);
  for (float bit = 0.5f; bit >= 1.0f / 256; bit /= 2) {
    mantissa *= mantissa;
    if (mantissa < 2) continue;
    mantissa /= 2;
    result += bit;
  }
  return result;
}

/// Which levels of a texture a fetch reads, and the share of the second.
struct Levels {
  std::size_t first = 0, second = 0;
  float share = 0;
};

Levels levels_of(const Texture& texture, float detail) {
  Levels levels;
  if (texture.smaller.empty()) return levels;
  const auto last = static_cast<float>(texture.smaller.size());
  // By fmin and fmax, which drop a NaN: a program may compute one.
  const float least = std::fmin(std::fmax(texture.least_level, 0.0f), last);
  const float most = std::fmin(std::fmax(texture.most_level, least), last);
  const float wanted = std::fmin(std::fmax(detail + texture.level_bias, least), most);
  if (!texture.mixes_levels) {
    levels.first = levels.second = static_cast<std::size_t>(std::floor(wanted + 0.5f));
    return levels;
  }
  levels.first = static_cast<std::size_t>(std::floor(wanted));
  levels.second = std::min(levels.first + 1, texture.smaller.size());
  levels.share = std::floor((wanted - std::floor(wanted)) * 256 + 0.5f) / 256;
  return levels;
}

const TexelArray& level(const Texture& texture, std::size_t number) {
  return number == 0 ? texture.texels : texture.smaller[number - 1];
}

/// The face of a cube that a direction meets, and where, from 0 to 1 ("Cubemap Textures", CUDA C++
/// programming guide).
std::int64_t project(const std::array<float, 3>& direction, std::array<float, 3>* place) {
  const auto [x, y, z] = direction;
  const float ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
  std::int64_t face = 0;
  float most = 0, s = 0, t = 0;
  if (ax >= ay && ax >= az) {
    face = x >= 0 ? 0 : 1;
    most = ax;
    s = x >= 0 ? -z : z;
    t = -y;
  } else if (ay >= az) {
    face = y >= 0 ? 2 : 3;
    most = ay;
    s = x;
    t = y >= 0 ? z : -z;
  } else {
    face = z >= 0 ? 4 : 5;
    most = az;
    s = z >= 0 ? x : -x;
    t = -y;
  }
  *place = {(s / most + 1) / 2, (t / most + 1) / 2, 0};
  return face;
}

/// The level of detail that the operands behind the coordinates ask for.
float detail_of(const Warp& warp, const Op* op, int lane, const TexelArray& texels,
                Geometry geometry) {
  const auto detail = static_cast<Detail>(op->imm >> 8);
  const int first = (has_layers(geometry) ? 1 : 0) + coordinate_count(geometry);
  if (detail == Detail::kNone) return 0;
  if (detail == Detail::kLevel) return float_of(coordinates_of(warp, op, first)[lane]);
  const std::uint64_t extents[3] = {texels.width, texels.height, texels.depth};
  float longest = 0;  // squared
  for (int axis = 0; axis < 2; ++axis) {
    float sum = 0;
    for (int d = 0; d < coordinate_count(geometry); ++d) {
      const int at = first + axis * coordinate_count(geometry) + d;
      // A direction to a face of a cube, two units wide, covers half as many texels.
      const float texels_per_unit =
          is_cube(geometry) ? static_cast<float>(texels.width) / 2 : static_cast<float>(extents[d]);
      const float step = float_of(coordinates_of(warp, op, at)[lane]) * texels_per_unit;
      sum += step * step;
    }
    longest = std::max(longest, sum);
  }
  return rough_log2(longest) / 2;
}

bool fetch_lane(Warp& warp, const Op* op, int lane, const Texture& texture, Texel* out) {
  const auto geometry = static_cast<Geometry>(op->mode);
  const int skip = has_layers(geometry) ? 1 : 0;
  const std::uint64_t in_layer = is_cube(geometry) ? 6 : 1;
  std::int64_t layer = skip != 0 ? layer_of(warp, op, texture.texels.depth / in_layer, lane) : 0;
  if ((op->imm & 1) != 0) {
    Fetch fetch(warp, op, lane, texture, texture.texels, geometry);
    Place at = {0, 0, layer};
    for (int d = 0; d < dimensions(geometry); ++d) {
      at[static_cast<std::size_t>(d)] =
          static_cast<std::int32_t>(coordinates_of(warp, op, skip + d)[lane]);
    }
    return fetch.by_index(at, out);
  }
  std::array<float, 3> coordinates = {};
  for (int d = 0; d < coordinate_count(geometry); ++d)
    coordinates[static_cast<std::size_t>(d)] = float_of(coordinates_of(warp, op, skip + d)[lane]);
  if (is_cube(geometry)) {
    const std::int64_t face = project(std::array<float, 3>(coordinates), &coordinates);
    layer = layer * 6 + face;
  }
  const bool is_filtered = texture.is_filtered && !texture.texels.is_linear_memory;
  const auto read_level = [&](std::size_t number, Texel* texel) {
    Fetch fetch(warp, op, lane, texture, level(texture, number), geometry);
    return is_filtered ? fetch.filtered(coordinates, layer, texel)
                       : fetch.nearest(coordinates, layer, texel);
  };
  const Levels levels = levels_of(texture, detail_of(warp, op, lane, texture.texels, geometry));
  if (!read_level(levels.first, out)) return false;
  if (levels.share == 0) return true;
  Texel second;
  if (!read_level(levels.second, &second)) return false;
  for (std::size_t c = 0; c < 4; ++c) {
    (*out)[c] =
        bits_of((1 - levels.share) * float_of((*out)[c]) + levels.share * float_of(second[c]));
  }
  return true;
}

bool gather_lane(Warp& warp, const Op* op, int lane, const Texture& texture, Texel* out) {
  const std::array<float, 3> coordinates = {float_of(coordinates_of(warp, op, 0)[lane]),
                                            float_of(coordinates_of(warp, op, 1)[lane]), 0};
  Fetch fetch(warp, op, lane, texture, texture.texels, Geometry::k2d);
  return fetch.gathered(coordinates, static_cast<std::size_t>(op->imm), out);
}

template <bool (*kLane)(Warp&, const Op*, int, const Texture&, Texel*)>
const Op* each_fetch(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto* const handles = source<std::uint64_t>(warp, op->a);
  Objects<Texture> objects(warp, warp.memory->find_texture);
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Texture* const texture = objects(handles[lane]);
    if (texture == nullptr) {
      raise_fault(warp, op, Fault::Kind::kIllegalAddress, handles[lane]);
      break;
    }
    Texel texel;
    if (!kLane(warp, op, lane, *texture, &texel)) break;
    for (int c = 0; c < op->list_results; ++c) {
      if (op->list[c] != kNoOperand)
        destination<std::uint32_t>(warp, op->list[c])[lane] = texel[static_cast<std::size_t>(c)];
    }
  }
  return op + 1;
}

}  // namespace

OpFn texture() { return each_fetch<fetch_lane>; }
OpFn texture_gather() { return each_fetch<gather_lane>; }

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE

namespace plexrl::simgpu::ptx {

int dimensions(Geometry geometry) {
  switch (geometry) {
    case Geometry::k1d:
    case Geometry::k1dLayers:
      return 1;
    case Geometry::k3d:
      return 3;
    default:
      return 2;
  }
}

bool has_layers(Geometry geometry) {
  return geometry == Geometry::k1dLayers || geometry == Geometry::k2dLayers ||
         geometry == Geometry::kCubeLayers;
}

bool is_cube(Geometry geometry) {
  return geometry == Geometry::kCube || geometry == Geometry::kCubeLayers;
}

int coordinate_count(Geometry geometry) { return is_cube(geometry) ? 3 : dimensions(geometry); }

OpFn texture_op() { return PLEXRL_PTX_LEVEL::texture(); }
OpFn texture_gather_op() { return PLEXRL_PTX_LEVEL::texture_gather(); }

}  // namespace plexrl::simgpu::ptx
