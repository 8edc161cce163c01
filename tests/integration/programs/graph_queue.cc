// Graphs with allocation nodes: one behind a wait that this thread ends only after it has launched
// the graph. Then one after the other in one stream, together more than has room: with nothing else
// going on, and while a capture is open elsewhere. Each finds the memory of the one before free.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr int kGraphs = 8;
constexpr std::size_t kBytes = 8 << 20;

/// Allocates, fills, digests by a copy of the last word, frees.
CUgraphExec make(CUstream stream, CUdeviceptr out, int index) {
  CUdeviceptr memory;
  CUgraph graph;
  CUgraphExec exec;
  CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CHECK(cuMemAllocAsync(&memory, kBytes, stream));
  CHECK(cuMemsetD32Async(memory, 100 + index, kBytes / 4, stream));
  CHECK(cuMemcpyDtoDAsync(out + 4 * index, memory + kBytes - 4, 4, stream));
  CHECK(cuMemFreeAsync(memory, stream));
  CHECK(cuStreamEndCapture(stream, &graph));
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  CHECK(cuGraphDestroy(graph));
  return exec;
}

void run_all(const std::vector<CUgraphExec>& execs, CUstream stream) {
  for (const CUgraphExec exec : execs) {
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
  }
}

}  // namespace

int main() {
  Program program;
  CUstream stream, other;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr out = allocate(4 * kGraphs), flag = allocate(4096);
  CHECK(cuMemsetD32(flag, 0, 1024));
  CHECK(cuCtxSynchronize());
  std::vector<CUgraphExec> execs;
  for (int i = 0; i < kGraphs; ++i) execs.push_back(make(stream, out, i));
  for (unsigned round = 1; round <= 2; ++round) {
    CHECK(cuMemsetD32(out, 0, kGraphs));
    CHECK(cuCtxSynchronize());
    program.pause();
    CHECK(cuStreamWaitValue32(stream, flag, round, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK(cuGraphLaunch(execs[0], stream));
    CHECK(cuStreamWriteValue32(other, flag, round, 0));
    CHECK(cuStreamSynchronize(stream));
    print_device("behind a wait", out, 4 * kGraphs);
    run_all(execs, stream);
    print_device("one by one", out, 4 * kGraphs);
    CHECK(cuMemsetD32(out, 0, kGraphs));
    CHECK(cuCtxSynchronize());
    CUgraph empty;
    CHECK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    run_all(execs, stream);
    CHECK(cuStreamEndCapture(other, &empty));
    CHECK(cuGraphDestroy(empty));
    print_device("beside a capture", out, 4 * kGraphs);
  }
  for (const CUgraphExec exec : execs) CHECK(cuGraphExecDestroy(exec));
}
