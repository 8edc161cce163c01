// CUDA arrays. (Copies to and from them: entry_copy_array.cc, and cuMemcpy2D and 3D.)

#include "tools/simgpu/driver/array.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/stream.h"

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuArray3DCreate_v2(CUarray* array,
                                                  const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  SIMGPU_ENTER_CONTEXT(cuArray3DCreate_v2);
  if (array == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  return create_array(context, *descriptor, array);
}

SIMGPU_EXPORT CUresult CUDAAPI cuArrayCreate_v2(CUarray* array,
                                                const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  SIMGPU_ENTER_CONTEXT(cuArrayCreate_v2);
  if (array == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  CUDA_ARRAY3D_DESCRIPTOR full{};
  full.Width = descriptor->Width;
  full.Height = descriptor->Height;
  full.Format = descriptor->Format;
  full.NumChannels = descriptor->NumChannels;
  return create_array(context, full, array);
}

SIMGPU_EXPORT CUresult CUDAAPI cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                                         CUarray handle) {
  SIMGPU_ENTER_CONTEXT(cuArray3DGetDescriptor_v2);
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto array = find_array(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  *descriptor = array->descriptor;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* descriptor,
                                                       CUarray handle) {
  SIMGPU_ENTER_CONTEXT(cuArrayGetDescriptor_v2);
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto array = find_array(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  *descriptor = {array->descriptor.Width, array->descriptor.Height, array->descriptor.Format,
                 array->descriptor.NumChannels};
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuArrayDestroy(CUarray handle) {
  SIMGPU_ENTER(cuArrayDestroy);
  const auto array = find_array(handle);
  if (!array || array->is_level) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = array->context->error.load(); error != CUDA_SUCCESS) return error;
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  finish_all_work(array->context);  // nothing that runs may lose its memory
  return destroy_array(handle);
}

SIMGPU_EXPORT CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray* array,
                                                      const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                                      unsigned int levels) {
  SIMGPU_ENTER_CONTEXT(cuMipmappedArrayCreate);
  if (array == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  return create_mipmapped_array(context, *descriptor, levels, array);
}

SIMGPU_EXPORT CUresult CUDAAPI cuMipmappedArrayGetLevel(CUarray* array, CUmipmappedArray handle,
                                                        unsigned int level) {
  SIMGPU_ENTER_CONTEXT(cuMipmappedArrayGetLevel);
  if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto mipmapped = find_mipmapped_array(handle);
  if (!mipmapped) return CUDA_ERROR_INVALID_HANDLE;
  if (level >= mipmapped->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *array = mipmapped->levels[level];
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  SIMGPU_ENTER(cuMipmappedArrayDestroy);
  const auto mipmapped = find_mipmapped_array(handle);
  if (!mipmapped) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = mipmapped->context->error.load(); error != CUDA_SUCCESS) return error;
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  finish_all_work(mipmapped->context);
  return destroy_mipmapped_array(handle);
}
