// A graph that is ready to run and then gets what other graphs of its shape have, while memory is
// away: other kernels' arguments, other addresses, memory that was allocated inside of a capture
// (by a thread that has relaxed its mode for that, as frameworks' allocators do). A graph of
// another shape is refused, and what was there before still runs.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 4 << 20, kWords = kBytes / 4;
constexpr unsigned long long kCount = kWords;

/// to = mix(from), by a kernel and copies around it.
void record(const Program& program, CUstream stream, CUdeviceptr to, CUdeviceptr from,
            unsigned seed) {
  CHECK(cuMemcpyDtoDAsync(to, from, kBytes, stream));
  launch(program.kernel("mix"), kWords, stream, to, kCount, seed);
  CHECK(cuMemsetD32Async(from, seed, kWords / 2, stream));
}

CUgraph captured(const Program& program, CUstream stream, CUdeviceptr to, CUdeviceptr from,
                 unsigned seed) {
  CUgraph graph;
  CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  record(program, stream, to, from, seed);
  CHECK(cuStreamEndCapture(stream, &graph));
  return graph;
}

/// With memory that did not exist when the capture began.
CUgraph captured_with_new_memory(const Program& program, CUstream stream, CUdeviceptr* fresh,
                                 CUdeviceptr from) {
  CUgraph graph;
  CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CHECK(cuThreadExchangeStreamCaptureMode(&mode));
  *fresh = allocate(kBytes);
  CHECK(cuThreadExchangeStreamCaptureMode(&mode));
  record(program, stream, *fresh, from, 40);
  CHECK(cuStreamEndCapture(stream, &graph));
  return graph;
}

void update(CUgraphExec exec, CUgraph graph) {
  CUgraphExecUpdateResultInfo info = {};
  const CUresult result = cuGraphExecUpdate(exec, graph, &info);
  std::printf("update: %s, %d\n", error_name(result).c_str(), static_cast<int>(info.result));
}

}  // namespace

int main() {
  Program program;
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr blocks[4] = {allocate(kBytes), allocate(kBytes), allocate(kBytes), 0};
  for (unsigned i = 0; i < 3; ++i) CHECK(cuMemsetD32(blocks[i], i + 1, kWords));
  CHECK(cuCtxSynchronize());
  CUgraph graphs[4];
  for (unsigned i = 0; i < 3; ++i)
    graphs[i] = captured(program, stream, blocks[(i + 1) % 3], blocks[i], 10 + i);
  program.pause();
  graphs[3] = captured_with_new_memory(program, stream, &blocks[3], blocks[0]);
  CUgraphExec exec;
  CHECK(cuGraphInstantiate(&exec, graphs[0], 0));
  for (const CUgraph graph : {graphs[1], graphs[2], graphs[3]}) {
    program.pause();
    update(exec, graph);
    program.pause();
    CHECK(cuGraphUpload(exec, stream));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
  }
  CUgraph other;
  CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  launch(program.kernel("mix"), kWords, stream, blocks[0], kCount, 1u);
  CHECK(cuStreamEndCapture(stream, &other));
  program.pause();
  update(exec, other);
  CHECK(cuGraphLaunch(exec, stream));
  CHECK(cuStreamSynchronize(stream));
  for (const CUdeviceptr block : blocks) {
    print_device("block", block, kBytes);
    CHECK(cuMemFree(block));
  }
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(other));
  for (const CUgraph graph : graphs) CHECK(cuGraphDestroy(graph));
  CHECK(cuStreamDestroy(stream));
}
