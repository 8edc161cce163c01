#pragma once

#include <cstddef>
#include <cstdint>

#include "interpose/cuda_api.h"

/// What memory the parameters of a copy or fill name, read from their types alone: a pure function
/// of a call, for the wrappers of `gate` rows.

namespace plexrl::interpose {

/// Called with the parameters of a row: whether `outside` is true of any stretch of addresses that
/// they name. False of rows that are no copy or fill, of arrays, of addresses of 32 bits (CUDA 3.1
/// and older), and of parameters that wrap around, which the driver refuses.
class Reach {
 public:
  using Outside = bool (*)(std::uint64_t address, std::uint64_t bytes) noexcept;
  explicit constexpr Reach(Outside outside) noexcept : outside_(outside) {}

  template <typename... Other>
  constexpr bool operator()(const Other&...) const noexcept {
    return false;
  }

  // cuMemcpyHtoD, …DtoH, …DtoD, …Peer, and what is queued on a stream.
  template <typename... Stream>
  bool operator()(CUdeviceptr target, const void* /*source*/, std::size_t bytes,
                  Stream... /*stream*/) const noexcept {
    return is_outside(target, bytes);
  }
  template <typename... Stream>
  bool operator()(void* /*target*/, CUdeviceptr source, std::size_t bytes,
                  Stream... /*stream*/) const noexcept {
    return is_outside(source, bytes);
  }
  template <typename... Stream>
  bool operator()(CUdeviceptr target, CUdeviceptr source, std::size_t bytes,
                  Stream... /*stream*/) const noexcept {
    return is_outside(target, bytes) || is_outside(source, bytes);
  }
  template <typename... Stream>
  bool operator()(CUdeviceptr target, CUcontext /*there*/, CUdeviceptr source, CUcontext /*here*/,
                  std::size_t bytes, Stream... /*stream*/) const noexcept {
    return is_outside(target, bytes) || is_outside(source, bytes);
  }

  // cuMemcpyAtoD and …DtoA; arrays are the driver's.
  bool operator()(CUdeviceptr target, CUarray /*source*/, std::size_t /*offset*/,
                  std::size_t bytes) const noexcept {
    return is_outside(target, bytes);
  }
  bool operator()(CUarray /*target*/, std::size_t /*offset*/, CUdeviceptr source,
                  std::size_t bytes) const noexcept {
    return is_outside(source, bytes);
  }

  // cuMemsetD8, …D16, …D32: the type of the value is the width.
  template <typename... Stream>
  bool operator()(CUdeviceptr target, unsigned char value, std::size_t count,
                  Stream... /*stream*/) const noexcept {
    return is_box_outside(target, 0, sizeof value, count, 1);
  }
  template <typename... Stream>
  bool operator()(CUdeviceptr target, unsigned short value, std::size_t count,
                  Stream... /*stream*/) const noexcept {
    return is_box_outside(target, 0, sizeof value, count, 1);
  }
  template <typename... Stream>
  bool operator()(CUdeviceptr target, unsigned int value, std::size_t count,
                  Stream... /*stream*/) const noexcept {
    return is_box_outside(target, 0, sizeof value, count, 1);
  }
  // cuMemsetD2D8, …D2D16, …D2D32.
  template <typename... Stream>
  bool operator()(CUdeviceptr target, std::size_t pitch, unsigned char value, std::size_t width,
                  std::size_t height, Stream... /*stream*/) const noexcept {
    return is_box_outside(target, pitch, sizeof value, width, height);
  }
  template <typename... Stream>
  bool operator()(CUdeviceptr target, std::size_t pitch, unsigned short value, std::size_t width,
                  std::size_t height, Stream... /*stream*/) const noexcept {
    return is_box_outside(target, pitch, sizeof value, width, height);
  }
  template <typename... Stream>
  bool operator()(CUdeviceptr target, std::size_t pitch, unsigned int value, std::size_t width,
                  std::size_t height, Stream... /*stream*/) const noexcept {
    return is_box_outside(target, pitch, sizeof value, width, height);
  }

