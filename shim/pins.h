#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "shim/devices.h"
#include "shim/range_table.h"

namespace plexrl::shim {

/// Memory of ours that somebody reads or writes without passing a gate: a NIC, another device, a
/// process outside of the job. It stays in HBM, under the same handles, until whoever holds it lets
/// go or the memory is freed, and is charged as what can't be paged.
///
/// Threads: any job thread; `hold` inside an open gate. Of several that hold at a time one has its
/// turn, so that none takes for held what another is refused; `let_go` waits for nobody.
class Pins {
 public:
  Pins(RangeTable& ranges, Devices& devices) noexcept : ranges_(ranges), devices_(devices) {}

  enum class Hold {
    kHeld,
    kNoRoom,    ///< what other jobs have been promised does not leave so much HBM
    kNotOwned,  ///< another process of the job moves it, or it is not ours
  };
  /// One hold, for `let_go`. It may outlive its memory; what is at the address then is left alone.
  struct Held {
    CUdevice device;
    std::uint64_t address;  ///< as the pager has it
    std::size_t bytes;
    std::uint64_t range;  ///< identifier
    const PinReason* reason;
  };
  /// `address` as the pager has it. `*held` is written where the memory is held.
  Hold hold(CUdevice device, std::uint64_t address, std::size_t bytes, const PinReason& reason,
            Held* held);
  void let_go(const Held& held);

 private:
  RangeTable& ranges_;
  Devices& devices_;
  /// Held while the manager is asked; never by the agent, which receives the answers.
  std::mutex holding_;
};

}  // namespace plexrl::shim
