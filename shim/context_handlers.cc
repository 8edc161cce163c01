#include "interpose/driver.h"
#include "interpose/handlers.h"
#include "shim/driver_scope.h"
#include "shim/gate.h"
#include "shim/guarded.h"
#include "shim/process.h"
#include "shim/room.h"

/// The life of contexts. A context takes its allocations, streams and registrations with it, so
/// whatever of ours lives in it has to be out before the driver ends it.

namespace plexrl::shim {
namespace {

void note(CUcontext context, CUdevice device) {
  if (Process* const process = Process::start()) process->use(context, device);
}

template <typename Create>
CUresult create_context(CUcontext* out, CUdevice device, Create create) noexcept {
  return guarded([&] {
    const CUresult result = with_room(device, create);
    if (result == CUDA_SUCCESS && out != nullptr) note(*out, device);
    return result;
  });
}

/// The device's primary context while it is active; null otherwise. The driver has no call that
/// only asks, so it is retained for a moment.
CUcontext active_primary(CUdevice device) noexcept {
  unsigned int flags = 0;
  int active = 0;
  CUcontext context = nullptr;
  if (driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0) {
    return nullptr;
  }
  if (driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return nullptr;
  driver.cuDevicePrimaryCtxRelease_v2(device);
  return context;
}

/// Ends `context` by `end`, which may leave it alive (a primary context that others retain):
/// `is_alive` says so afterwards.
///
/// Looks are excluded during the driver's call, so that no stream of the context is queried while
/// it goes away. That call may wait for work of the job, and the agent then waits with it; it never
/// waits for a lease, and the depth taken here keeps a drain from completing meanwhile.
template <typename End, typename IsAlive>
CUresult end_context(CUcontext context, End end, IsAlive is_alive) {
  Process* const process = Process::started();
  if (process == nullptr || context == nullptr) return end();
  const auto device = contexts().device_of(context);
  contexts().remove(context);
  process->pager.leave_context(context).unlock();
  process->pools.context_ends(context);
  process->communicators.context_ends(context);
  CUresult result = CUDA_SUCCESS;
  bool survives = false;
  {
    const auto inside = InsideGate::giving_back();
    const auto looks = activity().exclude_looks();
    const RelaxedCapture relaxed;
    result = end();
    survives = result != CUDA_SUCCESS || is_alive();
    if (!survives) activity().context_ends(context);
  }
  process->pools.context_ended(context, survives);
  if (survives) {
    if (device) contexts().add(context, *device);
  } else {
    process->pager.remove_peers_of(context);
    process->memory.context_ended(context);
    process->ipc.context_ended(context);
    process->agent.notify();
  }
  return result;
}

template <typename Release>
CUresult end_primary(CUdevice device, Release release) noexcept {
  return guarded([&] {
    const CUcontext context = Process::started() != nullptr ? active_primary(device) : nullptr;
    return end_context(context, release, [&] {
      unsigned int flags = 0;
      int active = 0;
      return driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
             active != 0;
    });
  });
}

template <typename Destroy>
CUresult destroy_context(CUcontext context, Destroy destroy) noexcept {
  return guarded([&] { return end_context(context, destroy, [] { return false; }); });
}

/// A context that no call of ours has made becomes current (the runtime library makes its primary
/// contexts through a private table). Frameworks switch often, so each thread remembers the last
/// one.
void note_current(CUcontext context) {
  thread_local CUcontext last = nullptr;
  thread_local std::uint64_t removals = 0;
  Process* const process = Process::started();
  if (process == nullptr || context == nullptr) return;
  if (context == last && removals == contexts().removals()) return;
  removals = contexts().removals();
  last = context;
  if (contexts().device_of(context)) return;
  if (const auto current = current_context()) process->use(current->context, current->device);
}

template <typename Switch>
CUresult switch_context(CUcontext context, Switch switch_to) noexcept {
  return guarded([&] {
    const CUresult result = switch_to();
    if (result == CUDA_SUCCESS) note_current(context);
    return result;
  });
}

CUdevice device_of(CUcontext context) noexcept {
  CUdevice device = CU_DEVICE_INVALID;
  const PushedContext pushed(context);
  if (pushed.ok()) driver.cuCtxGetDevice(&device);
  return device;
}

}  // namespace

// NVRTC calls it only to find out whether there is a driver: not a use of a GPU.
CUresult cuInit(unsigned int Flags) noexcept { return driver.cuInit(Flags); }

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) noexcept {
  return create_context(pctx, dev, [&] { return driver.cuDevicePrimaryCtxRetain(pctx, dev); });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) noexcept {
  return end_primary(dev, [&] { return driver.cuDevicePrimaryCtxRelease(dev); });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) noexcept {
  return end_primary(dev, [&] { return driver.cuDevicePrimaryCtxRelease_v2(dev); });
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) noexcept {
  return end_primary(dev, [&] { return driver.cuDevicePrimaryCtxReset(dev); });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) noexcept {
  return end_primary(dev, [&] { return driver.cuDevicePrimaryCtxReset_v2(dev); });
}

CUresult cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) noexcept {
  return create_context(pctx, dev, [&] { return driver.cuCtxCreate(pctx, flags, dev); });
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) noexcept {
  return create_context(pctx, dev, [&] { return driver.cuCtxCreate_v2(pctx, flags, dev); });
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                        unsigned int flags, CUdevice dev) noexcept {
  return create_context(
      pctx, dev, [&] { return driver.cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev); });
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev) noexcept {
  return create_context(pctx, dev,
                        [&] { return driver.cuCtxCreate_v4(pctx, ctxCreateParams, flags, dev); });
}

