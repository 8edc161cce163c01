#include "tools/simgpu/driver/capture.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/entry_pair.h"
#include "tools/simgpu/driver/graph_edges.h"

// Stream capture of "Stream Management" of the driver API.

namespace plexrl::simgpu {
namespace {

// What cuStreamGetCaptureInfo hands out must live on; the next call of the thread replaces it.
struct HandedOut {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> data;
};
thread_local HandedOut handed_out;

CUresult begin(bool per_thread, CUstream handle, CUstreamCaptureMode mode) {
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(handle, per_thread, &stream); found != CUDA_SUCCESS) {
    return found;
  }
  const std::lock_guard lock(graph_mutex());
  return begin_capture(stream, mode, std::make_shared<Graph>(), {});
}

CUresult begin_global(bool per_thread, CUstream handle) {
  return begin(per_thread, handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult begin_to_graph(bool per_thread, CUstream handle, CUgraph graph_handle,
                        const CUgraphNode* dependencies, const CUgraphEdgeData* data,
                        std::size_t count, CUstreamCaptureMode mode) {
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(handle, per_thread, &stream); found != CUDA_SUCCESS) {
    return found;
  }
  const std::lock_guard lock(graph_mutex());
  std::shared_ptr<Graph> graph = kept_graph(graph_handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphEdge> tail;
  const CUresult result = read_dependencies(*graph, dependencies, data, count, &tail);
  return result != CUDA_SUCCESS ? result : begin_capture(stream, mode, std::move(graph), tail);
}

CUresult end(bool per_thread, CUstream handle, CUgraph* graph_handle) {
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(handle, per_thread, &stream); found != CUDA_SUCCESS) {
    return found;
  }
  if (graph_handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(graph_mutex());
  std::shared_ptr<Graph> graph;
  const CUresult result = end_capture(stream, &graph);
  // "If the capture was invalidated, then a NULL graph will be returned."
  *graph_handle = graph != nullptr ? keep_graph(std::move(graph)) : nullptr;
  return result;
}

CUstreamCaptureStatus status_of(const Capture* capture) {
  if (capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return capture->state == Capture::State::kActive ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                   : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

CUresult is_capturing(bool per_thread, CUstream handle, CUstreamCaptureStatus* status) {
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(handle, per_thread, &stream); found != CUDA_SUCCESS) {
    return found;
  }
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream->kind() == Stream::Kind::kLegacy) {
    const CUresult implicit = check_legacy_use(stream->context());
    if (implicit != CUDA_SUCCESS) return implicit;
  }
  const std::lock_guard lock(graph_mutex());
  *status = status_of(stream->capture.load());
  return CUDA_SUCCESS;
}

// What the newest form of cuStreamGetCaptureInfo can tell; all but the status may be null.
struct CaptureInfo {
  CUstreamCaptureStatus* status;
  cuuint64_t* id = nullptr;
  CUgraph* graph = nullptr;
  const CUgraphNode** dependencies = nullptr;
  const CUgraphEdgeData** data = nullptr;
  std::size_t* count = nullptr;
};

CUresult capture_info(bool per_thread, CUstream handle, const CaptureInfo& info) {
  const CUresult result = is_capturing(per_thread, handle, info.status);
  if (result != CUDA_SUCCESS) return result;
  Stream* stream = nullptr;
  find_stream(handle, per_thread, &stream);
  const std::lock_guard lock(graph_mutex());
  Capture* const capture = stream->capture.load();
  if (status_of(capture) != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  handed_out = {};
  for (const GraphEdge& edge : capture->tails[stream]) {
    if (info.data == nullptr && info.dependencies != nullptr && !is_full_edge(edge.data)) {
      return CUDA_ERROR_LOSSY_QUERY;
    }
    handed_out.nodes.push_back(handle_of(edge.other));
    handed_out.data.push_back(edge.data);
  }
  if (info.id != nullptr) *info.id = capture->id;
  if (info.graph != nullptr) *info.graph = handle_of(capture->graph.get());
  if (info.dependencies != nullptr) *info.dependencies = handed_out.nodes.data();
  if (info.data != nullptr) *info.data = handed_out.data.data();
  if (info.count != nullptr) *info.count = handed_out.nodes.size();
  return CUDA_SUCCESS;
}

CUresult info_v1(bool per_thread, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return capture_info(per_thread, stream, {status, id});
}

CUresult info_v2(bool per_thread, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                 CUgraph* graph, const CUgraphNode** dependencies, std::size_t* count) {
  return capture_info(per_thread, stream, {status, id, graph, dependencies, nullptr, count});
}

CUresult info_v3(bool per_thread, CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                 CUgraph* graph, const CUgraphNode** dependencies, const CUgraphEdgeData** data,
                 std::size_t* count) {
  return capture_info(per_thread, stream, {status, id, graph, dependencies, data, count});
}

CUresult update(bool per_thread, CUstream handle, CUgraphNode* dependencies,
                const CUgraphEdgeData* data, std::size_t count, unsigned flags) {
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(handle, per_thread, &stream); found != CUDA_SUCCESS) {
    return found;
  }
  const std::lock_guard lock(graph_mutex());
  Capture* const capture = stream->capture.load();
  if (status_of(capture) != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_ERROR_ILLEGAL_STATE;
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphEdge> edges;
  const CUresult result = read_dependencies(*capture->graph, dependencies, data, count, &edges);
  if (result != CUDA_SUCCESS) return result;
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) capture->tails[stream].clear();
  capture->join(stream, edges);
  return CUDA_SUCCESS;
}

CUresult update_v1(bool per_thread, CUstream stream, CUgraphNode* dependencies, std::size_t count,
                   unsigned flags) {
  return update(per_thread, stream, dependencies, nullptr, count, flags);
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_PAIR(cuStreamBeginCapture, _ptsz, begin_global, (CUstream hStream), hStream)

SIMGPU_PAIR(cuStreamBeginCapture_v2, _ptsz, begin, (CUstream hStream, CUstreamCaptureMode mode),
            hStream, mode)

SIMGPU_PAIR(cuStreamBeginCaptureToGraph, _ptsz, begin_to_graph,
            (CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
             const CUgraphEdgeData* dependencyData, size_t numDependencies,
             CUstreamCaptureMode mode),
            hStream, hGraph, dependencies, dependencyData, numDependencies, mode)

SIMGPU_PAIR(cuStreamEndCapture, _ptsz, end, (CUstream hStream, CUgraph* phGraph), hStream, phGraph)

SIMGPU_PAIR(cuStreamIsCapturing, _ptsz, is_capturing,
            (CUstream hStream, CUstreamCaptureStatus* captureStatus), hStream, captureStatus)

SIMGPU_PAIR(cuStreamGetCaptureInfo, _ptsz, info_v1,
            (CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out),
            hStream, captureStatus_out, id_out)

SIMGPU_PAIR(cuStreamGetCaptureInfo_v2, _ptsz, info_v2,
            (CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
             CUgraph* graph_out, const CUgraphNode** dependencies_out, size_t* numDependencies_out),
            hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out)

SIMGPU_PAIR(cuStreamGetCaptureInfo_v3, _ptsz, info_v3,
            (CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
             CUgraph* graph_out, const CUgraphNode** dependencies_out,
             const CUgraphEdgeData** edgeData_out, size_t* numDependencies_out),
            hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
            numDependencies_out)

SIMGPU_PAIR(cuStreamUpdateCaptureDependencies, _ptsz, update_v1,
            (CUstream hStream, CUgraphNode* dependencies, size_t numDependencies,
             unsigned int flags),
            hStream, dependencies, numDependencies, flags)

SIMGPU_PAIR(cuStreamUpdateCaptureDependencies_v2, _ptsz, update,
            (CUstream hStream, CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
             size_t numDependencies, unsigned int flags),
            hStream, dependencies, dependencyData, numDependencies, flags)

SIMGPU_EXPORT CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  SIMGPU_ENTER(cuThreadExchangeStreamCaptureMode);
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  *mode = exchange_thread_mode(*mode);
  return CUDA_SUCCESS;
}
