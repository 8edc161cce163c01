#pragma once

#include "tools/simgpu/driver/cuda_api.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "tools/simgpu/driver/context.h"
#include "tools/simgpu/ptx/texture.h"

/// CUDA arrays: device memory of a context whose addresses programs are not told, rows one after
/// the other. A CUarray is the address of an Array; what lives is looked up, so that stale handles
/// are recognised.
///
/// Threads: any.
namespace plexrl::simgpu {

struct Array {
  Context* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};  ///< as asked for
  ptx::TexelArray texels;
  bool is_level = false;  ///< of a mipmapped array, whose memory it is
  std::uint64_t bytes() const { return texels.slice * texels.depth; }
  std::uint64_t row_bytes() const { return texels.width * texels.texel_bytes(); }
};

/// The format of texels of these; nullopt: a format or number of channels that arrays and linear
/// textures don't have here.
std::optional<ptx::TexelArray> texels_of(CUarray_format format, unsigned channels);

/// Arrays of falling size in one piece of memory.
struct MipmappedArray {
  Context* context = nullptr;
  std::uint64_t address = 0;
  std::vector<CUarray> levels;
};

/// Errors: INVALID_VALUE, NOT_SUPPORTED (sparse arrays, planar and compressed formats),
/// OUT_OF_MEMORY.
CUresult create_array(Context* context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor, CUarray* array);
/// A copy of the living array that a handle names.
std::optional<Array> find_array(CUarray handle);
/// The living array whose memory `address` lies in; *handle is its.
std::optional<Array> find_array_at(std::uint64_t address, CUarray* handle);
/// INVALID_HANDLE when there is none that is not a level.
CUresult destroy_array(CUarray handle);
/// As create_array; `levels` are as many as asked for and possible, at least one.
CUresult create_mipmapped_array(Context* context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                                unsigned levels, CUmipmappedArray* array);
std::optional<MipmappedArray> find_mipmapped_array(CUmipmappedArray handle);
CUresult destroy_mipmapped_array(CUmipmappedArray handle);
/// Those of a context that ends.
void destroy_arrays(const Context* context);

}  // namespace plexrl::simgpu
