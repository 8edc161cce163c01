// Texture and surface objects. Texture references have gone from what CUDA 12 compiles; they answer
// NOT_SUPPORTED.

#include <algorithm>

#include "tools/simgpu/driver/array.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/texture_object.h"

namespace plexrl::simgpu {
namespace {

// CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, …_PITCH_ALIGNMENT and the sizes of textures on plain
// memory.
constexpr std::uint64_t kAlignment = 512, kPitchAlignment = 32;
constexpr std::uint64_t kMostLinear = 1ull << 28;
constexpr std::uint64_t kMostPitchWidth = 131072, kMostPitchHeight = 65000, kMostPitch = 2097120;

/// What a texture reads: the texels that a resource names.
CUresult read_resource(const CUDA_RESOURCE_DESC& resource, ptx::TexelArray* texels) {
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      const auto array = find_array(resource.res.array.hArray);
      if (!array) return CUDA_ERROR_INVALID_HANDLE;
      *texels = array->texels;
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& linear = resource.res.linear;
      const auto format = texels_of(linear.format, linear.numChannels);
      if (!format || linear.devPtr == 0 || linear.devPtr % kAlignment != 0)
        return CUDA_ERROR_INVALID_VALUE;
      *texels = *format;
      texels->address = linear.devPtr;
      texels->width = linear.sizeInBytes / format->texel_bytes();
      texels->is_linear_memory = true;
      if (texels->width == 0 || texels->width > kMostLinear) return CUDA_ERROR_INVALID_VALUE;
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& plane = resource.res.pitch2D;
      const auto format = texels_of(plane.format, plane.numChannels);
      const bool is_aligned = plane.devPtr != 0 && plane.devPtr % kAlignment == 0 &&
                              plane.pitchInBytes % kPitchAlignment == 0;
      if (!format || !is_aligned || plane.width == 0 || plane.height == 0 ||
          plane.width > kMostPitchWidth || plane.height > kMostPitchHeight ||
          plane.pitchInBytes > kMostPitch ||
          plane.pitchInBytes < plane.width * format->texel_bytes()) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      *texels = *format;
      texels->address = plane.devPtr;
      texels->width = plane.width;
      texels->height = plane.height;
      texels->pitch = plane.pitchInBytes;
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

bool is_float(ptx::TexelFormat format) {
  return format == ptx::TexelFormat::kFloat || format == ptx::TexelFormat::kHalf;
}

CUresult make_texture(const CUDA_TEXTURE_DESC& description, ptx::Texture* texture) {
  constexpr unsigned kKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                              CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
  if ((description.flags & (CU_TRSF_SRGB | CU_TRSF_SEAMLESS_CUBEMAP)) != 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  if ((description.flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  texture->is_normalized = (description.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  texture->reads_integers = (description.flags & CU_TRSF_READ_AS_INTEGER) != 0;
  if (texture->texels.is_linear_memory) return CUDA_SUCCESS;  // modes and filter "are ignored"
  for (int d = 0; d < 3; ++d) {
    switch (description.addressMode[d]) {
      case CU_TR_ADDRESS_MODE_WRAP:
        texture->modes[d] = ptx::AddressMode::kWrap;
        break;
      case CU_TR_ADDRESS_MODE_CLAMP:
        texture->modes[d] = ptx::AddressMode::kClamp;
        break;
      case CU_TR_ADDRESS_MODE_MIRROR:
        texture->modes[d] = ptx::AddressMode::kMirror;
        break;
      case CU_TR_ADDRESS_MODE_BORDER:
        texture->modes[d] = ptx::AddressMode::kBorder;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  std::copy_n(description.borderColor, 4, texture->border);
  if (description.filterMode == CU_TR_FILTER_MODE_LINEAR) {
    // "Can be used only if the texture is configured to return floating-point data."
    const ptx::TexelFormat format = texture->texels.format;
    const bool is_word = format == ptx::TexelFormat::kUint32 || format == ptx::TexelFormat::kInt32;
    if (is_word || (texture->reads_integers && !is_float(format))) return CUDA_ERROR_INVALID_VALUE;
    texture->is_filtered = true;
  } else if (description.filterMode != CU_TR_FILTER_MODE_POINT) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuTexObjectCreate(CUtexObject* object,
                                                 const CUDA_RESOURCE_DESC* resource,
                                                 const CUDA_TEXTURE_DESC* description,
                                                 const CUDA_RESOURCE_VIEW_DESC* view) {
  SIMGPU_ENTER_CONTEXT(cuTexObjectCreate);
  if (object == nullptr || resource == nullptr || description == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  TextureObject made;
  made.resource = *resource;
  made.description = *description;
  CUresult result = read_resource(*resource, &made.texture.texels);
  if (result != CUDA_SUCCESS) return result;
  if (view != nullptr) {  // another format of the same memory, or some of its layers
    return resource->resType == CU_RESOURCE_TYPE_ARRAY ? CUDA_ERROR_NOT_SUPPORTED
                                                       : CUDA_ERROR_INVALID_VALUE;
  }
  result = make_texture(*description, &made.texture);
  if (result != CUDA_SUCCESS) return result;
  *object = add_texture(made);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuTexObjectDestroy(CUtexObject object) {
  SIMGPU_ENTER_CONTEXT(cuTexObjectDestroy);
  return remove_texture(object) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIMGPU_EXPORT CUresult CUDAAPI cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource,
                                                          CUtexObject object) {
  SIMGPU_ENTER_CONTEXT(cuTexObjectGetResourceDesc);
  const auto texture = find_texture(object);
  if (resource == nullptr || texture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *resource = texture->resource;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* description,
                                                         CUtexObject object) {
  SIMGPU_ENTER_CONTEXT(cuTexObjectGetTextureDesc);
  const auto texture = find_texture(object);
  if (description == nullptr || texture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *description = texture->description;
  return CUDA_SUCCESS;
}

/// "If … no resource view was specified, an error is returned": none can be.
SIMGPU_EXPORT CUresult CUDAAPI cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC*,
                                                              CUtexObject) {
  SIMGPU_ENTER_CONTEXT(cuTexObjectGetResourceViewDesc);
  return CUDA_ERROR_INVALID_VALUE;
}

SIMGPU_EXPORT CUresult CUDAAPI cuSurfObjectCreate(CUsurfObject* object,
                                                  const CUDA_RESOURCE_DESC* resource) {
  SIMGPU_ENTER_CONTEXT(cuSurfObjectCreate);
  if (object == nullptr || resource == nullptr || resource->flags != 0 ||
      resource->resType != CU_RESOURCE_TYPE_ARRAY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto array = find_array(resource->res.array.hArray);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  if ((array->descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST) == 0) return CUDA_ERROR_INVALID_VALUE;
  *object = add_surface({array->texels, *resource});
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuSurfObjectDestroy(CUsurfObject object) {
  SIMGPU_ENTER_CONTEXT(cuSurfObjectDestroy);
  return remove_surface(object) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIMGPU_EXPORT CUresult CUDAAPI cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource,
                                                           CUsurfObject object) {
  SIMGPU_ENTER_CONTEXT(cuSurfObjectGetResourceDesc);
  const auto surface = find_surface(object);
  if (resource == nullptr || surface == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *resource = surface->resource;
  return CUDA_SUCCESS;
}
