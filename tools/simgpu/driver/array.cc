#include "tools/simgpu/driver/array.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tools/simgpu/driver/device_memory.h"

namespace plexrl::simgpu {
namespace {

// "Technical Specifications per Compute Capability", 7.5.
constexpr std::uint64_t kMost1d = 131072, kMost2dHeight = 65536, kMost3d = 16384;
constexpr std::uint64_t kMostLayered = 32768, kMostLayers = 2048;
constexpr std::uint64_t kMostCube = 32768, kMostFacesOfCubes = 2046, kFaces = 6;

struct Arrays {
  std::mutex mutex;
  std::map<CUarray, std::unique_ptr<Array>> living;
  std::map<std::uint64_t, CUarray> by_address;
  std::map<CUmipmappedArray, std::unique_ptr<MipmappedArray>> mipmapped;
};

Arrays& arrays() {
  static Arrays* const instance = new Arrays;
  return *instance;
}

bool is_size(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  if (d.Width == 0) return false;
  if ((d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0) {
    const bool has_layers = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
    return d.Width == d.Height && d.Width <= kMostCube && d.Depth != 0 && d.Depth % kFaces == 0 &&
           d.Depth <= (has_layers ? kMostFacesOfCubes : kFaces);
  }
  if ((d.Flags & CUDA_ARRAY3D_LAYERED) != 0)
    return d.Width <= kMostLayered && d.Height <= kMostLayered && d.Depth >= 1 &&
           d.Depth <= kMostLayers;
  if (d.Depth != 0)
    return d.Height != 0 && d.Width <= kMost3d && d.Height <= kMost3d && d.Depth <= kMost3d;
  return d.Width <= kMost1d && d.Height <= kMost2dHeight;
}

CUresult check_descriptor(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  constexpr unsigned kKnown = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP |
                              CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_TEXTURE_GATHER;
  const bool is_plain_format = descriptor.Format > 0 && descriptor.Format <= CU_AD_FORMAT_FLOAT;
  if (!texels_of(descriptor.Format, descriptor.NumChannels))
    return is_plain_format ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
  if ((descriptor.Flags & ~kKnown) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return is_size(descriptor) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/// An array without memory. The descriptor has been checked.
std::unique_ptr<Array> lay_out(Context* context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  auto array = std::make_unique<Array>();
  array->context = context;
  array->descriptor = descriptor;
  array->texels = *texels_of(descriptor.Format, descriptor.NumChannels);
  array->texels.width = descriptor.Width;
  array->texels.height = std::max<std::uint64_t>(descriptor.Height, 1);
  array->texels.depth = std::max<std::uint64_t>(descriptor.Depth, 1);
  array->texels.pitch = array->row_bytes();
  array->texels.slice = array->texels.pitch * array->texels.height;
  return array;
}

/// The lock is held.
CUarray keep(std::unique_ptr<Array> array) {
  const auto handle = reinterpret_cast<CUarray>(array.get());
  arrays().by_address[array->texels.address] = handle;
  arrays().living[handle] = std::move(array);
  return handle;
}

void forget(CUarray handle) {
  const auto found = arrays().living.find(handle);
  arrays().by_address.erase(found->second->texels.address);
  arrays().living.erase(found);
}

/// Of a level: half of the one before in each direction. Layers and faces stay as many.
CUDA_ARRAY3D_DESCRIPTOR halved(CUDA_ARRAY3D_DESCRIPTOR descriptor) {
  const bool has_slices = (descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0;
  const auto half = [](std::size_t* extent) {
    if (*extent > 1) *extent /= 2;
  };
  half(&descriptor.Width);
  half(&descriptor.Height);
  if (has_slices) half(&descriptor.Depth);
  return descriptor;
}

}  // namespace

std::optional<ptx::TexelArray> texels_of(CUarray_format format, unsigned channels) {
  ptx::TexelArray texels;
  texels.channels = static_cast<int>(channels);
  if (channels != 1 && channels != 2 && channels != 4) return std::nullopt;
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
      texels.format = ptx::TexelFormat::kUint8;
      break;
    case CU_AD_FORMAT_UNSIGNED_INT16:
      texels.format = ptx::TexelFormat::kUint16;
      break;
    case CU_AD_FORMAT_UNSIGNED_INT32:
      texels.format = ptx::TexelFormat::kUint32;
      break;
    case CU_AD_FORMAT_SIGNED_INT8:
      texels.format = ptx::TexelFormat::kInt8;
      break;
    case CU_AD_FORMAT_SIGNED_INT16:
      texels.format = ptx::TexelFormat::kInt16;
      break;
    case CU_AD_FORMAT_SIGNED_INT32:
      texels.format = ptx::TexelFormat::kInt32;
      break;
    case CU_AD_FORMAT_HALF:
      texels.format = ptx::TexelFormat::kHalf;
      break;
    case CU_AD_FORMAT_FLOAT:
      texels.format = ptx::TexelFormat::kFloat;
      break;
    default:
      return std::nullopt;
  }
  return texels;
}

CUresult create_array(Context* context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                      CUarray* handle) {
  if (const CUresult bad = check_descriptor(descriptor); bad != CUDA_SUCCESS) return bad;
  auto array = lay_out(context, descriptor);
  const CUresult result =
      allocate_device(context, array->bytes(), &array->texels.address, Range::Kind::kArray);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(arrays().mutex);
  *handle = keep(std::move(array));
  return CUDA_SUCCESS;
}

CUresult create_mipmapped_array(Context* context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                                unsigned levels, CUmipmappedArray* handle) {
  constexpr std::uint64_t kAlignment = 512;  // of each level
  if (const CUresult bad = check_descriptor(descriptor); bad != CUDA_SUCCESS) return bad;
  std::vector<std::unique_ptr<Array>> made;
  std::uint64_t bytes = 0;
  for (CUDA_ARRAY3D_DESCRIPTOR level = descriptor; made.size() < std::max(levels, 1u);) {
    made.push_back(lay_out(context, level));
    made.back()->is_level = true;
    made.back()->texels.address = bytes;
    bytes += (made.back()->bytes() + kAlignment - 1) / kAlignment * kAlignment;
    const CUDA_ARRAY3D_DESCRIPTOR next = halved(level);
    if (next.Width == level.Width && next.Height == level.Height && next.Depth == level.Depth)
      break;
    level = next;
  }
  auto mipmapped = std::make_unique<MipmappedArray>();
  mipmapped->context = context;
  const CUresult result = allocate_device(context, bytes, &mipmapped->address, Range::Kind::kArray);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(arrays().mutex);
  for (auto& level : made) {
    level->texels.address += mipmapped->address;
    mipmapped->levels.push_back(keep(std::move(level)));
  }
  *handle = reinterpret_cast<CUmipmappedArray>(mipmapped.get());
  arrays().mipmapped[*handle] = std::move(mipmapped);
  return CUDA_SUCCESS;
}

std::optional<MipmappedArray> find_mipmapped_array(CUmipmappedArray handle) {
  const std::lock_guard lock(arrays().mutex);
  const auto found = arrays().mipmapped.find(handle);
  if (found == arrays().mipmapped.end()) return std::nullopt;
  return *found->second;
}

CUresult destroy_mipmapped_array(CUmipmappedArray handle) {
  std::uint64_t address = 0;
  {
    const std::lock_guard lock(arrays().mutex);
    const auto found = arrays().mipmapped.find(handle);
    if (found == arrays().mipmapped.end()) return CUDA_ERROR_INVALID_HANDLE;
    address = found->second->address;
    for (const CUarray level : found->second->levels) forget(level);
    arrays().mipmapped.erase(found);
  }
  return free_device(address);
}

std::optional<Array> find_array(CUarray handle) {
  const std::lock_guard lock(arrays().mutex);
  const auto found = arrays().living.find(handle);
  if (found == arrays().living.end()) return std::nullopt;
  return *found->second;
}

std::optional<Array> find_array_at(std::uint64_t address, CUarray* handle) {
  const std::lock_guard lock(arrays().mutex);
  auto found = arrays().by_address.upper_bound(address);
  if (found == arrays().by_address.begin()) return std::nullopt;
  --found;
  const Array& array = *arrays().living.at(found->second);
  if (address - found->first >= array.bytes()) return std::nullopt;
  *handle = found->second;
  return array;
}

CUresult destroy_array(CUarray handle) {
  std::uint64_t address = 0;
  {
    const std::lock_guard lock(arrays().mutex);
    const auto found = arrays().living.find(handle);
    if (found == arrays().living.end() || found->second->is_level) return CUDA_ERROR_INVALID_HANDLE;
    address = found->second->texels.address;
    forget(handle);
  }
  return free_device(address);
}

void destroy_arrays(const Context* context) {
  std::vector<CUarray> its;
  std::vector<CUmipmappedArray> mipmapped;
  {
    const std::lock_guard lock(arrays().mutex);
    for (const auto& [handle, array] : arrays().living) {
      if (array->context == context && !array->is_level) its.push_back(handle);
    }
    for (const auto& [handle, array] : arrays().mipmapped) {
      if (array->context == context) mipmapped.push_back(handle);
    }
  }
  for (const CUarray handle : its) destroy_array(handle);
  for (const CUmipmappedArray handle : mipmapped) destroy_mipmapped_array(handle);
}

}  // namespace plexrl::simgpu
