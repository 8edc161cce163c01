// Copies and fills. (Copies of bytes to and from arrays: entry_copy_array.cc.)

#include <algorithm>

#include "tools/simgpu/driver/copy_memory.h"
#include "tools/simgpu/driver/copy_shape.h"
#include "tools/simgpu/driver/device_memory.h"
#include "tools/simgpu/driver/entry_pair.h"
#include "tools/simgpu/driver/graph_memory.h"

namespace plexrl::simgpu {
namespace {

constexpr std::size_t kStagedBytes =
    64 * 1024;  // "API synchronization behavior": small pageable sources are staged

std::uint64_t address_of(const void* host) { return reinterpret_cast<std::uint64_t>(host); }
bool on_device(std::uint64_t address) { return driver()->addresses.in_arena(address); }

/// Pageable host memory: no device address, and neither pinned nor registered.
bool is_pageable(std::uint64_t address) {
  return !on_device(address) && !driver()->addresses.find(address).has_value();
}

/// Whether every byte of a device range is some living allocation's; the driver refuses what isn't
/// at the call.
bool is_known(std::uint64_t address, std::size_t bytes) {
  if (!on_device(address)) return address != 0;
  const auto range = driver()->addresses.find(address);
  if (!range.has_value()) return GraphMemory::covers(address, bytes);
  return address + bytes <= range->base + range->bytes;
}

}  // namespace

CUresult copy_memory(bool per_thread, CopyShape shape, CUstream stream, bool blocks) {
  Context* context = nullptr;
  if (const CUresult usable = usable_context(&context); usable != CUDA_SUCCESS) return usable;
  if (shape.width == 0 || shape.height == 0 || shape.depth == 0) return CUDA_SUCCESS;
  const std::size_t source_span = (shape.depth - 1) * shape.source_slice +
                                  (shape.height - 1) * shape.source_pitch + shape.width;
  const std::size_t target_span = (shape.depth - 1) * shape.target_slice +
                                  (shape.height - 1) * shape.target_pitch + shape.width;
  if (!is_known(shape.source, source_span) || !is_known(shape.target, target_span))
    return CUDA_ERROR_INVALID_VALUE;
  shape.source_device = device_of_address(context, shape.source);
  shape.target_device = device_of_address(context, shape.target);
  if (blocks) {
    if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  }
  auto operation = std::make_unique<CopyOperation>(shape);
  bool waits = blocks;
  Stream* target = nullptr;
  if (const CUresult found = find_stream(stream, per_thread, &target); found != CUDA_SUCCESS)
    return found;
  if (!blocks && target->capture.load() == nullptr) {
    if (is_pageable(shape.target)) {
      waits = true;
    } else if (is_pageable(shape.source)) {
      if (shape.width * shape.height * shape.depth <= kStagedBytes) {
        operation->snapshot_source();
      } else {
        waits = true;
      }
    }
  }
  CompletionPtr done;
  const CUresult submitted = submit(stream, per_thread, std::move(operation), &done);
  if (submitted != CUDA_SUCCESS || !waits || done == nullptr) return submitted;
  done->wait();
  return context->error.load();
}

namespace {

CopyShape line(std::uint64_t target, std::uint64_t source, std::size_t bytes) {
  CopyShape shape;
  shape.target = target;
  shape.source = source;
  shape.width = bytes;
  return shape;
}

CUresult copy_line(bool per_thread, std::uint64_t target, std::uint64_t source, std::size_t bytes,
                   CUstream stream, bool blocks) {
  return copy_memory(per_thread, line(target, source, bytes), stream, blocks);
}

/// Serialised with all work, before and after, of the current, the source's and the target's
/// context (driver API reference, cuMemcpyPeer). The driver orders it on the device; here the call
/// waits.
CUresult copy_peer(bool per_thread, CUdeviceptr target, CUcontext target_context,
                   CUdeviceptr source, CUcontext source_context, std::size_t bytes) {
  for (const CUcontext context : {target_context, source_context}) {
    if (const CUresult idle = cuCtxSynchronize_v2(context); idle != CUDA_SUCCESS) return idle;
  }
  return copy_memory(per_thread, line(target, source, bytes), nullptr, true);
}

CUresult copy_2d(bool per_thread, const CUDA_MEMCPY2D* p, CUstream stream, bool blocks) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D full{};
  full.srcXInBytes = p->srcXInBytes;
  full.srcY = p->srcY;
  full.srcMemoryType = p->srcMemoryType;
  full.srcHost = p->srcHost;
  full.srcDevice = p->srcDevice;
  full.srcArray = p->srcArray;
  full.srcPitch = p->srcPitch;
  full.dstXInBytes = p->dstXInBytes;
  full.dstY = p->dstY;
  full.dstMemoryType = p->dstMemoryType;
  full.dstHost = p->dstHost;
  full.dstDevice = p->dstDevice;
  full.dstArray = p->dstArray;
  full.dstPitch = p->dstPitch;
  full.WidthInBytes = p->WidthInBytes;
  full.Height = p->Height;
  full.Depth = 1;
  CopyShape shape;
  if (const CUresult result = shape_of(full, &shape); result != CUDA_SUCCESS) return result;
  return copy_memory(per_thread, shape, stream, blocks);
}

template <typename Parameters>
CUresult copy_3d(bool per_thread, const Parameters* p, CUstream stream, bool blocks) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CopyShape shape;
  if (const CUresult result = shape_of(*p, &shape); result != CUDA_SUCCESS) return result;
  return copy_memory(per_thread, shape, stream, blocks);
}

