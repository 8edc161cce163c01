#include "interpose/driver.h"
#include "interpose/handlers.h"
#include "shim/activity.h"
#include "shim/driver_scope.h"
#include "shim/guarded.h"
#include "shim/process.h"
#include "shim/room.h"

/// The life of streams and captures, as far as activity tracking has to know it. Each driver call
/// is made under the lock that excludes looks; none of them waits for work.

namespace plexrl::shim {
namespace {

template <typename Create>
CUresult create_stream(CUstream* out, Create create) noexcept {
  return guarded([&] {
    return call_with_room([&] {
      const auto looks = activity().exclude_looks();
      const CUresult result = create();
      if (result == CUDA_SUCCESS && out != nullptr) {
        CUcontext context = nullptr;
        driver.cuCtxGetCurrent(&context);
        activity().stream_created(*out, context);
      }
      return result;
    });
  });
}

template <typename Destroy>
CUresult destroy_stream(CUstream stream, Destroy destroy) noexcept {
  return guarded([&] {
    const auto looks = activity().exclude_looks();
    activity().stream_ends(stream);
    if (Process* const process = Process::started()) process->pools.stream_ends(stream);
    return destroy();
  });
}

template <typename Begin>
CUresult begin_capture(CUstream stream, Begin begin) noexcept {
  return guarded([&] {
    const auto looks = activity().exclude_looks();
    const CUresult result = begin();
    if (result == CUDA_SUCCESS) activity().capture_began(stream);
    return result;
  });
}

template <typename End>
CUresult end_capture(CUstream stream, End end) noexcept {
  return guarded([&] {
    const auto looks = activity().exclude_looks();
    const CUresult result = end();
    // An error may leave the capture going (the wrong thread ended it) or have ended it (it was
    // invalid).
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
        status == CU_STREAM_CAPTURE_STATUS_NONE) {
      activity().capture_ended(stream);
    }
    return result;
  });
}

CUstream per_thread(CUstream stream) noexcept {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

}  // namespace

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) noexcept {
  return create_stream(phStream, [&] { return driver.cuStreamCreate(phStream, Flags); });
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) noexcept {
  return create_stream(
      phStream, [&] { return driver.cuStreamCreateWithPriority(phStream, flags, priority); });
}

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags,
                                int priority) noexcept {
  return create_stream(
      phStream, [&] { return driver.cuGreenCtxStreamCreate(phStream, greenCtx, flags, priority); });
}

CUresult cuStreamDestroy(CUstream hStream) noexcept {
  return destroy_stream(hStream, [&] { return driver.cuStreamDestroy(hStream); });
}

CUresult cuStreamDestroy_v2(CUstream hStream) noexcept {
  return destroy_stream(hStream, [&] { return driver.cuStreamDestroy_v2(hStream); });
}

CUresult cuStreamBeginCapture(CUstream hStream) noexcept {
  return begin_capture(hStream, [&] { return driver.cuStreamBeginCapture(hStream); });
}

CUresult cuStreamBeginCapture_ptsz(CUstream hStream) noexcept {
  return begin_capture(per_thread(hStream),
                       [&] { return driver.cuStreamBeginCapture_ptsz(hStream); });
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) noexcept {
  return begin_capture(hStream, [&] { return driver.cuStreamBeginCapture_v2(hStream, mode); });
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) noexcept {
  return begin_capture(per_thread(hStream),
                       [&] { return driver.cuStreamBeginCapture_v2_ptsz(hStream, mode); });
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) noexcept {
  return begin_capture(hStream, [&] {
    return driver.cuStreamBeginCaptureToGraph(hStream, hGraph, dependencies, dependencyData,
                                              numDependencies, mode);
  });
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
                                          const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* dependencyData,
                                          size_t numDependencies,
                                          CUstreamCaptureMode mode) noexcept {
  return begin_capture(per_thread(hStream), [&] {
    return driver.cuStreamBeginCaptureToGraph_ptsz(hStream, hGraph, dependencies, dependencyData,
                                                   numDependencies, mode);
  });
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) noexcept {
  return end_capture(hStream, [&] { return driver.cuStreamEndCapture(hStream, phGraph); });
}

CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph* phGraph) noexcept {
  return end_capture(per_thread(hStream),
                     [&] { return driver.cuStreamEndCapture_ptsz(hStream, phGraph); });
}

}  // namespace plexrl::shim
