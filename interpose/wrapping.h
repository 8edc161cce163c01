#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "interpose/handlers.h"

/// Small pure functions that the wrappers are made of: what stream a row means, how large an array
/// is, what names a counted thing.

namespace plexrl::interpose {

/// True for the forms whose default stream is the thread's own.
constexpr bool is_per_thread(std::string_view symbol) noexcept {
  return symbol.ends_with("_ptsz") || symbol.ends_with("_ptds");
}

/// The stream a `gate` row works on: stream 0 becomes the default stream that the form means.
template <bool kPerThread>
inline CUstream wrapped_stream(CUstream stream) noexcept {
  if (stream != nullptr) return stream;
  return kPerThread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

namespace wrapping {

/// The words of driver_api.def's detail column.
struct NoStream {
  operator CUstream() const noexcept { return nullptr; }
};
struct AllStreams {
  operator CUstream() const noexcept { return all_streams_mark(); }
};
inline constexpr NoStream no_stream;
inline constexpr AllStreams all_streams;

constexpr uint64_t element_bytes(CUarray_format format) noexcept {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    default:  // 32 bits; the packed and block-compressed formats are at most that an element
      return 4;
  }
}

template <typename Descriptor>
constexpr uint64_t array_depth(const Descriptor& array) noexcept {
  if constexpr (requires { array.Depth; }) {
    return array.Depth != 0 ? array.Depth : 1;
  } else {
    return 1;
  }
}

/// Whether the slices of an array are layers or faces, of which each mipmap level has all.
template <typename Descriptor>
constexpr bool has_layers(const Descriptor& array) noexcept {
  if constexpr (requires { array.Flags; }) {
    return (array.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  } else {
    return false;
  }
}

/// What an array of this descriptor takes at least, all mipmap levels together, without the
/// driver's padding; 0 for a null descriptor. A sparse array takes nothing by itself, but counts
/// all the same.
template <typename Descriptor>
constexpr uint64_t array_bytes(const Descriptor* array, unsigned int levels = 1) noexcept {
  if (array == nullptr) return 0;
  uint64_t width = array->Width;
  uint64_t height = array->Height != 0 ? array->Height : 1;
  uint64_t depth = array_depth(*array);
  const uint64_t depth_of_last = has_layers(*array) ? depth : 1;
  uint64_t bytes = 0;
  for (unsigned int level = 0; level < (levels != 0 ? levels : 1); ++level) {
    bytes += width * height * depth * array->NumChannels * element_bytes(array->Format);
    if (width == 1 && height == 1 && depth == depth_of_last) break;  // there are no more levels
    width = width > 1 ? width / 2 : 1;
    height = height > 1 ? height / 2 : 1;
    depth = depth > depth_of_last ? depth / 2 : depth;
  }
  return bytes;
}

}  // namespace wrapping

/// The stream of a `took` row: null where the allocation isn't queued on one.
template <bool kPerThread>
inline CUstream counted_stream(CUstream stream) noexcept {
  return wrapped_stream<kPerThread>(stream);
}
template <bool kPerThread>
inline CUstream counted_stream(wrapping::NoStream) noexcept {
  return nullptr;
}

/// What names a counted thing: its pointer or handle.
template <typename T>
inline uint64_t counted_key(T* pointer) noexcept {
  return reinterpret_cast<uint64_t>(pointer);
}
inline uint64_t counted_key(unsigned long long handle) noexcept { return handle; }

}  // namespace plexrl::interpose
