// Work is captured into a graph that is there already, twice, behind nodes that were added by hand;
// in between, and before it is instantiated and launched, the memory is away.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const std::size_t bytes = 4 << 20, words = bytes / 4;
  const unsigned long long count = words;
  const CUdeviceptr a = allocate(bytes), b = allocate(bytes);
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUcontext context;
  CHECK(cuCtxGetCurrent(&context));
  CUgraph graph;
  CHECK(cuGraphCreate(&graph, 0));
  CUDA_MEMSET_NODE_PARAMS fill = {};
  fill.dst = a;
  fill.elementSize = 4;
  fill.value = 3;
  fill.width = words;
  fill.height = 1;
  CUgraphNode first;
  CHECK(cuGraphAddMemsetNode(&first, graph, nullptr, 0, &fill, context));
  program.pause();
  CUgraph same;
  CHECK(cuStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1,
                                    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  launch(program.kernel("mix"), words, stream, a, count, 5u);
  CHECK(cuMemcpyDtoDAsync(b, a, bytes, stream));
  CHECK(cuStreamEndCapture(stream, &same));
  std::printf("the same graph: %d\n", same == graph);
  std::size_t nodes = 0;
  CHECK(cuGraphGetNodes(graph, nullptr, &nodes));
  std::printf("nodes: %zu\n", nodes);
  program.pause();
  CUgraphExec exec;
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  for (int round = 0; round < 3; ++round) {
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    print_device("a", a, bytes);
    print_device("b", b, bytes);
    program.pause();
  }
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
  CHECK(cuStreamDestroy(stream));
}
