#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tools/simgpu/nccl/device_block.h"
#include "tools/simgpu/nccl/meeting.h"
#include "tools/simgpu/nccl/operation.h"
#include "tools/simgpu/nccl/transfer.h"

namespace plexrl::simgpu::nccl {

/// One rank of a communicator. Its work are kernels of its context, one after the other, however
/// many streams they are on; a kernel that waits for other ranks holds no core.
///
/// An ncclComm_t is the address of one; the table of living ones (`find`) owns it, with the kernels
/// that are still to run.
///
/// Threads: as NCCL, one at a time for each communicator; `fail`, `abort` and what asks, any.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  /// Of the calling thread's context, which is that of the first device where it has none.
  /// Adds it to the table.
  static ncclResult_t make(bool blocks, std::shared_ptr<Communicator>* made);
  /// Of the device's primary context.
  static ncclResult_t make_for(CUdevice device, std::shared_ptr<Communicator>* made);
  /// nullptr: no living communicator.
  static std::shared_ptr<Communicator> find(ncclComm_t handle);
  ncclComm_t handle() { return reinterpret_cast<ncclComm_t>(this); }
  ~Communicator();

  /// Meets the other ranks and takes what it needs of the device.
  ncclResult_t begin(const MeetingId& id, int ranks, int rank);
  /// Does that on a thread; until it is over the communicator is in progress.
  void begin_aside(std::function<ncclResult_t()> begin);

  /// What a communicator is called that is the `number`-th made from this one.
  MeetingId derive(std::uint64_t color);
  ncclResult_t exchange(const Meeting::Word& mine, std::vector<Meeting::Word>* all);

  /// One kernel for all of them, behind what is on each of the streams, which go on behind it.
  ncclResult_t launch(const std::vector<Operation>& operations,
                      const std::vector<CUstream>& streams);
  /// Waits for the kernels launched so far.
  ncclResult_t finish();
  /// Whatever runs or waits ends soon.
  void stop();
  /// Ends it, and takes it out of the table.
  void close();

  /// The first error stays.
  ncclResult_t fail(ncclResult_t error, const std::string& why);
  ncclResult_t fail_cuda(CUresult error, const char* call);
  ncclResult_t state() const;
  const char* last_error();  ///< valid until the communicator ends
  /// What a call that uses it answers at once: ncclSuccess where it may go on.
  ncclResult_t check() const;

  int rank() const { return meeting_.rank(); }
  int ranks() const { return meeting_.ranks(); }
  CUdevice device() const { return device_; }
  CUcontext context() const { return context_; }
  bool blocks() const { return blocks_; }
  bool has_met() const { return has_met_.load(); }  ///< the others, with success
  void revoke() { is_revoked_.store(true); }

  ncclRedOp_t add_operator(const Reduction& reduction, std::uint64_t factor);
  bool remove_operator(ncclRedOp_t op);
  /// What `op` means for this type; false: nothing.
  bool find_operator(ncclRedOp_t op, ncclDataType_t type, Operation* operation) const;

  /// What it has registered, by handle.
  std::map<void*, std::unique_ptr<char>> registered;

 private:
  struct Plan;
  Communicator() = default;
  ncclResult_t set_context(CUcontext context, bool is_retained);
  CUresult launch_plan(std::unique_ptr<Plan> plan, CUstream stream);
  CUresult order(CUstream stream, bool captures, std::uint64_t capture);
  static CUresult run_plan(const ProcessKernelScope& scope, void* state, std::uint64_t* end_ns);
  CUresult run(const std::vector<Operation>& operations, const ProcessKernelScope& scope,
               std::uint64_t* end_ns);
  CUresult await_end(const ProcessKernelScope& scope);

  CUcontext context_ = nullptr;
  CUdevice device_ = 0;
  bool is_retained_ = false;
  bool blocks_ = true;
  MeetingId id_{};
  std::uint64_t derived_ = 0;
  Meeting meeting_;
  DeviceBlock scratch_;
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUevent last_ = nullptr;  ///< behind the latest kernel that no graph has
  CUstream last_stream_ = nullptr;
  bool has_launched_ = false;
  std::uint64_t last_capture_ = 0;  ///< and where the latest captured one is
  CUevent captured_ = nullptr;
  std::thread aside_;
  std::mutex turn_;  ///< held by the kernel that runs
  std::atomic<bool> has_met_{false};
  std::atomic<bool> is_stopped_{false};
  std::atomic<bool> is_revoked_{false};
  bool is_closed_ = false;  ///< under turn_
  mutable std::mutex error_mutex_;
  ncclResult_t state_ = ncclSuccess;
  std::string why_;
  struct Operator {
    Reduction reduction;
    std::uint64_t factor;
  };
  std::map<unsigned, Operator> operators_;
  unsigned last_operator_ = 5;
};

/// Makes the communicator's context the calling thread's, as long as it lives.
class InContext {
 public:
  explicit InContext(CUcontext context);
  ~InContext();
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
};

}  // namespace plexrl::simgpu::nccl
