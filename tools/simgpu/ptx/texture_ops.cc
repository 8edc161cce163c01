#include "tools/simgpu/ptx/texture_ops.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>

#include "tools/simgpu/ptx/half.h"
#include "tools/simgpu/ptx/launch.h"
#include "tools/simgpu/ptx/level/lanes.h"
#include "tools/simgpu/ptx/texture.h"

namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

using Texel = std::array<std::uint32_t, 4>;  // bits of floats or integers
using Place = std::array<std::int64_t, 3>;   // of a texel: x, y, z or layer

constexpr std::int64_t kOutside = -1;  // an index that reads the border
constexpr std::uint32_t kOne = std::bit_cast<std::uint32_t>(1.0f);

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// The object that a lane's handle means; lanes mostly have the same one.
template <typename T>
class Objects {
 public:
  using Find = std::shared_ptr<const T> (*)(void*, std::uint64_t);
  Objects(Warp& warp, Find find) : warp_(warp), find_(find) {}
  const T* operator()(std::uint64_t handle) {
    if (object_ == nullptr || handle != handle_) {
      object_ = find_ == nullptr ? nullptr : find_(warp_.memory->context, handle);
      handle_ = handle;
    }
    return object_.get();
  }

 private:
  Warp& warp_;
  const Find find_;
  std::uint64_t handle_ = 0;
  std::shared_ptr<const T> object_;
};

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

/// One lane's fetch.
class Fetch {
 public:
  Fetch(Warp& warp, const Op* op, int lane, const Texture& texture, Geometry geometry)
      : warp_(warp), op_(op), lane_(lane), texture_(texture), geometry_(geometry) {}

