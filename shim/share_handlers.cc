#include <atomic>

#include "interpose/driver.h"
#include "interpose/handlers.h"
#include "shim/capability.h"
#include "shim/contexts.h"
#include "shim/counted.h"
#include "shim/gate.h"
#include "shim/guarded.h"
#include "shim/job_view.h"
#include "shim/log.h"
#include "shim/process.h"

/// Memory between processes: legacy cuIpc* handles and descriptors of cuMemExportToShareableHandle.
/// Within the job both are capabilities (capability.h); what comes from elsewhere is the driver's.
/// With --export=real descriptors are the driver's, for any process.

namespace plexrl::shim {
namespace {

constexpr PinReason kRealExport = {"exported to any process (--export=real)", {}};

/// --export=real: the driver's own descriptor, of memory that stays in HBM from now on.
CUresult export_real(Process& process, CUmemGenericAllocationHandle handle, std::uint64_t range,
                     CUdevice device, void* out) {
  const auto layout = ranges().layout(range);
  if (!layout || layout->chunks != 1) return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  {
    const InsideGate inside;
    Pins::Held held{};
    const Pins::Hold answer = process.pins.hold(device, range, layout->bytes, kRealExport, &held);
    if (answer == Pins::Hold::kNoRoom) result = no_room();
    if (answer == Pins::Hold::kHeld) {
      const auto exported = process.vmm.with_real_handles(
          handle, [&](std::size_t, std::size_t, CUmemGenericAllocationHandle real) {
            return driver.cuMemExportToShareableHandle(out, real,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
          });
      result = exported ? *exported : CUDA_ERROR_INVALID_VALUE;
      if (result != CUDA_SUCCESS) process.pins.let_go(held);
    }
  }
  process.agent.notify();
  return result;
}

/// Legacy handles are of memory of cuMemAlloc, which is ours: the driver has none to give.
void say_legacy_stays_inside() {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  log_user(
      "handles of cuIpcGetMemHandle stay within the job, with --export=real too; other processes "
      "can open descriptors of cuMemExportToShareableHandle and of memory pools");
}

CUresult get_handle(CUipcMemHandle* out, CUdeviceptr address) {
  Process* const process = Process::started();
  const auto allocation = process == nullptr ? std::nullopt : process->find(address);
  if (!allocation) return driver.cuIpcGetMemHandle(out, as_the_job_knows(address));
  // Pools and memory of others have no legacy handles, as with the bare driver.
  if (out == nullptr || !allocation->is_ipc_capable) return CUDA_ERROR_INVALID_VALUE;
  const auto range = ranges().describe(address);
  auto capability = range ? process->sharing.offer(range->start) : std::nullopt;
  if (!capability) return CUDA_ERROR_OPERATING_SYSTEM;
  if (process->exports_are_real) say_legacy_stays_inside();
  capability->offset = allocation->start - range->start;
  capability->bytes = allocation->bytes;
  *out = to_handle(*capability);
  return CUDA_SUCCESS;
}

template <typename Call>
CUresult open_handle(interpose::Api api, CUdeviceptr* out, const CUipcMemHandle& handle,
                     unsigned int flags, Call call) noexcept {
  return guarded([&] {
    const auto capability = from_handle(handle);
    CUcontext context = nullptr;
    CUdevice device = 0;
    Process* const process = capability ? Process::start_with_current(&context, &device) : nullptr;
    if (process == nullptr) {
      return count_call({api, interpose::UnpageableKind::kIpc, 0, nullptr}, call,
                        [&] { return *out; });
    }
    if (out == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::uint64_t address = 0;
    const CUresult result = process->ipc.open(*capability, context, device, &address);
    if (result == CUDA_SUCCESS) *out = address;
    return result;
  });
}

}  // namespace

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) noexcept {
  return guarded([&] { return get_handle(pHandle, dptr); });
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle,
                            unsigned int Flags) noexcept {
  return open_handle(interpose::Api::cuIpcOpenMemHandle, pdptr, handle, Flags,
                     [&] { return driver.cuIpcOpenMemHandle(pdptr, handle, Flags); });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle,
                               unsigned int Flags) noexcept {
  return open_handle(interpose::Api::cuIpcOpenMemHandle_v2, pdptr, handle, Flags,
                     [&] { return driver.cuIpcOpenMemHandle_v2(pdptr, handle, Flags); });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) noexcept {
  return guarded([&] {
    Process* const process = Process::started();
    if (process != nullptr && process->ipc.is_open(dptr)) {
      const auto current = current_context();
      bool deferred = false;
      // A capture in progress keeps the driver from waiting; what it records names the memory
      // later, which is the job's mistake then.
      const CUresult earlier =
          current ? process->memory.wait_for_outstanding(current->context, &deferred)
                  : CUDA_SUCCESS;
      if (const auto closed = process->ipc.close(dptr)) {
        process->agent.notify();
        return *closed == CUDA_SUCCESS ? earlier : *closed;
      }
    }
    const std::uint64_t bytes =
        count_remove(interpose::Api::cuIpcCloseMemHandle, interpose::UnpageableKind::kIpc, dptr);
    const CUresult result = driver.cuIpcCloseMemHandle(dptr);
    if (result != CUDA_SUCCESS) {
      count_restore(interpose::Api::cuIpcCloseMemHandle, interpose::UnpageableKind::kIpc, dptr,
                    bytes);
    }
    return result;
  });
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags) noexcept {
  return guarded([&] {
    Process* const process = Process::started();
    const auto range = process == nullptr ? std::nullopt : process->vmm.range_of(handle);
    if (!range) {
      return driver.cuMemExportToShareableHandle(shareableHandle, handle, handleType, flags);
    }
    const auto properties = process->vmm.properties(handle);
    if (shareableHandle == nullptr || flags != 0 ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !properties ||
        (properties->requestedHandleTypes & handleType) == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (process->exports_are_real) {
      return export_real(*process, handle, *range, properties->location.id, shareableHandle);
    }
    const auto capability = process->sharing.offer(*range);
    ScopedFd fd = capability ? to_descriptor(*capability) : ScopedFd{};
    if (!fd.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
    *static_cast<int*>(shareableHandle) = fd.release();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) noexcept {
  return guarded([&] {
    const auto capability =
        shHandleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            ? from_descriptor(static_cast<int>(reinterpret_cast<std::uintptr_t>(osHandle)))
            : std::nullopt;
    Process* const process = capability ? Process::start() : nullptr;
    if (process == nullptr) {
      return count_call(
          {interpose::Api::cuMemImportFromShareableHandle, interpose::UnpageableKind::kVmm, 0,
           nullptr},
          [&] { return driver.cuMemImportFromShareableHandle(handle, osHandle, shHandleType); },
          [&] { return *handle; });
    }
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return process->vmm.import(*capability, handle);
  });
}

}  // namespace plexrl::shim
