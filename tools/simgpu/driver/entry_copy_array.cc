// Copies of a number of bytes to and from arrays: the array's rows one after the other.

#include "tools/simgpu/driver/array.h"
#include "tools/simgpu/driver/copy_memory.h"
#include "tools/simgpu/driver/entry_pair.h"

namespace plexrl::simgpu {
namespace {

/// The address of `offset` in an array that has `bytes` there.
CUresult place_of(CUarray handle, std::size_t offset, std::size_t bytes, std::uint64_t* address) {
  const auto array = find_array(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  if (offset > array->bytes() || bytes > array->bytes() - offset) return CUDA_ERROR_INVALID_VALUE;
  *address = array->texels.address + offset;
  return CUDA_SUCCESS;
}

CUresult copy_bytes(bool per_thread, std::uint64_t target, std::uint64_t source, std::size_t bytes,
                    CUstream stream, bool blocks) {
  CopyShape shape;
  shape.target = target;
  shape.source = source;
  shape.width = bytes;
  return copy_memory(per_thread, shape, stream, blocks);
}

CUresult to_array(bool per_thread, CUarray array, std::size_t offset, std::uint64_t source,
                  std::size_t bytes, CUstream stream, bool blocks) {
  Context* context = nullptr;
  if (const CUresult usable = usable_context(&context); usable != CUDA_SUCCESS) return usable;
  std::uint64_t target = 0;
  const CUresult result = place_of(array, offset, bytes, &target);
  return result != CUDA_SUCCESS ? result
                                : copy_bytes(per_thread, target, source, bytes, stream, blocks);
}

CUresult from_array(bool per_thread, std::uint64_t target, CUarray array, std::size_t offset,
                    std::size_t bytes, CUstream stream, bool blocks) {
  Context* context = nullptr;
  if (const CUresult usable = usable_context(&context); usable != CUDA_SUCCESS) return usable;
  std::uint64_t source = 0;
  const CUresult result = place_of(array, offset, bytes, &source);
  return result != CUDA_SUCCESS ? result
                                : copy_bytes(per_thread, target, source, bytes, stream, blocks);
}

CUresult between_arrays(bool per_thread, CUarray target, std::size_t target_offset, CUarray source,
                        std::size_t source_offset, std::size_t bytes) {
  Context* context = nullptr;
  if (const CUresult usable = usable_context(&context); usable != CUDA_SUCCESS) return usable;
  std::uint64_t from = 0;
  const CUresult result = place_of(source, source_offset, bytes, &from);
  return result != CUDA_SUCCESS
             ? result
             : to_array(per_thread, target, target_offset, from, bytes, nullptr, false);
}

std::uint64_t address_of(const void* host) { return reinterpret_cast<std::uint64_t>(host); }

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_PAIR(cuMemcpyDtoA_v2, _ptds, to_array,
            (CUarray array, size_t offset, CUdeviceptr source, size_t bytes), array, offset, source,
            bytes, nullptr, false)
SIMGPU_PAIR(cuMemcpyAtoD_v2, _ptds, from_array,
            (CUdeviceptr target, CUarray array, size_t offset, size_t bytes), target, array, offset,
            bytes, nullptr, false)
SIMGPU_PAIR(cuMemcpyHtoA_v2, _ptds, to_array,
            (CUarray array, size_t offset, const void* source, size_t bytes), array, offset,
            address_of(source), bytes, nullptr, true)
SIMGPU_PAIR(cuMemcpyAtoH_v2, _ptds, from_array,
            (void* target, CUarray array, size_t offset, size_t bytes), address_of(target), array,
            offset, bytes, nullptr, true)
SIMGPU_PAIR(cuMemcpyAtoA_v2, _ptds, between_arrays,
            (CUarray target, size_t target_offset, CUarray source, size_t source_offset,
             size_t bytes),
            target, target_offset, source, source_offset, bytes)
SIMGPU_PAIR(cuMemcpyHtoAAsync_v2, _ptsz, to_array,
            (CUarray array, size_t offset, const void* source, size_t bytes, CUstream stream),
            array, offset, address_of(source), bytes, stream, false)
SIMGPU_PAIR(cuMemcpyAtoHAsync_v2, _ptsz, from_array,
            (void* target, CUarray array, size_t offset, size_t bytes, CUstream stream),
            address_of(target), array, offset, bytes, stream, false)
