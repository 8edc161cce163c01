#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tools/simgpu/driver/process_kernel.h"
#include "tools/simgpu/nccl/meeting.h"
#include "tools/simgpu/nccl/operation.h"

namespace plexrl::simgpu::nccl {

/// Device memory that NCCL has for itself: sums pass through it on their way to the program's.
struct Scratch {
  std::uint64_t address;
  std::size_t bytes;  ///< at least Meeting::kSlotBytes
};

/// What a transfer needs while it runs.
struct TransferScope {
  const ProcessKernelScope& kernel;
  Meeting& meeting;
  Scratch scratch;
};

/// One operation while it runs in a kernel: it goes on as far as it can without waiting. Its bytes
/// go through the slots of the meeting, a part at a time.
class Transfer {
 public:
  virtual ~Transfer() = default;

  enum class Step {
    kMoved,  ///< it may go on
    kWaits,  ///< for `waits_for()`
    kDone,
    kDiffers,  ///< another rank is at something else: `why()`
    kFault     ///< an address that means nothing
  };
  virtual Step step(TransferScope& scope) = 0;
  int waits_for() const { return waits_for_; }
  const std::string& why() const { return why_; }
  /// Device time until which the ranks that it needed had not begun, or its bytes were on the link.
  std::uint64_t end_ns() const { return end_ns_; }

 protected:
  Step wait_for(int rank) {
    waits_for_ = rank;
    return Step::kWaits;
  }
  int waits_for_ = 0;
  std::uint64_t end_ns_ = 0;
  std::string why_;
};

std::unique_ptr<Transfer> make_transfer(const Operation& operation, const Meeting& meeting);

}  // namespace plexrl::simgpu::nccl
