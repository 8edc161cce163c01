#include "tools/simgpu/driver/copy_shape.h"

#include "tools/simgpu/driver/array.h"
#include "tools/simgpu/driver/device_memory.h"
#include "tools/simgpu/driver/driver.h"

namespace plexrl::simgpu {
namespace {

std::uint64_t base_of(CUmemorytype type, const void* host, CUdeviceptr device) {
  return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<std::uint64_t>(host) : device;
}

/// One side of a copy: where it begins, and bytes from row to row and from slice to slice.
struct Side {
  std::uint64_t address = 0;
  std::size_t pitch = 0, slice = 0;
};

/// A box of the copy's size in memory whose rows are `pitch` bytes. A pitch or height of 0 means
/// that rows and slices follow each other.
CUresult in_memory(std::uint64_t base, std::size_t pitch, std::size_t rows, std::size_t x,
                   std::size_t y, std::size_t z, const std::size_t (&box)[3], Side* side) {
  if (base == 0) return CUDA_ERROR_INVALID_VALUE;
  side->pitch = pitch != 0 ? pitch : box[0] + x;
  if (side->pitch < box[0]) return CUDA_ERROR_INVALID_VALUE;
  side->slice = side->pitch * (rows != 0 ? rows : box[1] + y);
  side->address = base + z * side->slice + y * side->pitch + x;
  return CUDA_SUCCESS;
}

/// A box in an array; z counts slices or layers.
CUresult in_array(CUarray handle, std::size_t x, std::size_t y, std::size_t z,
                  const std::size_t (&box)[3], Side* side) {
  const auto array = find_array(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  const ptx::TexelArray& texels = array->texels;
  const auto fits = [](std::uint64_t from, std::uint64_t count, std::uint64_t size) {
    return from <= size && count <= size - from;
  };
  const std::size_t texel_bytes = texels.texel_bytes();
  if (!fits(x, box[0], array->row_bytes()) || !fits(y, box[1], texels.height) ||
      !fits(z, box[2], texels.depth) || x % texel_bytes != 0 || box[0] % texel_bytes != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  side->pitch = texels.pitch;
  side->slice = texels.slice;
  side->address = texels.address + z * side->slice + y * side->pitch + x;
  return CUDA_SUCCESS;
}

template <typename Parameters>
CUresult read_shape(const Parameters& p, CopyShape* shape) {
  const std::size_t box[3] = {p.WidthInBytes, p.Height, p.Depth};
  // There are no mipmaps.
  if (p.srcLOD != 0 || p.dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  Side source;
  CUresult result = p.srcMemoryType == CU_MEMORYTYPE_ARRAY
                        ? in_array(p.srcArray, p.srcXInBytes, p.srcY, p.srcZ, box, &source)
                        : in_memory(base_of(p.srcMemoryType, p.srcHost, p.srcDevice), p.srcPitch,
                                    p.srcHeight, p.srcXInBytes, p.srcY, p.srcZ, box, &source);
  if (result != CUDA_SUCCESS) return result;
  Side target;
  result = p.dstMemoryType == CU_MEMORYTYPE_ARRAY
               ? in_array(p.dstArray, p.dstXInBytes, p.dstY, p.dstZ, box, &target)
               : in_memory(base_of(p.dstMemoryType, p.dstHost, p.dstDevice), p.dstPitch,
                           p.dstHeight, p.dstXInBytes, p.dstY, p.dstZ, box, &target);
  if (result != CUDA_SUCCESS) return result;
  shape->width = box[0];
  shape->height = box[1];
  shape->depth = box[2];
  shape->source = source.address;
  shape->source_pitch = source.pitch;
  shape->source_slice = source.slice;
  shape->target = target.address;
  shape->target_pitch = target.pitch;
  shape->target_slice = target.slice;
  return CUDA_SUCCESS;
}

/// Where in its array an address is.
struct ArrayPlace {
  CUarray array = nullptr;
  std::size_t x = 0, y = 0, z = 0;
};

bool find_place(std::uint64_t address, ArrayPlace* place) {
  const auto array = find_array_at(address, &place->array);
  if (!array) return false;
  const std::uint64_t offset = address - array->texels.address;
  place->z = offset / array->texels.slice;
  place->y = offset % array->texels.slice / array->texels.pitch;
  place->x = offset % array->texels.pitch;
  return true;
}

}  // namespace

CUresult shape_of(const CUDA_MEMCPY3D& p, CopyShape* shape) { return read_shape(p, shape); }
CUresult shape_of(const CUDA_MEMCPY3D_PEER& p, CopyShape* shape) { return read_shape(p, shape); }

void set_devices(const Context* context, CopyShape* shape) {
  shape->source_device = device_of_address(context, shape->source);
  shape->target_device = device_of_address(context, shape->target);
}

CUDA_MEMCPY3D parameters_of(const CopyShape& shape) {
  CUDA_MEMCPY3D p{};
  const Addresses& addresses = driver()->addresses;
  ArrayPlace place;
  if (find_place(shape.source, &place)) {
    p.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    p.srcArray = place.array;
    p.srcXInBytes = place.x;
    p.srcY = place.y;
    p.srcZ = place.z;
  } else if (addresses.in_arena(shape.source)) {
    p.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    p.srcDevice = shape.source;
  } else {
    p.srcMemoryType = CU_MEMORYTYPE_HOST;
    p.srcHost = reinterpret_cast<const void*>(shape.source);
  }
  if (find_place(shape.target, &place)) {
    p.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    p.dstArray = place.array;
    p.dstXInBytes = place.x;
    p.dstY = place.y;
    p.dstZ = place.z;
  } else if (addresses.in_arena(shape.target)) {
    p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    p.dstDevice = shape.target;
  } else {
    p.dstMemoryType = CU_MEMORYTYPE_HOST;
    p.dstHost = reinterpret_cast<void*>(shape.target);
  }
  p.srcPitch = shape.source_pitch;
  p.dstPitch = shape.target_pitch;
  if (shape.source_pitch != 0) p.srcHeight = shape.source_slice / shape.source_pitch;
  if (shape.target_pitch != 0) p.dstHeight = shape.target_slice / shape.target_pitch;
  p.WidthInBytes = shape.width;
  p.Height = shape.height;
  p.Depth = shape.depth;
  return p;
}

}  // namespace plexrl::simgpu
