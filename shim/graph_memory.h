#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "interpose/cuda_api.h"
#include "shim/devices.h"
#include "shim/unpageable.h"

namespace plexrl::shim {

/// Memory of graphs' allocation nodes, which the driver takes when a graph runs and keeps as it
/// likes (CUDA C++ programming guide, "Graph Memory Nodes").
///
/// It is charged before a launch that may take it, by what the graph's nodes ask for, so that it
/// stays within the promise; what the driver really has is counted when the process is at rest.
/// Until then a graph that is launched again takes nothing more: its addresses are its own.
///
/// Threads: any. Job threads hold its lock while they ask the manager, whose answers the agent
/// receives; so the agent never waits for it.
class GraphMemory {
 public:
  GraphMemory(Devices& devices, Unpageable& unpageable) noexcept
      : devices_(devices), unpageable_(unpageable) {}

  /// After `graph` was instantiated.
  void instantiated(CUgraphExec exec, CUgraph graph);
  void destroyed(CUgraphExec exec);

  /// Before the driver is asked to launch or upload `exec`. False: its memory is beyond the
  /// promise. While no graph has allocation nodes it costs a load.
  bool enter(CUgraphExec exec) { return is_unused() || charge(exec); }
  /// After it, once for each `enter` that was true.
  void leave(CUgraphExec exec, CUresult result) {
    if (!is_unused()) settle(exec, result);
  }

  /// Counts what the driver has. Nothing that was launched is outstanding. The agent counts another
  /// time when somebody is about to launch such a graph.
  void count();
  void count_if_idle();

 private:
  using Sizes = std::map<CUdevice, std::uint64_t>;  ///< bytes on each device
  struct Exec {
    Sizes sizes;
    Sizes charged;  ///< of them since the last count, beside what the driver had left over
    bool is_charged = false;
    bool was_launched = false;  ///< since the last count
    int entered = 0;            ///< threads between `enter` and `leave`
  };
  struct Counted {
    std::uint64_t charged = 0;
    std::uint64_t idle = 0;  ///< of what the driver had at the last count, what no graph used
  };

  bool is_unused() const { return with_memory_.load(std::memory_order_relaxed) == 0; }
  bool charge(CUgraphExec exec);
  bool charge(CUdevice device, std::uint64_t bytes, std::uint64_t* charged);
  void give_back(const Sizes& sizes, const Sizes& charged);
  void settle(CUgraphExec exec, CUresult result);
  void count_locked();
  void count_device(CUdevice device);

  Devices& devices_;
  Unpageable& unpageable_;
  std::atomic<std::size_t> with_memory_{0};  ///< entries of execs_
  std::mutex mutex_;
  std::map<CUgraphExec, Exec> execs_;  ///< those with allocation nodes
  std::map<CUdevice, Counted> counted_;
};

}  // namespace plexrl::shim
