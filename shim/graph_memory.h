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
/// Until then a graph that is launched again takes nothing more: its addresses are its own. One
/// that frees by itself what it left behind (AUTO_FREE_ON_LAUNCH) has that again at its next
/// launch.
///
/// Threads: any. Job threads hold its lock while they ask the manager, whose answers the agent
/// receives, and while pools make room; so the agent never waits for it.
class GraphMemory {
 public:
  GraphMemory(Devices& devices, Unpageable& unpageable) noexcept
      : devices_(devices), unpageable_(unpageable) {}

  /// After `graph` was instantiated with these flags (CUgraphInstantiate_flags).
  void instantiated(CUgraphExec exec, CUgraph graph, std::uint64_t flags);
  void destroyed(CUgraphExec exec);

  /// Before the driver is asked to launch or upload `exec` in `stream`, which is never 0. False:
  /// its memory is beyond the promise; `says_why`: the user is told where that is not to be
  /// expected. While no graph has allocation nodes it costs a load.
  bool enter(CUgraphExec exec, CUstream stream, bool says_why = true) {
    return is_unused() || charge(exec, stream, says_why);
  }
  /// After it, once for each `enter` that was true.
  void leave(CUgraphExec exec, bool is_launch, CUresult result) {
    if (!is_unused()) settle(exec, is_launch, result);
  }

  /// Counts what the driver has. Nothing that was launched is outstanding. The agent counts another
  /// time when somebody is about to launch such a graph.
  void count();
  void count_if_idle();
  /// Grows with each count.
  std::uint64_t counts() const noexcept { return counts_.load(std::memory_order_acquire); }
  /// Whether all that was launched or uploaded since the last count went into this stream, which is
  /// no default stream: when the stream is empty nothing of it is outstanding.
  bool all_in(CUstream stream);

 private:
  using Sizes = std::map<CUdevice, std::uint64_t>;  ///< bytes on each device
  /// What makes up the memory of one graph on one device.
  struct Taken {
    std::uint64_t idle = 0;     ///< of Counted::idle
    std::uint64_t used = 0;     ///< of Counted::used
    std::uint64_t charged = 0;  ///< the rest
  };
  struct Exec {
    Sizes sizes;
    std::map<CUdevice, Taken> taken;  ///< since the last count, while `is_charged`
    bool is_charged = false;
    bool frees_itself = false;  ///< at its launch, what is left of the one before
    bool has_run = false;
    bool was_launched = false;  ///< or uploaded, since the last count
    int entered = 0;            ///< threads between `enter` and `leave`
  };
  /// Of what the driver had at the last count, less what graphs have taken of it since.
  struct Counted {
    std::uint64_t charged = 0;
    std::uint64_t idle = 0;  ///< used by no graph
    std::uint64_t used = 0;  ///< left behind by graphs that have run
  };

  bool is_unused() const { return with_memory_.load(std::memory_order_relaxed) == 0; }
  bool charge(CUgraphExec exec, CUstream stream, bool says_why);
  /// `may_reuse`: it has what is in use of its own again.
  bool take(CUdevice device, std::uint64_t bytes, bool may_reuse, bool says_why, Taken* taken);
  void give_back(const std::map<CUdevice, Taken>& taken);
  void settle(CUgraphExec exec, bool is_launch, CUresult result);
  void count_locked();
  void count_device(CUdevice device);

  Devices& devices_;
  Unpageable& unpageable_;
  std::atomic<std::size_t> with_memory_{0};  ///< entries of execs_
  std::mutex mutex_;
  std::map<CUgraphExec, Exec> execs_;  ///< those with allocation nodes
  std::map<CUdevice, Counted> counted_;
  CUstream stream_ = nullptr;  ///< of what was launched since the last count; null: nothing was
  bool is_in_several_ = false;
  std::atomic<std::uint64_t> counts_{0};
};

}  // namespace plexrl::shim
