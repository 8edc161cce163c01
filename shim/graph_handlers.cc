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

}  // namespace

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