CUresult cuCtxSetCurrent(CUcontext ctx) noexcept {
  return switch_context(ctx, [&] { return driver.cuCtxSetCurrent(ctx); });
}

CUresult cuCtxPushCurrent(CUcontext ctx) noexcept {
  return switch_context(ctx, [&] { return driver.cuCtxPushCurrent(ctx); });
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) noexcept {
  return switch_context(ctx, [&] { return driver.cuCtxPushCurrent_v2(ctx); });
}

CUresult cuCtxDestroy(CUcontext ctx) noexcept {
  return destroy_context(ctx, [&] { return driver.cuCtxDestroy(ctx); });
}

CUresult cuCtxDestroy_v2(CUcontext ctx) noexcept {
  return destroy_context(ctx, [&] { return driver.cuCtxDestroy_v2(ctx); });
}

// Deprecated counts of usage; the context ends by cuCtxDestroy all the same.
CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) noexcept {
  return driver.cuCtxAttach(pctx, flags);
}

CUresult cuCtxDetach(CUcontext ctx) noexcept { return driver.cuCtxDetach(ctx); }

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) noexcept {
  return guarded([&] {
    const CUresult result = driver.cuCtxEnablePeerAccess(peerContext, Flags);
    Process* const process = Process::started();
    if (result != CUDA_SUCCESS || process == nullptr) return result;
    const auto current = current_context();
    const CUdevice owner = device_of(peerContext);
    if (current && owner != CU_DEVICE_INVALID) {
      note(peerContext, owner);
      process->pager.add_peer({peerContext, owner}, *current);
    }
    return result;
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) noexcept {
  return guarded([&] {
    const CUresult result = driver.cuCtxDisablePeerAccess(peerContext);
    Process* const process = Process::started();
    const auto current = current_context();
    if (result != CUDA_SUCCESS || process == nullptr || !current) return result;
    // What has been launched with the access may still use it. Its errors are the next call's.
    bool is_capturing = false;
    process->memory.wait_for_outstanding(current->context, &is_capturing);
    process->pager.remove_peer({peerContext, device_of(peerContext)}, *current);
    return result;
  });
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                          unsigned int flags) noexcept {
  return driver.cuGreenCtxCreate(phCtx, desc, dev, flags);
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) noexcept {
  return guarded([&] {
    CUcontext context = nullptr;
    if (Process::started() != nullptr) driver.cuCtxFromGreenCtx(&context, hCtx);
    return end_context(
        context, [&] { return driver.cuGreenCtxDestroy(hCtx); }, [] { return false; });
  });
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) noexcept {
  return guarded([&] {
    const CUresult result = driver.cuCtxFromGreenCtx(pContext, hCtx);
    if (result == CUDA_SUCCESS && pContext != nullptr) {
      const CUdevice device = device_of(*pContext);
      if (device != CU_DEVICE_INVALID) note(*pContext, device);
    }
    return result;
  });
}

}  // namespace plexrl::shim
