#pragma once

#include <cstdint>

namespace plexrl::simgpu {

/// Which frames of the devices' memory are in this process's page table. A process that joins a
/// machine enters them when it first has to do with them: all of a large device at once would cost
/// each of many small processes more than everything else it does.
///
/// Threads: any. One machine's at a time is enough: what is not entered is found by faults.

/// `device`'s memory has been mapped; `is_entered`: with all of its pages.
void begin_touches(int device, std::uint32_t frames, bool is_entered);
/// Enters the frame that begins at `address` unless it has been.
void touch_once(int device, std::uint32_t frame, void* address);

}  // namespace plexrl::simgpu
