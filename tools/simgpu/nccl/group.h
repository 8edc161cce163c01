#pragma once

#include <functional>
#include <memory>

#include "tools/simgpu/nccl/communicator.h"

namespace plexrl::simgpu::nccl {

/// Group calls (NCCL's user guide, "Group Calls"). Every call that communicates is part of a group:
/// of the thread's, if it has one open, else of one for itself. The group's end does what was
/// collected: first what makes communicators and the like, all side by side, because ranks of one
/// thread wait for each other; then one kernel for each communicator. A call that failed makes the
/// whole group fail, and nothing of it is done.
///
/// Threads: each has its own.
class Group {
 public:
  static ncclResult_t start();
  static ncclResult_t end();
  static void forget();  ///< ends it, and does nothing

  /// Something to be done on a thread, in the communicator's time: begin, split, register a window.
  static ncclResult_t add(std::shared_ptr<Communicator> communicator,
                          std::function<ncclResult_t()> task);
  static ncclResult_t add(std::shared_ptr<Communicator> communicator, const Operation& operation,
                          CUstream stream);
  /// The answer of a call that can't be part of a group; makes an open group fail.
  static ncclResult_t refuse(ncclResult_t why);
};

}  // namespace plexrl::simgpu::nccl
