#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/devices.h"
#include "shim/range_table.h"

namespace plexrl::shim {

/// Memory of ours that somebody reads or writes without passing a gate: a NIC, another device, a
/// process outside of the job. It stays in HBM, under the same handles, until whoever holds it lets
/// go or the memory is freed, and is charged as what can't be paged.
///
/// Threads: any job thread, inside an open gate.
class Pins {
 public:
  Pins(RangeTable& ranges, Devices& devices) noexcept : ranges_(ranges), devices_(devices) {}

  enum class Hold {
    kHeld,
    kNoRoom,    ///< what other jobs have been promised does not leave so much HBM
    kNotOwned,  ///< another process of the job moves it, or it is not ours
  };
  /// `address` as the pager has it. `reason` is shown to the user and must live for ever.
  Hold hold(CUdevice device, std::uint64_t address, std::size_t bytes, const char* reason);
  void let_go(CUdevice device, std::uint64_t address, std::size_t bytes);

 private:
  RangeTable& ranges_;
  Devices& devices_;
};

}  // namespace plexrl::shim
