#include <optional>
#include <utility>

#include "interpose/driver.h"
#include "interpose/handlers.h"
#include "shim/activity.h"
#include "shim/contexts.h"
#include "shim/counted.h"
#include "shim/gate.h"
#include "shim/guarded.h"
#include "shim/job_view.h"
#include "shim/process.h"

/// The cuMemAlloc family (CUDA driver API reference, "Memory Management").

namespace plexrl::shim {
namespace {

/// What the driver's cuMemAllocPitch aligns rows to on every device so far.
constexpr std::size_t kPitchAlignment = 512;

constexpr PinReason kDmaBuf = {"exported as a dma-buf", wire::MemoryKind::kRdma};
constexpr PinReason kSyncMemops = {"attribute SYNC_MEMOPS set", {}};

std::optional<Process::Backing> backing_of(std::uint64_t address) {
  Process* const process = Process::started();
  return process == nullptr ? std::nullopt : process->backing(address);
}

/// Makes `call`, after which others may read and write `bytes` of `memory` without our knowing:
/// they stay in HBM. Memory that another process of the job moves keeps the GPUs of this one
/// instead.
template <typename Call>
CUresult hand_out(const Process::Backing& memory, std::size_t bytes, const PinReason& reason,
                  Call call) {
  Process& process = *Process::started();
  CUresult result = CUDA_SUCCESS;
  {
    const InsideGate inside;
    Pins::Held held{};
    const auto answer = process.pins.hold(memory.device, memory.address, bytes, reason, &held);
    result = answer == Pins::Hold::kNoRoom ? no_room() : guarded(call);
    if (answer == Pins::Hold::kHeld && result != CUDA_SUCCESS) process.pins.let_go(held);
    if (answer == Pins::Hold::kNotOwned && result == CUDA_SUCCESS) note_exclusive(reason.text);
  }
  process.agent.notify();
  return result;
}

/// Sets the attribute SYNC_MEMOPS of the memory that the job sees at `address`, all of which is in
/// HBM. The driver knows it of one allocation of its own, a chunk, at a time.
CUresult set_of_chunks(const Process::Backing& memory, const void* value, CUdeviceptr address) {
  const auto range = ranges().describe(memory.start);
  const auto layout = range ? ranges().layout(range->start) : std::nullopt;
  if (!layout)
    return driver.cuPointerSetAttribute(value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address);
  const std::size_t first = memory.start - range->start;
  const CUdeviceptr start = address - (memory.address - memory.start);
  for (std::size_t at = first; at < first + memory.bytes;
       at = (at / layout->chunk_bytes + 1) * layout->chunk_bytes) {
    const CUresult result =
        driver.cuPointerSetAttribute(value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, start + (at - first));
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

/// An attribute of a mapping would be lost with it: while it is set the memory stays in HBM.
CUresult set_sync_memops(const Process::Backing& memory, const void* value, CUdeviceptr address) {
  Process& process = *Process::started();
  const bool is_on = *static_cast<const unsigned int*>(value) != 0;
  Registrations::Holds holds;
  holds.reserve(1);
  CUresult result = CUDA_SUCCESS;
  {
    const InsideGate inside;
    Pins::Held held{};
    Pins::Hold answer = Pins::Hold::kHeld;
    if (is_on) {
      answer = process.pins.hold(memory.device, memory.start, memory.bytes, kSyncMemops, &held);
      if (answer == Pins::Hold::kHeld) holds.push_back(held);
    }
    result = answer == Pins::Hold::kNoRoom
                 ? no_room()
                 : guarded([&] { return set_of_chunks(memory, value, address); });
    if (answer == Pins::Hold::kNotOwned && result == CUDA_SUCCESS) {
      note_exclusive(kSyncMemops.text);
    }
  }
  if (result == CUDA_SUCCESS) {
    const CUdeviceptr start = address - (memory.address - memory.start);
    const Registrations::Key key{Registrations::Kind::kSyncMemops, nullptr,
                                 reinterpret_cast<const void*>(start)};
    // Unset, or set once more, which the new hold is for.
    Registrations::Holds before = process.registrations.take(key);
    process.registrations.add(key, std::exchange(holds, std::move(before)));
  }
  let_go(process, holds);
  process.agent.notify();
  return result;
}

/// Memory that passed through when it was allocated and is given back by cuMemFree[Async].
wire::MemoryKind forget_counted(Process& process, std::uint64_t address, Unpageable::Entry* entry) {
  for (const wire::MemoryKind kind :
       {wire::MemoryKind::kPool, wire::MemoryKind::kManaged, wire::MemoryKind::kOther}) {
    *entry = process.unpageable.remove(kind, address);
    if (entry->bytes != 0) return kind;
  }
  return wire::MemoryKind::kOther;
}

/// A device without virtual memory management: the driver allocates, we count.
CUresult allocate_by_driver(Process& process, CUdevice device, CUdeviceptr* out,
                            std::size_t bytes) {
  if (!process.devices.charge(device, bytes, true)) return no_room();
  const CUresult result = driver.cuMemAlloc_v2(out, bytes);
  if (result == CUDA_SUCCESS) {
    process.unpageable.add(wire::MemoryKind::kOther, *out, {device, bytes});
  } else {
    process.devices.uncharge(device, bytes, true);
  }
  return result;
}

/// The driver takes no cuMemAlloc and no cuMemFree from a thread whose mode forbids them while a
/// capture is in progress, and ends the capture ("unsafe" calls, reference of
/// cuThreadExchangeStreamCaptureMode). Ours need nothing of the sort, so the driver is asked: for
/// an event without work, a query is as unsafe, and waits for nothing.
CUresult refusal_in_capture() {
  if (!activity().is_capturing()) return CUDA_SUCCESS;
  CUevent event = nullptr;
  if (driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return CUDA_SUCCESS;
  const CUresult answer = driver.cuEventQuery(event);
  driver.cuEventDestroy_v2(event);
  return answer == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : answer;
}

CUresult allocate(CUdeviceptr* out, std::size_t bytes) {
  CUcontext context = nullptr;
  CUdevice device = 0;
  Process* const process = Process::start_with_current(&context, &device);
  // The driver knows the errors of bad arguments and of a missing context.
  if (process == nullptr || out == nullptr || bytes == 0) return driver.cuMemAlloc_v2(out, bytes);
  const auto attached = process->devices.find(device);
  if (!attached || !attached->has_vmm) return allocate_by_driver(*process, device, out, bytes);
  if (const CUresult error = context_error(); error != CUDA_SUCCESS) return error;
  if (const CUresult refusal = refusal_in_capture(); refusal != CUDA_SUCCESS) return refusal;
  std::uint64_t address = 0;
  const CUresult result = process->memory.allocate(device, context, bytes, &address);
  if (result == CUDA_SUCCESS) *out = address;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) process->devices.explain_refusal(device, bytes);
  process->agent.notify();
  return result;
}

}  // namespace

CUresult free_counted(std::uint64_t address, CUresult (*call)(void*), void* argument) {
  Process* const process = Process::started();
  if (process == nullptr) return call(argument);
  Unpageable::Entry entry;
  const wire::MemoryKind kind = forget_counted(*process, address, &entry);
  const CUresult result = call(argument);
  if (entry.bytes == 0) return result;
  if (result != CUDA_SUCCESS) {
    process->unpageable.add(kind, address, entry);
  } else {
    process->devices.uncharge(entry.device, entry.bytes, true);
    process->agent.notify();
  }
  return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) noexcept {
  return guarded([&] { return allocate(dptr, bytesize); });
}

// Addresses of 32 bits, for programs of CUDA 3.1 and older: ours would not fit.
CUresult cuMemAlloc(CUdeviceptr_v1* dptr, unsigned int bytesize) noexcept {
  return driver.cuMemAlloc(dptr, bytesize);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1* dptr, unsigned int* pPitch, unsigned int WidthInBytes,
                         unsigned int Height, unsigned int ElementSizeBytes) noexcept {
  return driver.cuMemAllocPitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
}

CUresult cuMemFree(CUdeviceptr_v1 dptr) noexcept { return driver.cuMemFree(dptr); }

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) noexcept {
  return guarded([&] {
    const bool valid_element =
        ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
    if (Process::start() == nullptr || dptr == nullptr || pPitch == nullptr || !valid_element ||
        WidthInBytes == 0 || Height == 0) {
      return driver.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    }
    const std::size_t pitch =
        (WidthInBytes + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
    std::size_t bytes = 0;
    if (pitch < WidthInBytes || __builtin_mul_overflow(pitch, Height, &bytes)) {
      return no_room();
    }
    const CUresult result = allocate(dptr, bytes);
    if (result == CUDA_SUCCESS) *pPitch = pitch;
    return result;
  });
}

CUresult cuMemFree_v2(CUdeviceptr dptr) noexcept {
  return guarded([&] {
    if (Process* const process = Process::started()) {
      if (process->find(dptr)) {
        if (const CUresult refusal = refusal_in_capture(); refusal != CUDA_SUCCESS) return refusal;
      }
      if (const auto result = process->memory.free(dptr)) return *result;
      if (const auto current = current_context()) {
        if (const auto result = process->pools.free_now(dptr, current->context)) return *result;
      }
    }
    return free_counted(dptr, [&] { return driver.cuMemFree_v2(dptr); });
  });
}

CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr dptr, size_t size,
                                       CUmemRangeHandleType handleType,
                                       unsigned long long flags) noexcept {
  return guarded([&] {
    const auto call = [&] {
      return driver.cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags);
    };
    const auto memory = backing_of(dptr);
    if (memory) return hand_out(*memory, size, kDmaBuf, call);
    return driver.cuMemGetHandleForAddressRange(handle, as_the_job_knows(dptr), size, handleType,
                                                flags);
  });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr ptr) noexcept {
  return guarded([&] {
    const auto memory = value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
                            ? backing_of(ptr)
                            : std::nullopt;
    return memory ? set_sync_memops(*memory, value, ptr)
                  : driver.cuPointerSetAttribute(value, attribute, as_the_job_knows(ptr));
  });
}

}  // namespace plexrl::shim
