// Texture and surface objects. Texture references have gone from what CUDA 12 compiles; they answer
// NOT_SUPPORTED.

#include <algorithm>
#include <vector>

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

/// What a texture reads: the texels that a resource names, in all of its levels.
CUresult read_resource(const CUDA_RESOURCE_DESC& resource, ptx::Texture* texture) {
  ptx::TexelArray* const texels = &texture->texels;
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
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      const auto mipmapped = find_mipmapped_array(resource.res.mipmap.hMipmappedArray);
      if (!mipmapped) return CUDA_ERROR_INVALID_HANDLE;
      for (const CUarray handle : mipmapped->levels) {
        const auto level = find_array(handle);
        if (!level) return CUDA_ERROR_INVALID_HANDLE;
        texture->smaller.push_back(level->texels);
      }
      *texels = texture->smaller.front();
      texture->smaller.erase(texture->smaller.begin());
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

/// The format that a view gives texels: formats come in threes of 1, 2 and 4 channels.
std::optional<ptx::TexelArray> view_texels(CUresourceViewFormat format) {
  static constexpr CUarray_format kFormats[] = {
      CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_SIGNED_INT8,    CU_AD_FORMAT_UNSIGNED_INT16,
      CU_AD_FORMAT_SIGNED_INT16,  CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32,
      CU_AD_FORMAT_HALF,          CU_AD_FORMAT_FLOAT};
  static_assert(CU_RES_VIEW_FORMAT_UINT_1X8 == 1 && CU_RES_VIEW_FORMAT_FLOAT_4X32 == 24);
  const int number = static_cast<int>(format) - 1;
  if (number < 0 || number >= 24) return std::nullopt;
  return texels_of(kFormats[number / 3], 1u << (number % 3));
}

/// Whether the slices of what a texture reads are layers or faces.
bool has_layers(const CUDA_RESOURCE_DESC& resource) {
  CUarray handle = resource.res.array.hArray;
  if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
    const auto mipmapped = find_mipmapped_array(resource.res.mipmap.hMipmappedArray);
    if (!mipmapped) return false;
    handle = mipmapped->levels.front();
  }
  const auto array = find_array(handle);
  return array && (array->descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
}

/// One level as a view has it: texels of another format, and some of its layers only.
bool view_level(const CUDA_RESOURCE_VIEW_DESC& view, bool is_layered, const ptx::TexelArray& format,
                ptx::TexelArray* level) {
  if (format.texel_bytes() != level->texel_bytes()) return false;
  level->format = format.format;
  level->channels = format.channels;
  if (!is_layered) return view.firstLayer == 0 && view.lastLayer == 0;
  if (view.lastLayer < view.firstLayer || view.lastLayer >= level->depth) return false;
  level->address += view.firstLayer * level->slice;
  level->depth = view.lastLayer - view.firstLayer + 1;
  return true;
}

/// Makes the texture what `view` has of its arrays. NOT_SUPPORTED: block-compressed formats.
CUresult apply_view(const CUDA_RESOURCE_VIEW_DESC& view, bool is_layered, ptx::Texture* texture) {
  const ptx::TexelArray whole = texture->texels;
  if (view.format > CU_RES_VIEW_FORMAT_FLOAT_4X32) return CUDA_ERROR_NOT_SUPPORTED;
  ptx::TexelArray format = whole;
  if (view.format != CU_RES_VIEW_FORMAT_NONE) {
    const auto other = view_texels(view.format);
    if (!other) return CUDA_ERROR_INVALID_VALUE;
    format = *other;
  }
  const auto height = std::max<std::uint64_t>(view.height, 1);
  if (view.width != whole.width || height != whole.height ||
      (!is_layered && std::max<std::uint64_t>(view.depth, 1) != whole.depth) ||
      view.lastMipmapLevel < view.firstMipmapLevel ||
      view.lastMipmapLevel > texture->smaller.size()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<ptx::TexelArray> levels = std::move(texture->smaller);
  levels.insert(levels.begin(), whole);
  levels = {levels.begin() + view.firstMipmapLevel, levels.begin() + view.lastMipmapLevel + 1};
  for (ptx::TexelArray& level : levels) {
    if (!view_level(view, is_layered, format, &level)) return CUDA_ERROR_INVALID_VALUE;
  }
  texture->texels = levels.front();
  texture->smaller = {levels.begin() + 1, levels.end()};
  return CUDA_SUCCESS;
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
  texture->mixes_levels = description.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
  texture->level_bias = description.mipmapLevelBias;
  texture->least_level = description.minMipmapLevelClamp;
  texture->most_level = description.maxMipmapLevelClamp;
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
  CUresult result = read_resource(*resource, &made.texture);
  if (result != CUDA_SUCCESS) return result;
  const bool is_mipmapped = resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  if (is_mipmapped && (description->flags & CU_TRSF_NORMALIZED_COORDINATES) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (view != nullptr) {
    if (!is_mipmapped && resource->resType != CU_RESOURCE_TYPE_ARRAY)
      return CUDA_ERROR_INVALID_VALUE;
    result = apply_view(*view, has_layers(*resource), &made.texture);
    if (result != CUDA_SUCCESS) return result;
    made.view = *view;
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

/// An error for a texture that was made without a view.
SIMGPU_EXPORT CUresult CUDAAPI cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* view,
                                                              CUtexObject object) {
  SIMGPU_ENTER_CONTEXT(cuTexObjectGetResourceViewDesc);
  const auto texture = find_texture(object);
  if (view == nullptr || texture == nullptr || !texture->view) return CUDA_ERROR_INVALID_VALUE;
  *view = *texture->view;
  return CUDA_SUCCESS;
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
