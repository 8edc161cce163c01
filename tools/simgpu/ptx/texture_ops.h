#pragma once

#include <cstdint>

#include "tools/simgpu/ptx/program.h"

/// Texture fetches and surface accesses.
///
/// a: the object (64 bits). list: results or none, then coordinates in the order of PTX (a layer
/// first) and what gives the level of detail, then for stores the values. mode: Geometry. Weights
/// of linear filtering have 8 bits of fraction, as the programming guide says; every texel is read
/// as if it were needed.
namespace plexrl::simgpu::ptx {

enum class Geometry : std::uint8_t { k1d, k2d, k3d, k1dLayers, k2dLayers, kCube, kCubeLayers };
int dimensions(Geometry geometry);  ///< of a texel's place; a face of a cube has 2
bool has_layers(Geometry geometry);
bool is_cube(Geometry geometry);
/// Coordinates in PTX, beside the layer: a cube's are a direction.
int coordinate_count(Geometry geometry);

/// How the level of detail is given: not at all (0), a number, or how the coordinates change from
/// one pixel to the next in x and in y.
enum class Detail : std::uint8_t { kNone, kLevel, kGradient };

/// Surfaces, for what is outside: a fault, the nearest place inside, or zeros and no effect.
enum class Outside : std::uint8_t { kTrap, kClamp, kZero };

/// tex: four 32-bit results. imm: 1 when coordinates are integers, and Detail << 8.
OpFn texture_op();
/// tld4: one component (imm) of the four texels that linear filtering would take.
OpFn texture_gather_op();
/// suld.b and sust.b. count: elements; imm: bytes of an element, and Outside << 8.
OpFn surface_load_op();
OpFn surface_store_op();

}  // namespace plexrl::simgpu::ptx
