// A graph that allocates for itself: a node that allocates, work on it, a node that frees; built by
// hand and captured, launched across switches, with what the device says of graph memory.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

cuuint64_t used(CUdevice device) {
  cuuint64_t bytes = 0;
  CHECK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes));
  return bytes;
}

}  // namespace

int main() {
  Program program;
  const std::size_t bytes = 2 << 20, words = bytes / 4;
  const CUdeviceptr sum = allocate(bytes);
  CHECK(cuMemsetD32(sum, 1, words));
  CHECK(cuCtxSynchronize());  // a stream that is not blocking does not wait for it
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUgraph graph;
  CHECK(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
  parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {program.device()}};
  parameters.bytesize = bytes;
  CUgraphNode allocating, filling, adding, freeing;
  CHECK(cuGraphAddMemAllocNode(&allocating, graph, nullptr, 0, &parameters));
  CUDA_MEMSET_NODE_PARAMS fill = {};
  fill.dst = parameters.dptr;
  fill.value = 7;
  fill.elementSize = 4;
  fill.width = words;
  fill.height = 1;
  CUcontext context;
  CHECK(cuCtxGetCurrent(&context));
  CHECK(cuGraphAddMemsetNode(&filling, graph, &allocating, 1, &fill, context));
  unsigned long long count = words;
  unsigned scale = 3;
  CUdeviceptr out = sum, scratch = parameters.dptr;
  void* arguments[] = {&out, &out, &scratch, &count, &scale};
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  kernel.func = program.kernel("combine");
  kernel.gridDimX = static_cast<unsigned>(words / 128);
  kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = 128;
  kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = arguments;
  CHECK(cuGraphAddKernelNode(&adding, graph, &filling, 1, &kernel));
  CHECK(cuGraphAddMemFreeNode(&freeing, graph, &adding, 1, parameters.dptr));
  CUgraphExec exec;
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  for (int round = 0; round < 3; ++round) {
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    program.pause();
  }
  print_device("sum", sum, bytes);
  CHECK(cuDeviceGraphMemTrim(program.device()));
  std::printf("graph memory in use: %llu\n",
              static_cast<unsigned long long>(used(program.device())));
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
  CHECK(cuStreamDestroy(stream));
  CHECK(cuMemFree(sum));
}
