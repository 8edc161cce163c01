#include <algorithm>
#include <utility>
#include <vector>

#include "interpose/driver.h"
#include "interpose/handlers.h"
#include "shim/contexts.h"
#include "shim/gate.h"
#include "shim/guarded.h"
#include "shim/process.h"

/// Multicast objects (CUDA driver API reference, "Multicast Object Management"). They are the
/// driver's; memory of ours that is bound to one is written by other devices and processes, and
/// stays in HBM until it is unbound or freed.

namespace plexrl::shim {
namespace {

constexpr PinReason kReason = {"bound to a multicast object", {}};

/// Takes back what was bound in pieces. The first error; what comes before it is unbound.
CUresult unbind_pieces(MulticastBinds::Bind* what) {
  while (!what->pieces.empty()) {
    const auto [offset, bytes] = what->pieces.back();
    const CUresult result = driver.cuMulticastUnbind(what->object, what->device, offset, bytes);
    if (result != CUDA_SUCCESS) return result;
    what->pieces.pop_back();
  }
  return CUDA_SUCCESS;
}

/// Binds the pieces that the pager has the memory in; all of them or none.
CUresult bind_pieces(Process& process, MulticastBinds::Bind* what, unsigned long long flags) {
  const auto range = ranges().describe(what->address);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t memory_offset = what->address - range->start;
  const std::size_t behind = range->bytes - memory_offset;
  const auto layout = ranges().layout(range->start);
  if (!layout) return CUDA_ERROR_INVALID_VALUE;
  if (what->bytes == 0 || what->bytes > behind) return CUDA_ERROR_INVALID_VALUE;
  what->pieces.reserve(layout->chunks);  // nothing that is bound may go unnoted
  const CUresult result = process.pager.with_chunks(
      range->start, [&](std::size_t offset, std::size_t bytes, CUmemGenericAllocationHandle real) {
        const std::size_t first = std::max(offset, memory_offset);
        const std::size_t end = std::min(offset + bytes, memory_offset + what->bytes);
        if (first >= end) return CUDA_SUCCESS;
        const std::size_t at = what->offset + first - memory_offset;
        const CUresult bound =
            driver.cuMulticastBindMem(what->object, at, real, first - offset, end - first, flags);
        if (bound == CUDA_SUCCESS) what->pieces.emplace_back(at, end - first);
        return bound;
      });
  if (result != CUDA_SUCCESS) unbind_pieces(what);
  return result;
}

void note(Process& process, const MulticastBinds::Bind& what) {
  const auto older = process.multicast.add(what);
  if (older && older->held) process.pins.let_go(*older->held);
}

/// Binds with the memory held in HBM; what was bound is noted.
CUresult bind_held(Process& process, MulticastBinds::Bind* what, unsigned long long flags) {
  const InsideGate inside;
  Pins::Held held{};
  const Pins::Hold answer =
      process.pins.hold(what->device, what->address, what->bytes, kReason, &held);
  if (answer == Pins::Hold::kNoRoom) return no_room();
  if (answer == Pins::Hold::kHeld) what->held = held;
  CUresult result = guarded([&] { return bind_pieces(process, what, flags); });
  if (result == CUDA_SUCCESS) {
    result = guarded([&] {
      note(process, *what);
      return CUDA_SUCCESS;
    });
    if (result != CUDA_SUCCESS) unbind_pieces(what);
  }
  if (result != CUDA_SUCCESS) {
    if (what->held) process.pins.let_go(held);
  } else if (answer == Pins::Hold::kNotOwned) {
    note_exclusive(kReason.text);  // another process moves it
  }
  return result;
}

CUresult bind(Process& process, MulticastBinds::Bind what, unsigned long long flags) {
  const CUresult result = bind_held(process, &what, flags);
  process.agent.notify();
  return result;
}

}  // namespace

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                            unsigned long long flags) noexcept {
  return guarded([&] {
    Process* const process = Process::started();
    const auto range = process == nullptr ? std::nullopt : process->vmm.range_of(memHandle);
    const auto properties = range ? process->vmm.properties(memHandle) : std::nullopt;
    if (!properties) {
      return driver.cuMulticastBindMem(mcHandle, mcOffset, memHandle, memOffset, size, flags);
    }
    return bind(*process, {mcHandle, mcOffset, size, properties->location.id, *range + memOffset},
                flags);
  });
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                             CUdeviceptr memptr, size_t size, unsigned long long flags) noexcept {
  return guarded([&] {
    Process* const process = Process::started();
    const auto memory = process == nullptr ? std::nullopt : process->backing(memptr);
    if (!memory) return driver.cuMulticastBindAddr(mcHandle, mcOffset, memptr, size, flags);
    // By handles: to the driver what the job has mapped may be several allocations.
    return bind(*process, {mcHandle, mcOffset, size, memory->device, memory->address}, flags);
  });
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                           size_t size) noexcept {
  return guarded([&] {
    Process* const process = Process::started();
    auto bound =
        process == nullptr ? std::nullopt : process->multicast.take(mcHandle, dev, mcOffset, size);
    if (!bound) return driver.cuMulticastUnbind(mcHandle, dev, mcOffset, size);
    const CUresult result = unbind_pieces(&*bound);
    if (result != CUDA_SUCCESS) {
      note(*process, *bound);
      return result;
    }
    if (bound->held) {
      process->pins.let_go(*bound->held);
      process->agent.notify();
    }
    return result;
  });
}

}  // namespace plexrl::shim
