#pragma once

#include <cstddef>
#include <cstdint>

#include "tools/simgpu/ptx/executor.h"

/// How many blocks of a kernel fit on a multiprocessor. Figures of an architecture are those of
/// "Compute Capabilities" in the CUDA C++ Programming Guide.
namespace plexrl::simgpu {

struct Architecture {
  int threads_per_sm;
  int blocks_per_sm;
  int registers_per_sm;
  std::size_t shared_per_sm;
  std::size_t shared_per_block;  ///< without opting in
  std::size_t
      shared_per_block_opt_in;  ///< at most, with CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
  std::size_t shared_reserved;  ///< of each block, for the system
  std::size_t shared_unit;
};

/// `sm` is 75, 80 or 90.
const Architecture& architecture(int sm);

inline constexpr int kMaxThreadsPerBlock = 1024;
inline constexpr int kWarp = 32;

/// Registers a thread. PTX counts virtual registers, of which there may be thousands; the figure is
/// capped at what lets the kernel's largest block run, as a compiler for the hardware would do.
int registers_of(const ptx::KernelInfo& kernel, const Architecture& device);

/// Blocks of `threads` that a multiprocessor holds at once; 0: not even one.
int blocks_per_sm(const ptx::KernelInfo& kernel, const Architecture& device, int threads,
                  std::size_t dynamic_shared);

/// The largest dynamic shared memory with which `blocks` blocks of `threads` fit on a
/// multiprocessor.
std::size_t dynamic_shared_for(const ptx::KernelInfo& kernel, const Architecture& device,
                               int blocks, int threads);

}  // namespace plexrl::simgpu
