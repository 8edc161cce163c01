#pragma once

#include <functional>

#include "nodemgr/leases.h"
#include "nodemgr/node.h"

namespace plexrl::nodemgr {

/// Compares what the driver shows on each GPU with what the manager has given out, now and then:
///
/// - memory of processes that are no job's is not usable for jobs, and they are named, in the log
///   too, as are those that only have the GPU's files open (Node::openers);
/// - what a process takes beside its charges is its overhead: learned when two looks in a row show
///   the same figures, and the process has reported all it was charged for, and its own memory is
///   not on its way;
/// - memory of a process that has ended is free when the driver no longer shows the process
///   (docs/architecture.md, "The life of a switch"), not before.
///
/// Where the driver's pids are not ours (a container with pids of its own), a process can't be told
/// from another: then others use at most what exceeds our own accounts, nothing is learned, and the
/// memory of an ended process counts as free at once. One thread, the loop's.
class GpuWatch {
 public:
  /// `usable_changed` is called when jobs that are queued may fit now. The probe outlives this.
  GpuWatch(Node& node, GpuProbe& probe, Leases& leases, std::function<void()> usable_changed)
      : node_(node), probe_(probe), leases_(leases), usable_changed_(std::move(usable_changed)) {}

  /// Asks the driver about all GPUs, and sets the timer of the next look.
  void look();
  /// A process will use a GPU soon: the next look is.
  void process_joined();
  /// Who has files of GPUs open has changed.
  void openers_changed();
  /// The process has ended and its gang knows; the caller steps the leases afterwards.
  void process_ended(const Session& session);

 private:
  void look_at(int index, NodeGpu& gpu);
  bool see_sessions(int index, const GpuUse& use);
  void see_others(int index, NodeGpu& gpu, const GpuUse& use);
  void see_departed(int index, NodeGpu& gpu, const GpuUse* use);
  bool is_session(std::int64_t pid) const;
  void name_bypass(int index, NodeGpu& gpu);
  bool is_used_by(std::int64_t pid, int gpu) const;
  void learn(Session& session, int gpu, std::uint64_t driver_bytes);
  std::uint64_t accounted_bytes(int gpu) const;
  void set_timer();

  Node& node_;
  GpuProbe& probe_;
  Leases& leases_;
  std::function<void()> usable_changed_;
};

}  // namespace plexrl::nodemgr
