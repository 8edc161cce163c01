#pragma once

#include "tools/simgpu/driver/cuda_api.h"

#include <cstdint>
#include <memory>
#include <optional>

#include "tools/simgpu/ptx/texture.h"

/// Texture and surface objects: numbers that kernels look up when they fetch. A fetch in flight
/// keeps what it found.
///
/// Threads: any.
namespace plexrl::simgpu {

struct TextureObject {
  ptx::Texture texture;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC description{};
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;
};

struct SurfaceObject {
  ptx::TexelArray texels;
  CUDA_RESOURCE_DESC resource{};
};

std::uint64_t add_texture(const TextureObject& texture);
std::uint64_t add_surface(const SurfaceObject& surface);
/// nullptr when there is none of that number.
std::shared_ptr<const TextureObject> find_texture(std::uint64_t object);
std::shared_ptr<const SurfaceObject> find_surface(std::uint64_t object);
/// False when there is none.
bool remove_texture(std::uint64_t object);
bool remove_surface(std::uint64_t object);

}  // namespace plexrl::simgpu
