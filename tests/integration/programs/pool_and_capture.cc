// Stream-ordered allocations while another stream captures, in each capture mode: they neither join
// nor break the capture; and an allocation inside it is a node of the graph.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const std::size_t bytes = 2 << 20, words = bytes / 4;
  CUstream capturing, working;
  CHECK(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&working, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr data = allocate(bytes);
  CHECK(cuMemsetD32(data, 1, words));
  CHECK(cuCtxSynchronize());  // streams that are not blocking do not wait for it
  const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                       CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                       CU_STREAM_CAPTURE_MODE_RELAXED};
  for (const CUstreamCaptureMode mode : modes) {
    CUdeviceptr before, during, inside;
    CHECK(cuMemAllocAsync(&before, bytes, working));
    CHECK(cuMemsetD32Async(before, 5, words, working));
    CHECK(cuStreamBeginCapture(capturing, mode));
    CHECK(cuMemAllocAsync(&during, bytes, working));
    CHECK(cuMemsetD32Async(during, 6, words, working));
    CHECK(cuMemAllocAsync(&inside, bytes, capturing));
    CHECK(cuMemsetD32Async(inside, 7, words, capturing));
    launch(program.kernel("combine"), words, capturing, data, data, inside,
           static_cast<unsigned long long>(words), 3u);
    CHECK(cuMemFreeAsync(before, working));
    CHECK(cuMemFreeAsync(inside, capturing));
    CUgraph graph;
    CHECK(cuStreamEndCapture(capturing, &graph));
    CUgraphExec exec;
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuStreamSynchronize(working));
    program.pause();
    for (int i = 0; i < 3; ++i) CHECK(cuGraphLaunch(exec, capturing));
    CHECK(cuStreamSynchronize(capturing));
    print_device("during", during, bytes);
    CHECK(cuMemFreeAsync(during, working));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
  }
  print_device("data", data, bytes);
  CHECK(cuMemFree(data));
  CHECK(cuStreamDestroy(capturing));
  CHECK(cuStreamDestroy(working));
}
