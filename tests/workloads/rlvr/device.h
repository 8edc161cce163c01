#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/workloads/rlvr/driver.h"

namespace plexrl::workloads::rlvr {

/// A block of device memory. Owned by the Device that made it.
struct Buffer {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
};

/// One GPU: its primary context, one stream, the kernels, and every byte that is allocated on it.
/// All work goes to the one stream. Errors: DriverError. Not thread-safe.
class Device {
 public:
  explicit Device(int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Zeroed memory.
  Buffer allocate(std::size_t bytes);

  /// Starts `kernel` (a name in kernels.cu) with `block` threads in each of `grid` blocks.
  template <typename... Args>
  void launch(const char* kernel, unsigned grid, unsigned block, unsigned shared_bytes,
              Args... args) {
    void* pointers[] = {&args...};
    launch_with(kernel, grid, block, shared_bytes, pointers);
  }

  /// Through pinned memory; returns when the copy is done.
  void write(const Buffer& to, const void* from, std::size_t bytes);
  void read(void* to, const Buffer& from, std::size_t bytes);
  void synchronize();

  /// Keeps the device busy for so long, in kernels of at most 10 ms with a wait after each, as the
  /// decoding of tokens does.
  void hold(std::uint64_t ns);

  /// 32 hex digits over the bytes of all buffers, in the order they were allocated.
  std::string digest();
  /// The same over one buffer.
  std::string digest(const Buffer& buffer);
  std::size_t allocated_bytes() const;
  CUstream stream() const { return stream_; }

 private:
  void launch_with(const char* kernel, unsigned grid, unsigned block, unsigned shared_bytes,
                   void** args);

  int ordinal_;
  CUstream stream_ = nullptr;
  CUmodule module_ = nullptr;
  void* staging_ = nullptr;  // pinned, kStagingBytes
  std::vector<Buffer> buffers_;
};

}  // namespace plexrl::workloads::rlvr
