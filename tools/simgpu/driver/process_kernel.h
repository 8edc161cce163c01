#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace plexrl::simgpu {

/// A kernel whose body is a function of the process: how the simulated NCCL (tools/simgpu/nccl) has
/// its collectives run on a stream. It is loaded, launched and captured by the driver API like any
/// kernel, so all that catches launches catches it; the driver knows it by its whole PTX text
/// (native_kernel.h). What the driver gives the body is a table, because both are libraries.
struct ProcessKernelScope {
  std::size_t bytes;  ///< of this table
  int device;         ///< of the machine
  /// Device time at which the kernel begins.
  std::uint64_t start_ns;
  /// What the device sees at `address`, and how many bytes of it follow; null: nothing. Host memory
  /// that devices may use counts.
  std::byte* (*memory)(int device, std::uint64_t address, std::uint64_t* contiguous);
  /// Whether exit has begun: the body then returns soon, whatever it waits for.
  bool (*is_leaving)();
  /// Books bytes that leave the device for another, or come from one, on its link; returns the
  /// device time of the transfer's end.
  std::uint64_t (*book_transfer)(int device, bool leaves, std::uint64_t bytes,
                                 std::uint64_t earliest);
};

/// Runs on the stream's thread and may block it. `*end_ns` is the device time of the end, at least
/// scope.start_ns. An error becomes the context's sticky error.
using ProcessKernelBody = CUresult (*)(const ProcessKernelScope& scope, void* state,
                                       std::uint64_t* end_ns);

/// Its parameters, by which a launch says what runs.
struct ProcessKernelParameters {
  ProcessKernelBody body;
  void* state;  ///< for `body`
};

inline constexpr char kProcessKernelName[] = "ncclDevKernel_Simulated";
inline constexpr char kProcessKernelPtx[] = R"(.version 7.5
.target sm_75
.address_size 64
.visible .entry ncclDevKernel_Simulated(.param .u64 body, .param .u64 state)
{
  trap;
}
)";

}  // namespace plexrl::simgpu
