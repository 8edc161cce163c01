#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "tools/simgpu/driver/context.h"
#include "tools/simgpu/driver/cuda_api.h"

namespace plexrl::simgpu {

/// The memory of a graph's allocation node: its address is fixed when the node is added, physical
/// memory is behind it from the run of the allocation node until that of a free node, or until the
/// program frees it like any other memory.
///
/// Shared by nodes, executable graphs and launches. Threads: any.
class GraphMemory {
 public:
  static CUresult create(Context* context, const CUDA_MEM_ALLOC_NODE_PARAMS& parameters,
                         std::shared_ptr<GraphMemory>* made);
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  CUdeviceptr address() const { return address_; }
  const CUDA_MEM_ALLOC_NODE_PARAMS& parameters() const { return parameters_; }
  /// Nothing to do when it is. OUT_OF_MEMORY when the device has no more.
  CUresult allocate();
  CUresult free();
  bool is_allocated() const;
  /// Whether what has been launched by now leaves it allocated when it has run, and the program has
  /// not freed it since.
  bool is_left() const { return is_left_.load(); }
  void set_left(bool is_left) { is_left_.store(is_left); }
  /// The living one that has this address, or nullptr.
  static std::shared_ptr<GraphMemory> find(CUdeviceptr address);
  /// Whether all of [address, address + bytes) belongs to one, allocated or not: work that is
  /// captured may name memory that is there only when the graph runs.
  static bool covers(CUdeviceptr address, std::size_t bytes);

  /// Bytes of a device that graphs have allocated now, and the most there were since the last
  /// reset.
  static std::uint64_t used_bytes(int device);
  static std::uint64_t peak_bytes(int device);
  static void reset_peak(int device);

 private:
  GraphMemory(Context* context, CUDA_MEM_ALLOC_NODE_PARAMS parameters)
      : context_(context), parameters_(parameters) {}
  std::uint64_t reserved_bytes() const;
  bool is_allocated_locked() const;
  CUresult back();

  Context* const context_;
  CUDA_MEM_ALLOC_NODE_PARAMS parameters_;
  CUdeviceptr address_ = 0;
  std::uint64_t range_id_ = 0;  // of the range that this object made, 0 before the first
  std::atomic<bool> is_left_{false};
  mutable std::mutex mutex_;
};

}  // namespace plexrl::simgpu
