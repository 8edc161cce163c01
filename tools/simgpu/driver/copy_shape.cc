#include "tools/simgpu/driver/copy_shape.h"

#include "tools/simgpu/driver/device_memory.h"
#include "tools/simgpu/driver/driver.h"

namespace plexrl::simgpu {
namespace {

std::uint64_t base_of(CUmemorytype type, const void* host, CUdeviceptr device) {
  return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<std::uint64_t>(host) : device;
}

template <typename Parameters>
CUresult read_shape(const Parameters& p, CopyShape* shape) {
  if (p.srcMemoryType == CU_MEMORYTYPE_ARRAY || p.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const std::uint64_t source = base_of(p.srcMemoryType, p.srcHost, p.srcDevice);
  const std::uint64_t target = base_of(p.dstMemoryType, p.dstHost, p.dstDevice);
  if (source == 0 || target == 0) return CUDA_ERROR_INVALID_VALUE;
  shape->width = p.WidthInBytes;
  shape->height = p.Height;
  shape->depth = p.Depth;
  // A pitch or height of 0 means that rows and slices follow each other.
  shape->source_pitch = p.srcPitch != 0 ? p.srcPitch : p.WidthInBytes + p.srcXInBytes;
  shape->target_pitch = p.dstPitch != 0 ? p.dstPitch : p.WidthInBytes + p.dstXInBytes;
  if (shape->source_pitch < p.WidthInBytes || shape->target_pitch < p.WidthInBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  shape->source_slice = shape->source_pitch * (p.srcHeight != 0 ? p.srcHeight : p.Height + p.srcY);
  shape->target_slice = shape->target_pitch * (p.dstHeight != 0 ? p.dstHeight : p.Height + p.dstY);
  shape->source =
      source + p.srcZ * shape->source_slice + p.srcY * shape->source_pitch + p.srcXInBytes;
  shape->target =
      target + p.dstZ * shape->target_slice + p.dstY * shape->target_pitch + p.dstXInBytes;
  return CUDA_SUCCESS;
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
  if (addresses.in_arena(shape.source)) {
    p.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    p.srcDevice = shape.source;
  } else {
    p.srcMemoryType = CU_MEMORYTYPE_HOST;
    p.srcHost = reinterpret_cast<const void*>(shape.source);
  }
  if (addresses.in_arena(shape.target)) {
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