  /// Coordinates in texels. False after a fault.
  bool by_index(Place at, Texel* out) {
    const int count = dimensions(geometry_);
    const TexelArray& texels = texture_.texels;
    if (texels.is_linear_memory) {
      if (at[0] >= 0 && static_cast<std::uint64_t>(at[0]) < texels.width) return read(at, out);
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
    const TexelArray& texels = texture_.texels;
    return static_cast<std::int64_t>(d == 0 ? texels.width : d == 1 ? texels.height : texels.depth);
  }

  float in_texels(int d, float coordinate) const {
    return texture_.is_normalized ? coordinate * static_cast<float>(extent(d)) : coordinate;
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
    if (!texture_.is_normalized && mode != AddressMode::kBorder) mode = AddressMode::kClamp;
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
    const TexelArray& texels = texture_.texels;
    const bool is_integer = gives_integers(texture_);
    *out = {0, 0, 0, is_integer ? 1 : kOne};
    const auto channels = static_cast<std::size_t>(texels.channels);
    if (at[0] == kOutside || at[1] == kOutside || at[2] == kOutside) {
      for (std::size_t c = 0; c < channels; ++c) (*out)[c] = bits_of(texture_.border[c]);
      return true;
    }
    const std::uint64_t address = address_of(texels, at);
    const std::size_t bytes = texels.texel_bytes();
    const std::byte* const from = generic_address(warp_, address, bytes, lane_);
    if (from == nullptr) {
      raise_fault(warp_, op_, Fault::Kind::kIllegalAddress, address);
      return false;
    }
    warp_.global_bytes += bytes;
    for (std::size_t c = 0; c < channels; ++c)
      (*out)[c] = channel(texels.format, from + c * bytes_of(texels.format), is_integer);
    return true;
  }

  Warp& warp_;
  const Op* const op_;
  const int lane_;
  const Texture& texture_;
  const Geometry geometry_;
};

const std::uint32_t* coordinates_of(const Warp& warp, const Op* op, int which) {
  return source<std::uint32_t>(warp, op->list[op->list_results + which]);
}

std::int64_t layer_of(const Warp& warp, const Op* op, const TexelArray& texels, int lane) {
  const auto layer = static_cast<std::int64_t>(coordinates_of(warp, op, 0)[lane]);
  return std::min(layer, static_cast<std::int64_t>(texels.depth) - 1);
}

bool fetch_lane(Warp& warp, const Op* op, int lane, const Texture& texture, Texel* out) {
  const auto geometry = static_cast<Geometry>(op->mode);
  const int skip = has_layers(geometry) ? 1 : 0;
  const std::int64_t layer = skip != 0 ? layer_of(warp, op, texture.texels, lane) : 0;
  Fetch fetch(warp, op, lane, texture, geometry);
  if (op->imm != 0) {
    Place at = {0, 0, layer};
    for (int d = 0; d < dimensions(geometry); ++d) {
      at[static_cast<std::size_t>(d)] =
          static_cast<std::int32_t>(coordinates_of(warp, op, skip + d)[lane]);
    }
    return fetch.by_index(at, out);
  }
  std::array<float, 3> coordinates = {};
  for (int d = 0; d < dimensions(geometry); ++d)
    coordinates[static_cast<std::size_t>(d)] = float_of(coordinates_of(warp, op, skip + d)[lane]);
  const bool is_filtered = texture.is_filtered && !texture.texels.is_linear_memory;
  return is_filtered ? fetch.filtered(coordinates, layer, out)
                     : fetch.nearest(coordinates, layer, out);
}

bool gather_lane(Warp& warp, const Op* op, int lane, const Texture& texture, Texel* out) {
  const std::array<float, 3> coordinates = {float_of(coordinates_of(warp, op, 0)[lane]),
                                            float_of(coordinates_of(warp, op, 1)[lane]), 0};
  Fetch fetch(warp, op, lane, texture, Geometry::k2d);
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

/// Where a surface access of a lane goes. host == nullptr: nowhere (zeros, or no effect).
struct SurfaceAccess {
  std::byte* host = nullptr;
  bool is_fault = false;
};

SurfaceAccess surface_access(Warp& warp, const Op* op, int lane, const TexelArray& array,
                             std::size_t bytes) {
  const auto geometry = static_cast<Geometry>(op->mode);
  const auto outside = static_cast<Outside>(op->imm >> 8 & 0xff);
  const int skip = has_layers(geometry) ? 1 : 0;
  Place at = {};  // x in bytes
  for (int d = 0; d < dimensions(geometry); ++d) {
    at[static_cast<std::size_t>(d)] =
        static_cast<std::int32_t>(coordinates_of(warp, op, skip + d)[lane]);
  }
  if (skip != 0) at[2] = layer_of(warp, op, array, lane);
  const auto row = static_cast<std::int64_t>(array.width * array.texel_bytes());
  const Place last = {row - static_cast<std::int64_t>(bytes),
                      static_cast<std::int64_t>(array.height) - 1,
                      static_cast<std::int64_t>(array.depth) - 1};
  SurfaceAccess access;
  for (std::size_t d = 0; d < 3; ++d) {
    if (at[d] >= 0 && at[d] <= last[d]) continue;
    if (outside == Outside::kZero) return access;
    if (outside == Outside::kClamp && last[d] >= 0) {
      at[d] = std::clamp<std::int64_t>(at[d], 0, last[d]);
      continue;
    }
    raise_fault(warp, op, Fault::Kind::kTrap, 0);
    access.is_fault = true;
    return access;
  }
  const std::uint64_t address = array.address + static_cast<std::uint64_t>(at[2]) * array.slice +
                                static_cast<std::uint64_t>(at[1]) * array.pitch +
                                static_cast<std::uint64_t>(at[0]);
  const bool is_aligned = address % bytes == 0;
  access.host = is_aligned ? generic_address(warp, address, bytes, lane) : nullptr;
  access.is_fault = access.host == nullptr;
  if (access.is_fault) {
    raise_fault(warp, op,
                is_aligned ? Fault::Kind::kIllegalAddress : Fault::Kind::kMisalignedAddress,
                address);
  }
  return access;
}

/// Reads an element of a register of `width` bytes (at least 2) for a lane, and writes one.
std::uint64_t from_register(const Warp& warp, std::int32_t operand, int lane, std::size_t bytes) {
  if (bytes <= 2) return source<std::uint16_t>(warp, operand)[lane];
  if (bytes == 4) return source<std::uint32_t>(warp, operand)[lane];
  return source<std::uint64_t>(warp, operand)[lane];
}

void to_register(Warp& warp, std::int32_t operand, int lane, std::size_t bytes,
                 std::uint64_t value) {
  if (operand == kNoOperand) return;
  if (bytes <= 2) {
    destination<std::uint16_t>(warp, operand)[lane] = static_cast<std::uint16_t>(value);
  } else if (bytes == 4) {
    destination<std::uint32_t>(warp, operand)[lane] = static_cast<std::uint32_t>(value);
  } else {
    destination<std::uint64_t>(warp, operand)[lane] = value;
  }
}

template <typename Lane>
const Op* each_surface(Warp& warp, const Op* op, std::uint32_t mask, Lane access_lane) {
  const auto* const handles = source<std::uint64_t>(warp, op->a);
  const std::size_t bytes = static_cast<std::size_t>(op->imm & 0xff) * op->count;
  Objects<TexelArray> objects(warp, warp.memory->find_surface);
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const TexelArray* const array = objects(handles[lane]);
    if (array == nullptr) {
      raise_fault(warp, op, Fault::Kind::kIllegalAddress, handles[lane]);
      break;
    }
    const SurfaceAccess access = surface_access(warp, op, lane, *array, bytes);
    if (access.is_fault) break;
    if (access.host != nullptr) warp.global_bytes += bytes;
    access_lane(lane, access.host);
  }
  return op + 1;
}

const Op* surface_load(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto bytes = static_cast<std::size_t>(op->imm & 0xff);
  return each_surface(warp, op, mask, [&](int lane, const std::byte* from) {
    for (std::size_t c = 0; c < op->count; ++c) {
      std::uint64_t value = 0;
      if (from != nullptr) std::memcpy(&value, from + c * bytes, bytes);
      to_register(warp, op->list[c], lane, bytes, value);
    }
  });
}

const Op* surface_store(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto bytes = static_cast<std::size_t>(op->imm & 0xff);
  const std::int32_t* const values = op->list + op->list_size - op->count;
  return each_surface(warp, op, mask, [&](int lane, std::byte* to) {
    if (to == nullptr) return;
    for (std::size_t c = 0; c < op->count; ++c) {
      const std::uint64_t value = from_register(warp, values[c], lane, bytes);
      if (std::memcmp(to + c * bytes, &value, bytes) != 0) {
        warp.has_changed = true;
        ++warp.writes;
      }
      std::memcpy(to + c * bytes, &value, bytes);
    }
  });
}

}  // namespace

OpFn texture() { return each_fetch<fetch_lane>; }
OpFn texture_gather() { return each_fetch<gather_lane>; }
OpFn load_of_surface() { return surface_load; }
OpFn store_of_surface() { return surface_store; }

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
  return geometry == Geometry::k1dLayers || geometry == Geometry::k2dLayers;
}

OpFn texture_op() { return PLEXRL_PTX_LEVEL::texture(); }
OpFn texture_gather_op() { return PLEXRL_PTX_LEVEL::texture_gather(); }
OpFn surface_load_op() { return PLEXRL_PTX_LEVEL::load_of_surface(); }
OpFn surface_store_op() { return PLEXRL_PTX_LEVEL::store_of_surface(); }

}  // namespace plexrl::simgpu::ptx
