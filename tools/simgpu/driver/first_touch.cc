#include "tools/simgpu/driver/first_touch.h"

#include <sys/mman.h>

#include <array>
#include <atomic>

#include "tools/simgpu/driver/machine_state.h"

namespace plexrl::simgpu {
namespace {

std::array<std::array<std::atomic<bool>, kMaxFrames>, kMaxDevices> touched;

}  // namespace

void begin_touches(int device, std::uint32_t frames, bool is_entered) {
  auto& of_device = touched[static_cast<std::size_t>(device)];
  for (std::uint32_t frame = 0; frame < frames; ++frame) of_device[frame].store(is_entered);
}

void touch_once(int device, std::uint32_t frame, void* address) {
  if (touched[static_cast<std::size_t>(device)][frame].exchange(true)) return;
  // Fresh pages of a file cost far more one by one. An older kernel has no such advice.
  madvise(address, kFrameBytes, MADV_POPULATE_WRITE);
}

}  // namespace plexrl::simgpu
