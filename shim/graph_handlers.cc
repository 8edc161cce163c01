#include "interpose/driver.h"
#include "interpose/handlers.h"
#include "shim/counted.h"
#include "shim/guarded.h"
#include "shim/process.h"
#include "shim/room.h"

/// Graphs with nodes that allocate: the driver takes their memory when the graph runs, and it stays
/// the driver's. It is counted by what the driver says it has; where it finds no room, neighbours
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
  const CUresult result = gated_call();
  if (result != CUDA_ERROR_OUT_OF_MEMORY) [[likely]]
    return result;
  return guarded([&] {
    const auto current = current_context();
    return current ? with_room(current->device, gated_call) : result;
  });
}

/// Makes a graph ready to run, for which the driver may take memory, too.
template <typename Call>
CUresult instantiate(interpose::Api api, Call call) noexcept {
  const interpose::HostCall host{api};
  return guarded([&] {
    const auto host_call = [&] {
      const CUresult refused = host_enter(host);
      if (refused != CUDA_SUCCESS) return refused;
      const CUresult result = call();
      host_leave(host, result);
      return result;
    };
    const CUresult result = host_call();
    const auto current = result == CUDA_ERROR_OUT_OF_MEMORY ? current_context() : std::nullopt;
    return current ? with_room(current->device, host_call) : result;
  });
}

/// Some parameters say that it is uploaded as well, in a stream.
template <typename Call>
CUresult instantiate(interpose::Api api, const CUDA_GRAPH_INSTANTIATE_PARAMS* parameters,
                     bool is_per_thread, Call call) noexcept {
  if (parameters == nullptr || (parameters->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) == 0) {
    return instantiate(api, call);
  }
  return submit(api, interpose_stream(parameters->hUploadStream, is_per_thread), call);
}

}  // namespace

CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                            char* logBuffer, size_t bufferSize) noexcept {
  return instantiate(interpose::Api::cuGraphInstantiate, [&] {
    return driver.cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
  });
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) noexcept {
  return instantiate(interpose::Api::cuGraphInstantiate_v2, [&] {
    return driver.cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) noexcept {
  return instantiate(interpose::Api::cuGraphInstantiateWithFlags, [&] {
    return driver.cuGraphInstantiateWithFlags(phGraphExec, hGraph, flags);
  });
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) noexcept {
  return instantiate(interpose::Api::cuGraphInstantiateWithParams, instantiateParams, false, [&] {
    return driver.cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams);
  });
}

CUresult cuGraphInstantiateWithParams_ptsz(
    CUgraphExec* phGraphExec, CUgraph hGraph,
    CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) noexcept {
  return instantiate(
      interpose::Api::cuGraphInstantiateWithParams_ptsz, instantiateParams, true, [&] {
        return driver.cuGraphInstantiateWithParams_ptsz(phGraphExec, hGraph, instantiateParams);
      });
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) noexcept {
  return submit(interpose::Api::cuGraphLaunch, interpose_stream(hStream, false),
                [&] { return driver.cuGraphLaunch(hGraph, hStream); });
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraph, CUstream hStream) noexcept {
  return submit(interpose::Api::cuGraphLaunch_ptsz, interpose_stream(hStream, true),
                [&] { return driver.cuGraphLaunch_ptsz(hGraph, hStream); });
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream) noexcept {
  return submit(interpose::Api::cuGraphUpload, interpose_stream(hStream, false),
                [&] { return driver.cuGraphUpload(hGraph, hStream); });
}

CUresult cuGraphUpload_ptsz(CUgraphExec hGraph, CUstream hStream) noexcept {
  return submit(interpose::Api::cuGraphUpload_ptsz, interpose_stream(hStream, true),
                [&] { return driver.cuGraphUpload_ptsz(hGraph, hStream); });
}

CUresult cuDeviceGraphMemTrim(CUdevice device) noexcept {
  return guarded([&] {
    const CUresult result = driver.cuDeviceGraphMemTrim(device);
    if (Process* const process = Process::started()) process->count_graph_memory();
    return result;
  });
}

}  // namespace plexrl::shim