CUresult copy_batch(bool per_thread, CUdeviceptr* targets, CUdeviceptr* sources, std::size_t* sizes,
                    std::size_t count, CUstream stream) {
  if (count == 0 || targets == nullptr || sources == nullptr || sizes == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (stream == nullptr && !per_thread)
    return CUDA_ERROR_INVALID_VALUE;  // the legacy stream takes no batches
  for (std::size_t i = 0; i < count; ++i) {
    const CUresult result =
        copy_memory(per_thread, line(targets[i], sources[i], sizes[i]), stream, false);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult copy_batch_v1(bool per_thread, CUdeviceptr* targets, CUdeviceptr* sources,
                       std::size_t* sizes, std::size_t count, std::size_t* failed,
                       CUstream stream) {
  const CUresult result = copy_batch(per_thread, targets, sources, sizes, count, stream);
  if (result != CUDA_SUCCESS && failed != nullptr) *failed = SIZE_MAX;
  return result;
}

CUresult fill(bool per_thread, CUdeviceptr target, std::size_t pitch, std::uint32_t value,
              unsigned element_bytes, std::size_t width, std::size_t height, CUstream stream,
              bool is_async) {
  Context* context = nullptr;
  if (const CUresult usable = usable_context(&context); usable != CUDA_SUCCESS) return usable;
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  const std::size_t row = width * element_bytes;
  if (target % element_bytes != 0 || (height > 1 && (pitch < row || pitch % element_bytes != 0))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!is_known(target, (height - 1) * pitch + row)) return CUDA_ERROR_INVALID_VALUE;
  FillShape shape;
  shape.target = target;
  shape.device = device_of_address(context, target);
  shape.value = value;
  shape.element_bytes = element_bytes;
  shape.width = width;
  shape.height = height;
  shape.pitch = pitch;
  // The forms without Async return before the device is done, except on host memory; both are in
  // stream order.
  if (!is_async) {
    if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  }
  return submit(stream, per_thread, std::make_unique<FillOperation>(shape), nullptr);
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_PAIR(cuMemcpy, _ptds, copy_line, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), dst, src,
            bytes, nullptr, true)
SIMGPU_PAIR(cuMemcpyAsync, _ptsz, copy_line,
            (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream), dst, src, bytes,
            stream, false)
SIMGPU_PAIR(cuMemcpyHtoD_v2, _ptds, copy_line, (CUdeviceptr dst, const void* src, size_t bytes),
            dst, address_of(src), bytes, nullptr, true)
SIMGPU_PAIR(cuMemcpyHtoDAsync_v2, _ptsz, copy_line,
            (CUdeviceptr dst, const void* src, size_t bytes, CUstream stream), dst, address_of(src),
            bytes, stream, false)
SIMGPU_PAIR(cuMemcpyDtoH_v2, _ptds, copy_line, (void* dst, CUdeviceptr src, size_t bytes),
            address_of(dst), src, bytes, nullptr, true)
SIMGPU_PAIR(cuMemcpyDtoHAsync_v2, _ptsz, copy_line,
            (void* dst, CUdeviceptr src, size_t bytes, CUstream stream), address_of(dst), src,
            bytes, stream, false)
SIMGPU_PAIR(cuMemcpyDtoD_v2, _ptds, copy_line, (CUdeviceptr dst, CUdeviceptr src, size_t bytes),
            dst, src, bytes, nullptr, false)
SIMGPU_PAIR(cuMemcpyDtoDAsync_v2, _ptsz, copy_line,
            (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream), dst, src, bytes,
            stream, false)
SIMGPU_PAIR(cuMemcpyPeer, _ptds, copy_peer,
            (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,
             size_t bytes),
            dst, dst_context, src, src_context, bytes)
SIMGPU_PAIR(cuMemcpyPeerAsync, _ptsz, copy_line,
            (CUdeviceptr dst, CUcontext, CUdeviceptr src, CUcontext, size_t bytes, CUstream stream),
            dst, src, bytes, stream, false)
SIMGPU_PAIR(cuMemcpy2D_v2, _ptds, copy_2d, (const CUDA_MEMCPY2D* p), p, nullptr, true)
SIMGPU_PAIR(cuMemcpy2DUnaligned_v2, _ptds, copy_2d, (const CUDA_MEMCPY2D* p), p, nullptr, true)
SIMGPU_PAIR(cuMemcpy2DAsync_v2, _ptsz, copy_2d, (const CUDA_MEMCPY2D* p, CUstream stream), p,
            stream, false)
SIMGPU_PAIR(cuMemcpy3D_v2, _ptds, copy_3d, (const CUDA_MEMCPY3D* p), p, nullptr, true)
SIMGPU_PAIR(cuMemcpy3DAsync_v2, _ptsz, copy_3d, (const CUDA_MEMCPY3D* p, CUstream stream), p,
            stream, false)
SIMGPU_PAIR(cuMemcpy3DPeer, _ptds, copy_3d, (const CUDA_MEMCPY3D_PEER* p), p, nullptr, true)
SIMGPU_PAIR(cuMemcpy3DPeerAsync, _ptsz, copy_3d, (const CUDA_MEMCPY3D_PEER* p, CUstream stream), p,
            stream, false)
SIMGPU_PAIR(cuMemcpyBatchAsync, _ptsz, copy_batch_v1,
            (CUdeviceptr * dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
             CUmemcpyAttributes*, size_t*, size_t, size_t* failed, CUstream stream),
            dsts, srcs, sizes, count, failed, stream)
SIMGPU_PAIR(cuMemcpyBatchAsync_v2, _ptsz, copy_batch,
            (CUdeviceptr * dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
             CUmemcpyAttributes*, size_t*, size_t, CUstream stream),
            dsts, srcs, sizes, count, stream)

SIMGPU_PAIR(cuMemsetD8_v2, _ptds, fill, (CUdeviceptr dst, unsigned char value, size_t count), dst,
            0, value, 1, count, 1, nullptr, false)
SIMGPU_PAIR(cuMemsetD16_v2, _ptds, fill, (CUdeviceptr dst, unsigned short value, size_t count), dst,
            0, value, 2, count, 1, nullptr, false)
SIMGPU_PAIR(cuMemsetD32_v2, _ptds, fill, (CUdeviceptr dst, unsigned int value, size_t count), dst,
            0, value, 4, count, 1, nullptr, false)
SIMGPU_PAIR(cuMemsetD2D8_v2, _ptds, fill,
            (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height), dst,
            pitch, value, 1, width, height, nullptr, false)
SIMGPU_PAIR(cuMemsetD2D16_v2, _ptds, fill,
            (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height), dst,
            pitch, value, 2, width, height, nullptr, false)
SIMGPU_PAIR(cuMemsetD2D32_v2, _ptds, fill,
            (CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height), dst,
            pitch, value, 4, width, height, nullptr, false)
SIMGPU_PAIR(cuMemsetD8Async, _ptsz, fill,
            (CUdeviceptr dst, unsigned char value, size_t count, CUstream stream), dst, 0, value, 1,
            count, 1, stream, true)
SIMGPU_PAIR(cuMemsetD16Async, _ptsz, fill,
            (CUdeviceptr dst, unsigned short value, size_t count, CUstream stream), dst, 0, value,
            2, count, 1, stream, true)
SIMGPU_PAIR(cuMemsetD32Async, _ptsz, fill,
            (CUdeviceptr dst, unsigned int value, size_t count, CUstream stream), dst, 0, value, 4,
            count, 1, stream, true)
SIMGPU_PAIR(cuMemsetD2D8Async, _ptsz, fill,
            (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height,
             CUstream stream),
            dst, pitch, value, 1, width, height, stream, true)
SIMGPU_PAIR(cuMemsetD2D16Async, _ptsz, fill,
            (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height,
             CUstream stream),
            dst, pitch, value, 2, width, height, stream, true)
SIMGPU_PAIR(cuMemsetD2D32Async, _ptsz, fill,
            (CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height,
             CUstream stream),
            dst, pitch, value, 4, width, height, stream, true)
