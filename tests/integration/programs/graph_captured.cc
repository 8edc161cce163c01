// Captures in every mode that begin while the memory is away. Then a graph captured from two
// streams, launched several times between pauses; between capture and instantiation is one, too.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const std::size_t bytes = 4 << 20, words = bytes / 4;
  const unsigned long long count = words;
  const CUdeviceptr a = allocate(bytes), b = allocate(bytes);
  CHECK(cuMemsetD32(a, 1, words));
  CHECK(cuMemsetD32(b, 2, words));
  CHECK(cuCtxSynchronize());  // streams that are not blocking do not wait for it
  CUstream stream, side;
  CUevent fork, join;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CU_STREAM_CAPTURE_MODE_RELAXED}) {
    program.pause();  // the capture begins while the memory is away
    CUgraph small;
    CUgraphExec launched;
    CHECK(cuStreamBeginCapture(stream, mode));
    launch(program.kernel("mix"), words, stream, a, count, 5u);
    CHECK(cuMemcpyDtoDAsync(b, a, bytes / 4, stream));
    CHECK(cuStreamEndCapture(stream, &small));
    CHECK(cuGraphInstantiate(&launched, small, 0));
    CHECK(cuGraphLaunch(launched, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(launched));
    CHECK(cuGraphDestroy(small));
  }
  CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  launch(program.kernel("mix"), words, stream, a, count, 1u);
  CHECK(cuEventRecord(fork, stream));
  CHECK(cuStreamWaitEvent(side, fork, 0));
  launch(program.kernel("mix"), words, side, b, count, 2u);
  CHECK(cuMemcpyDtoDAsync(a, b, bytes / 2, side));
  CHECK(cuEventRecord(join, side));
  CHECK(cuStreamWaitEvent(stream, join, 0));
  launch(program.kernel("combine"), words, stream, b, a, b, count, 7u);
  CUgraph graph;
  CHECK(cuStreamEndCapture(stream, &graph));
  program.pause();
  CUgraphExec exec;
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  for (int round = 0; round < 4; ++round) {
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuGraphLaunch(exec, stream));
    program.pause();
  }
  CHECK(cuStreamSynchronize(stream));
  print_device("a", a, bytes);
  print_device("b", b, bytes);
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
  for (const CUevent event : {fork, join}) CHECK(cuEventDestroy(event));
  for (const CUstream each : {stream, side}) CHECK(cuStreamDestroy(each));
  for (const CUdeviceptr block : {a, b}) CHECK(cuMemFree(block));
}
