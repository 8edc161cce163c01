#pragma once

#include "tools/simgpu/driver/cuda_api.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tools/simgpu/driver/machine.h"

namespace plexrl::simgpu {

class Stream;
class SmallBlocks;

/// A context of this process. A CUcontext is its address. Contexts are never freed, so that a stale
/// handle can be told from a living one; `alive` is false after destruction.
struct Context {
  int device = 0;
  unsigned flags = 0;
  bool is_primary = false;
  int primary_uses = 0;  ///< retains of a primary context; guarded by the driver's mutex
  std::atomic<bool> alive{true};
  std::atomic<CUresult> error{
      CUDA_SUCCESS};  ///< sticky: every later call of the context answers it
  std::uint64_t id = 0;
  std::uint32_t memory = 0;      ///< the machine's allocation that stands for the context itself
  std::atomic<int> peers{0};     ///< bit n: access to device n's memory is enabled
  std::mutex mutex;              ///< streams, blocks
  std::vector<Stream*> streams;  ///< every living stream, the default ones too
  Stream* legacy = nullptr;
  std::unique_ptr<SmallBlocks> blocks;         ///< small cuMemAlloc requests
  std::atomic<std::uint64_t> limits[16] = {};  ///< by CUlimit; 0: the default

  Context();
  ~Context();
};

/// The current context of the calling thread; nullptr when there is none.
Context* current_context();
/// CUDA_SUCCESS and the current context if it lives and has no sticky error; otherwise what a call
/// must answer.
CUresult usable_context(Context** context);
/// Whether a handle is a living context of this process.
bool is_context(CUcontext handle);

}  // namespace plexrl::simgpu
