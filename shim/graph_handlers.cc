#include <cerrno>
#include <ctime>

#include "interpose/driver.h"
#include "interpose/handlers.h"
#include "shim/activity.h"
#include "shim/boottime.h"
#include "shim/contexts.h"
#include "shim/counted.h"
#include "shim/driver_scope.h"
#include "shim/guarded.h"
#include "shim/process.h"
#include "shim/room.h"

/// Graphs with nodes that allocate: the driver takes their memory when the graph runs, and it stays
/// the driver's. It is charged before (graph_memory.h); where the driver finds no room, neighbours
/// are evicted first.

namespace plexrl::shim {
namespace {

/// A submission of a graph, which may need memory for its allocation nodes.
template <typename Call>
CUresult submit(interpose::Api api, CUstream stream, Call call) noexcept {
  const interpose::GateCall gated{api, stream};
  const auto gated_call = [&] {
    const CUresult refused = gate_enter(gated);
    if (refused != CUDA_SUCCESS) return refused;
    const CUresult result = call();
    gate_leave(gated, result);
    return result;
  };
  return call_with_room(gated_call);
}

/// What is outstanding may have taken what is missing, and be over soon. It may also wait for this
/// thread to go on, so the driver is not asked to wait for it, and nobody waits for longer.
constexpr std::uint64_t kPatienceNs = 30'000'000'000;
constexpr timespec kPause{0, 1'000'000};

/// Returns when what was launched is over and counted, as far as that can be seen.
void wait_for_count(Process& process, CUstream stream) {
  if (process.keeper.is_quiet()) return process.graph_memory.count();
  const std::uint64_t deadline = boottime_ns() + kPatienceNs;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const bool is_captured = driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
                           status != CU_STREAM_CAPTURE_STATUS_NONE;
  if (!is_captured && process.graph_memory.all_in(stream)) {
    CUresult answer = CUDA_ERROR_NOT_READY;
    while (answer == CUDA_ERROR_NOT_READY && boottime_ns() < deadline) {
      const RelaxedCapture relaxed;
      answer = driver.cuStreamQuery(stream);
      if (answer == CUDA_ERROR_NOT_READY) ::nanosleep(&kPause, nullptr);
    }
    if (answer == CUDA_SUCCESS) process.graph_memory.count();
    return;
  }
  if (activity().is_capturing()) return;  // in which the agent sees nothing at rest
  const std::uint64_t counts = process.graph_memory.counts();
  { const InsideGate inside; }  // so that the agent looks once more, if nothing runs by now
  while (process.graph_memory.counts() == counts && boottime_ns() < deadline) {
    process.agent.notify();
    ::nanosleep(&kPause, nullptr);
  }
}

/// Charges what the graph's nodes allocate. False: it is beyond the promise.
bool enter_memory(Process& process, CUgraphExec exec, CUstream stream) {
  if (process.graph_memory.enter(exec, stream, false)) return true;
  const int saved_errno = errno;
  wait_for_count(process, stream);
  errno = saved_errno;
  return process.graph_memory.enter(exec, stream);
}

/// A launch or upload of `exec`.
template <typename Call>
CUresult submit_graph(interpose::Api api, CUgraphExec exec, CUstream stream, Call call) noexcept {
  Process* const process = Process::started();
  if (process == nullptr) return submit(api, stream, call);
  const CUresult charged =
      guarded([&] { return enter_memory(*process, exec, stream) ? CUDA_SUCCESS : no_room(); });
  if (charged != CUDA_SUCCESS) return charged;
  const CUresult result = submit(api, stream, call);
  const bool is_launch =
      api == interpose::Api::cuGraphLaunch || api == interpose::Api::cuGraphLaunch_ptsz;
  process->graph_memory.leave(exec, is_launch, result);
  return result;
}

/// Makes a graph ready to run, for which the driver may take memory, too.
template <typename Call>
CUresult instantiate_on_host(interpose::Api api, Call call) noexcept {
  const interpose::HostCall host{api};
  return call_with_room([&] {
    const CUresult refused = host_enter(host);
    if (refused != CUDA_SUCCESS) return refused;
    const CUresult result = call();
    host_leave(host, result);
    return result;
  });
}

/// Notes what a graph's nodes allocate.
CUresult note(CUresult result, const CUgraphExec* exec, CUgraph graph,
              unsigned long long flags) noexcept {
  Process* const process = result == CUDA_SUCCESS ? Process::started() : nullptr;
  if (process == nullptr) return result;
  return guarded([&] {
    process->graph_memory.instantiated(*exec, graph, flags);
    return result;
  });
}

template <typename Call>
CUresult instantiate(interpose::Api api, const CUgraphExec* exec, CUgraph graph,
                     unsigned long long flags, Call call) noexcept {
  return note(instantiate_on_host(api, call), exec, graph, flags);
}

/// Some parameters say that it is uploaded as well, in a stream.
template <typename Call>
CUresult instantiate(interpose::Api api, const CUgraphExec* exec, CUgraph graph,
                     const CUDA_GRAPH_INSTANTIATE_PARAMS* parameters, bool is_per_thread,
                     Call call) noexcept {
  const cuuint64_t flags = parameters == nullptr ? 0 : parameters->flags;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) == 0) {
    return instantiate(api, exec, graph, flags, call);
  }
  const CUstream stream = interpose_stream(parameters->hUploadStream, is_per_thread);
  return note(submit(api, stream, call), exec, graph, flags);
}

}  // namespace

CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                            char* logBuffer, size_t bufferSize) noexcept {
  return instantiate(interpose::Api::cuGraphInstantiate, phGraphExec, hGraph, 0, [&] {
    return driver.cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
  });
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) noexcept {
  return instantiate(interpose::Api::cuGraphInstantiate_v2, phGraphExec, hGraph, 0, [&] {
    return driver.cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) noexcept {
  return instantiate(interpose::Api::cuGraphInstantiateWithFlags, phGraphExec, hGraph, flags, [&] {
    return driver.cuGraphInstantiateWithFlags(phGraphExec, hGraph, flags);
  });
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) noexcept {
  return instantiate(
      interpose::Api::cuGraphInstantiateWithParams, phGraphExec, hGraph, instantiateParams, false,
      [&] { return driver.cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams); });
}

CUresult cuGraphInstantiateWithParams_ptsz(
    CUgraphExec* phGraphExec, CUgraph hGraph,
    CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) noexcept {
  return instantiate(interpose::Api::cuGraphInstantiateWithParams_ptsz, phGraphExec, hGraph,
                     instantiateParams, true, [&] {
                       return driver.cuGraphInstantiateWithParams_ptsz(phGraphExec, hGraph,
                                                                       instantiateParams);
                     });
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) noexcept {
  return submit_graph(interpose::Api::cuGraphLaunch, hGraph, interpose_stream(hStream, false),
                      [&] { return driver.cuGraphLaunch(hGraph, hStream); });
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraph, CUstream hStream) noexcept {
  return submit_graph(interpose::Api::cuGraphLaunch_ptsz, hGraph, interpose_stream(hStream, true),
                      [&] { return driver.cuGraphLaunch_ptsz(hGraph, hStream); });
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream) noexcept {
  return submit_graph(interpose::Api::cuGraphUpload, hGraph, interpose_stream(hStream, false),
                      [&] { return driver.cuGraphUpload(hGraph, hStream); });
}

CUresult cuGraphUpload_ptsz(CUgraphExec hGraph, CUstream hStream) noexcept {
  return submit_graph(interpose::Api::cuGraphUpload_ptsz, hGraph, interpose_stream(hStream, true),
                      [&] { return driver.cuGraphUpload_ptsz(hGraph, hStream); });
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) noexcept {
  return guarded([&] {
    // Before the driver may give its name to another.
    if (Process* const process = Process::started()) process->graph_memory.destroyed(hGraphExec);
    return driver.cuGraphExecDestroy(hGraphExec);
  });
}

CUresult cuDeviceGraphMemTrim(CUdevice device) noexcept {
  return guarded([&] {
    const CUresult result = driver.cuDeviceGraphMemTrim(device);
    if (Process* const process = Process::started()) process->graph_memory.count();
    return result;
  });
}

}  // namespace plexrl::shim
