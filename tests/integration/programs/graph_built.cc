// A graph built by hand from memset, kernel and copy nodes, whose kernel gets new parameters
// between launches.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const std::size_t bytes = 4 << 20, words = bytes / 4;
  CUdeviceptr a = allocate(bytes), b = allocate(bytes);
  unsigned long long count = words;
  unsigned add = 0;
  CUcontext context;
  CHECK(cuCtxGetCurrent(&context));
  CUgraph graph;
  CHECK(cuGraphCreate(&graph, 0));
  CUDA_MEMSET_NODE_PARAMS memset = {};
  memset.dst = a;
  memset.value = 5;
  memset.elementSize = 4;
  memset.width = words;
  memset.height = 1;
  CUgraphNode memset_node, kernel_node, copy_node;
  CHECK(cuGraphAddMemsetNode(&memset_node, graph, nullptr, 0, &memset, context));
  void* arguments[] = {&a, &count, &add};
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  kernel.func = program.kernel("mix");
  kernel.gridDimX = static_cast<unsigned>((words + 127) / 128);
  kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.blockDimX = 128;
  kernel.kernelParams = arguments;
  CHECK(cuGraphAddKernelNode(&kernel_node, graph, &memset_node, 1, &kernel));
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = a;
  copy.dstDevice = b;
  copy.WidthInBytes = bytes;
  copy.Height = copy.Depth = 1;
  CHECK(cuGraphAddMemcpyNode(&copy_node, graph, &kernel_node, 1, &copy, context));
  program.pause();
  CUgraphExec exec;
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (add = 1; add <= 4; ++add) {
    CHECK(cuGraphExecKernelNodeSetParams(exec, kernel_node, &kernel));
    CHECK(cuGraphLaunch(exec, stream));
    program.pause();
    CHECK(cuStreamSynchronize(stream));
    print_device("b", b, bytes);
  }
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
  CHECK(cuStreamDestroy(stream));
  for (const CUdeviceptr block : {a, b}) CHECK(cuMemFree(block));
}
