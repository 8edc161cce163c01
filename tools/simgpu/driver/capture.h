#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "tools/simgpu/driver/graph.h"
#include "tools/simgpu/driver/stream.h"

/// Stream capture: from cuStreamBeginCapture to cuStreamEndCapture, work of the streams in a
/// capture becomes nodes of a graph. "Stream capture" in the CUDA C++ Programming Guide has the
/// rules.
namespace plexrl::simgpu {

/// Nodes that the next node of a stream depends on.
using Dependencies = std::vector<GraphEdge>;

/// One capture. Never freed, so that an event or a stream that still names an ended one can tell.
/// Guarded by graph_mutex().
class Capture {
 public:
  enum class State { kActive, kInvalidated, kEnded };
  Capture(Stream* origin, CUstreamCaptureMode mode, std::shared_ptr<Graph> graph);

  GraphNode* add(Stream* stream, NodeWork work);
  void join(Stream* stream, const Dependencies& tail);
  /// Whether every branch leads back to the origin stream.
  bool is_joined() const;
  /// Takes all streams out of the capture.
  void end();

  const std::uint64_t id;
  Stream* const origin;
  const CUstreamCaptureMode mode;
  const std::thread::id thread = std::this_thread::get_id();
  std::shared_ptr<Graph> graph;
  State state = State::kActive;
  std::map<Stream*, Dependencies> tails;
  std::map<Event*, Dependencies> events;
  std::vector<GraphNode*> added;
};

/// What streams and the calls of this thread are doing; all need graph_mutex().
CUresult begin_capture(Stream* stream, CUstreamCaptureMode mode, std::shared_ptr<Graph> graph,
                       const Dependencies& tail);
/// *graph is what was captured; nullptr when the capture was invalidated.
CUresult end_capture(Stream* stream, std::shared_ptr<Graph>* graph);
/// Adds a node to the capture that `stream` is in.
CUresult capture_work(Stream* stream, NodeWork work);
/// cuThreadExchangeStreamCaptureMode.
CUstreamCaptureMode exchange_thread_mode(CUstreamCaptureMode mode);

}  // namespace plexrl::simgpu
