// A graph that allocates and does not free: what it leaves is the program's, read and written after
// switches and freed by hand, before the graph may run again.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const std::size_t bytes = 8 << 20, words = bytes / 4;
  CUgraph graph;
  CHECK(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS memory = {};
  memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {program.device()}};
  memory.bytesize = bytes;
  CUgraphNode allocating, filling;
  CHECK(cuGraphAddMemAllocNode(&allocating, graph, nullptr, 0, &memory));
  CUDA_MEMSET_NODE_PARAMS fill = {};
  fill.dst = memory.dptr;
  fill.value = 7;
  fill.elementSize = 4;
  fill.width = words;
  fill.height = 1;
  CUcontext context;
  CHECK(cuCtxGetCurrent(&context));
  CHECK(cuGraphAddMemsetNode(&filling, graph, &allocating, 1, &fill, context));
  CUgraphExec exec;
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  for (unsigned round = 0; round < 2; ++round) {
    CHECK(cuGraphLaunch(exec, nullptr));
    CHECK(cuCtxSynchronize());
    program.pause();
    launch(program.kernel("mix"), words, nullptr, memory.dptr,
           static_cast<unsigned long long>(words), round);
    print_device("left by the graph", memory.dptr, bytes);
    program.pause();
    print_device("later", memory.dptr, bytes);
    CHECK(cuMemFree(memory.dptr));
  }
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
  CHECK(cuDeviceGraphMemTrim(program.device()));
}