  // cuMemcpy2D, …3D, …3DPeer.
  template <typename... Stream>
  bool operator()(const CUDA_MEMCPY2D* copy, Stream... /*stream*/) const noexcept {
    if (copy == nullptr) return false;
    const Box box{copy->WidthInBytes, copy->Height, 1};
    return is_side_outside(copy->srcMemoryType, copy->srcDevice,
                           {copy->srcXInBytes, copy->srcY, 0, copy->srcPitch, 0}, box) ||
           is_side_outside(copy->dstMemoryType, copy->dstDevice,
                           {copy->dstXInBytes, copy->dstY, 0, copy->dstPitch, 0}, box);
  }
  template <typename... Stream>
  bool operator()(const CUDA_MEMCPY3D* copy, Stream... /*stream*/) const noexcept {
    return is_copy_outside(copy);
  }
  template <typename... Stream>
  bool operator()(const CUDA_MEMCPY3D_PEER* copy, Stream... /*stream*/) const noexcept {
    return is_copy_outside(copy);
  }

  // cuMemcpyBatchAsync.
  template <typename... Rest>
  bool operator()(CUdeviceptr* targets, CUdeviceptr* sources, std::size_t* bytes, std::size_t count,
                  Rest... rest) const noexcept {
    return operator()(static_cast<const CUdeviceptr*>(targets),
                      static_cast<const CUdeviceptr*>(sources),
                      static_cast<const std::size_t*>(bytes), count, rest...);
  }
  template <typename... Rest>
  bool operator()(const CUdeviceptr* targets, const CUdeviceptr* sources, const std::size_t* bytes,
                  std::size_t count, Rest... /*rest*/) const noexcept {
    if (targets == nullptr || sources == nullptr || bytes == nullptr) return false;
    for (std::size_t i = 0; i < count; ++i) {
      if (is_outside(targets[i], bytes[i]) || is_outside(sources[i], bytes[i])) return true;
    }
    return false;
  }

 private:
  struct Box {
    std::size_t width, height, depth;
  };
  /// Where a box begins in the memory around it. `rows` is the number of rows of a slice.
  struct Place {
    std::size_t x, y, z, pitch, rows;
  };

  bool is_outside(CUdeviceptr address, std::size_t bytes) const noexcept {
    return bytes != 0 && outside_(address, bytes);
  }
  bool is_box_outside(CUdeviceptr address, std::size_t pitch, std::size_t element,
                      std::size_t width, std::size_t height) const noexcept {
    std::size_t row = 0;
    if (__builtin_mul_overflow(width, element, &row)) return false;
    return is_side_outside(CU_MEMORYTYPE_DEVICE, address, {0, 0, 0, pitch, 0}, {row, height, 1});
  }
  bool is_side_outside(CUmemorytype type, CUdeviceptr base, const Place& place,
                       const Box& box) const noexcept {
    if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) return false;
    if (box.width == 0 || box.height == 0 || box.depth == 0) return false;
    using Wide = unsigned __int128;
    const auto at = [&](Wide x, Wide y, Wide z) {
      return x + Wide{place.pitch} * (y + Wide{place.rows} * z);
    };
    const Wide first = Wide{base} + at(place.x, place.y, place.z);
    const Wide last = Wide{base} + at(Wide{place.x} + box.width, Wide{place.y} + box.height - 1,
                                      Wide{place.z} + box.depth - 1);
    constexpr Wide kEnd = Wide{1} << 64;
    // Of three dimensions, `at` may wrap around too, but not for a first address below the last.
    if (first >= kEnd || last >= kEnd || last <= first) return false;
    return outside_(static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(last - first));
  }
  template <typename Copy>
  bool is_copy_outside(const Copy* copy) const noexcept {
    if (copy == nullptr) return false;
    const Box box{copy->WidthInBytes, copy->Height, copy->Depth};
    return is_side_outside(
               copy->srcMemoryType, copy->srcDevice,
               {copy->srcXInBytes, copy->srcY, copy->srcZ, copy->srcPitch, copy->srcHeight}, box) ||
           is_side_outside(
               copy->dstMemoryType, copy->dstDevice,
               {copy->dstXInBytes, copy->dstY, copy->dstZ, copy->dstPitch, copy->dstHeight}, box);
  }

  Outside outside_;
};

}  // namespace plexrl::interpose
