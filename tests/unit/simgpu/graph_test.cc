#include <atomic>
#include <fstream>
#include <sstream>

#include "tests/unit/simgpu/api_fixture.h"

namespace plexrl::simgpu {
namespace {

class GraphTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_EQ(CUDA_SUCCESS, cuGraphCreate(&graph_, 0));
  }
  void TearDown() override {
    EXPECT_EQ(CUDA_SUCCESS, cuGraphDestroy(graph_));
    DriverTest::TearDown();
  }

  // Parameters of a kernel node; `value` must live until they are used.
  CUDA_KERNEL_NODE_PARAMS kernel(CUfunction function, unsigned* value) {
    parameters_[2] = value;
    return {function, 4, 1, 1, 32, 1, 1, 0, parameters_, nullptr, nullptr, nullptr};
  }
  CUgraphNode add_kernel(CUfunction function, unsigned value, std::vector<CUgraphNode> after) {
    const CUDA_KERNEL_NODE_PARAMS parameters = kernel(function, &value);
    CUgraphNode node = nullptr;
    EXPECT_EQ(CUDA_SUCCESS,
              cuGraphAddKernelNode(&node, graph_, after.data(), after.size(), &parameters));
    return node;
  }
  CUDA_MEM_ALLOC_NODE_PARAMS allocation_of_words() const {
    CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
    allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
    allocation.bytesize = kCount * 4;
    return allocation;
  }
  CUgraphExec instantiate() {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuGraphInstantiate(&exec, graph_, 0));
    return exec;
  }
  void run(CUgraphExec exec) { ASSERT_EQ(CUDA_SUCCESS, cuGraphLaunch(exec, stream_)); }

  CUgraph graph_ = nullptr;
  unsigned count_ = kCount;
  void* parameters_[3] = {&words_, &count_, nullptr};
};

TEST_F(GraphTest, NodesRunInTheOrderOfTheirEdges) {
  const CUgraphNode last = add_kernel(add_, 3, {});
  const CUgraphNode first = add_kernel(fill_, 10, {});
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddDependencies(graph_, &first, &last, nullptr, 1));
  const CUgraphExec exec = instantiate();
  run(exec);
  EXPECT_EQ(all(13), words());
  run(exec);
  run(exec);
  EXPECT_EQ(all(13), words());
  EXPECT_EQ(CUDA_SUCCESS, cuGraphExecDestroy(exec));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream_));
}

TEST_F(GraphTest, ArgumentsAreCopiedWhenANodeIsAdded) {
  unsigned value = 5;
  const CUDA_KERNEL_NODE_PARAMS parameters = kernel(fill_, &value);
  CUgraphNode node = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddKernelNode(&node, graph_, nullptr, 0, &parameters));
  value = 6;
  run(instantiate());
  EXPECT_EQ(all(5), words());
  CUDA_KERNEL_NODE_PARAMS read{};
  ASSERT_EQ(CUDA_SUCCESS, cuGraphKernelNodeGetParams(node, &read));
  EXPECT_EQ(fill_, read.func);
  EXPECT_EQ(32u, read.blockDimX);
  EXPECT_EQ(5u, *static_cast<unsigned*>(read.kernelParams[2]));
}

TEST_F(GraphTest, ACycleCantBeInstantiated) {
  const CUgraphNode a = add_kernel(fill_, 1, {});
  const CUgraphNode b = add_kernel(fill_, 2, {a});
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddDependencies(graph_, &b, &a, nullptr, 1));
  CUgraphExec exec = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, graph_, 0));
}

TEST_F(GraphTest, ListsNodesRootsAndEdges) {
  const CUgraphNode a = add_kernel(fill_, 1, {});
  const CUgraphNode b = add_kernel(add_, 2, {a});
  const CUgraphNode c = add_kernel(add_, 3, {a, b});
  std::size_t count = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphGetNodes(graph_, nullptr, &count));
  EXPECT_EQ(3u, count);
  CUgraphNode roots[2] = {c, c};
  count = 2;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphGetRootNodes(graph_, roots, &count));
  EXPECT_EQ(1u, count);
  EXPECT_EQ(a, roots[0]);
  EXPECT_EQ(nullptr, roots[1]);
  ASSERT_EQ(CUDA_SUCCESS, cuGraphGetEdges(graph_, nullptr, nullptr, nullptr, &count));
  EXPECT_EQ(3u, count);
  CUgraphNode dependencies[2];
  count = 2;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphNodeGetDependencies(c, dependencies, nullptr, &count));
  EXPECT_EQ(2u, count);
  EXPECT_EQ(a, dependencies[0]);
  EXPECT_EQ(b, dependencies[1]);
  ASSERT_EQ(CUDA_SUCCESS, cuGraphRemoveDependencies(graph_, &a, &c, nullptr, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph_, &a, &c, nullptr, 1));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphDestroyNode(b));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphGetEdges(graph_, nullptr, nullptr, nullptr, &count));
  EXPECT_EQ(0u, count);
  CUgraphNodeType type;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(b, &type));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphNodeGetType(c, &type));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_KERNEL, type);
}

TEST_F(GraphTest, CopiesFillsAndHostFunctionsRunToo) {
  CUDA_MEMSET_NODE_PARAMS fill{words_, 0, 0x01020304, 4, kCount, 1};
  CUgraphNode filled = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddMemsetNode(&filled, graph_, nullptr, 0, &fill, context_));
  std::vector<unsigned> host(kCount);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = words_;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host.data();
  copy.WidthInBytes = kCount * 4;
  copy.Height = copy.Depth = 1;
  CUgraphNode copied = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddMemcpyNode(&copied, graph_, &filled, 1, &copy, context_));
  unsigned seen = 0;
  struct Look {
    std::vector<unsigned>* host;
    unsigned* seen;
  } look{&host, &seen};
  CUDA_HOST_NODE_PARAMS call{[](void* data) {
                               const auto* l = static_cast<Look*>(data);
                               *l->seen = l->host->back();
                             },
                             &look};
  CUgraphNode called = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddHostNode(&called, graph_, &copied, 1, &call));
  run(instantiate());
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  EXPECT_EQ(0x01020304u, seen);
  CUDA_MEMSET_NODE_PARAMS read{};
  ASSERT_EQ(CUDA_SUCCESS, cuGraphMemsetNodeGetParams(filled, &read));
  EXPECT_EQ(kCount, read.width);
  CUDA_MEMCPY3D read_copy{};
  ASSERT_EQ(CUDA_SUCCESS, cuGraphMemcpyNodeGetParams(copied, &read_copy));
  EXPECT_EQ(host.data(), read_copy.dstHost);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphMemcpyNodeGetParams(filled, &read_copy));
}

TEST_F(GraphTest, AChildGraphIsCopiedIntoItsNode) {
  add_kernel(fill_, 4, {});
  CUgraph outer = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphCreate(&outer, 0));
  CUgraphNode child = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddChildGraphNode(&child, outer, nullptr, 0, graph_));
  std::swap(graph_, outer);
  add_kernel(add_, 5, {child});
  CUgraphExec exec = instantiate();
  run(exec);
  EXPECT_EQ(all(9), words());
  CUgraph embedded = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphChildGraphNodeGetGraph(child, &embedded));
  EXPECT_NE(outer, embedded);
  std::size_t count = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphGetNodes(embedded, nullptr, &count));
  EXPECT_EQ(1u, count);
  EXPECT_EQ(CUDA_SUCCESS, cuGraphDestroy(outer));
}

TEST_F(GraphTest, AnUpdateChangesTheExecutableGraphOnly) {
  const CUgraphNode node = add_kernel(fill_, 1, {});
  CUgraphExec exec = instantiate();
  run(exec);
  unsigned value = 2;
  const CUDA_KERNEL_NODE_PARAMS parameters = kernel(fill_, &value);
  ASSERT_EQ(CUDA_SUCCESS, cuGraphExecKernelNodeSetParams(exec, node, &parameters));
  EXPECT_EQ(all(1), words());
  run(exec);
  EXPECT_EQ(all(2), words());
  run(instantiate());
  EXPECT_EQ(all(1), words());
  CUgraph other = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphCreate(&other, 0));
  std::swap(graph_, other);
  const CUgraphNode stranger = add_kernel(fill_, 1, {});
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec, stranger, &parameters));
  EXPECT_EQ(CUDA_SUCCESS, cuGraphDestroy(other));
}

TEST_F(GraphTest, ALaunchThatIsQueuedKeepsWhatItHad) {
  const CUgraphNode node = add_kernel(fill_, 1, {});
  CUgraphExec exec = instantiate();
  // The launch can't begin before the host lets it.
  static std::atomic<bool> is_open;
  is_open = false;
  ASSERT_EQ(CUDA_SUCCESS, cuLaunchHostFunc(
                              stream_,
                              [](void*) {
                                while (!is_open) usleep(1000);
                              },
                              nullptr));
  run(exec);
  unsigned value = 2;
  const CUDA_KERNEL_NODE_PARAMS parameters = kernel(fill_, &value);
  ASSERT_EQ(CUDA_SUCCESS, cuGraphExecKernelNodeSetParams(exec, node, &parameters));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphExecDestroy(exec));
  is_open = true;
  EXPECT_EQ(all(1), words());
}

TEST_F(GraphTest, AWholeGraphUpdatesAnotherOfTheSameShape) {
  const CUgraphNode a = add_kernel(fill_, 1, {});
  add_kernel(add_, 1, {a});
  CUgraphExec exec = instantiate();
  CUgraph like = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphClone(&like, graph_));
  CUgraphNode cloned = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphNodeFindInClone(&cloned, a, like));
  unsigned value = 20;
  const CUDA_KERNEL_NODE_PARAMS parameters = kernel(fill_, &value);
  ASSERT_EQ(CUDA_SUCCESS, cuGraphKernelNodeSetParams(cloned, &parameters));
  CUgraphExecUpdateResultInfo info;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphExecUpdate(exec, like, &info));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_SUCCESS, info.result);
  run(exec);
  EXPECT_EQ(all(21), words());
  CUgraphNode extra = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddEmptyNode(&extra, like, nullptr, 0));
  EXPECT_EQ(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, like, &info));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info.result);
  run(exec);
  EXPECT_EQ(all(21), words());
  EXPECT_EQ(CUDA_SUCCESS, cuGraphDestroy(like));
}

TEST_F(GraphTest, ADisabledNodeDoesNothing) {
  const CUgraphNode a = add_kernel(fill_, 1, {});
  const CUgraphNode b = add_kernel(add_, 1, {a});
  CUgraphExec exec = instantiate();
  ASSERT_EQ(CUDA_SUCCESS, cuGraphNodeSetEnabled(exec, b, 0));
  run(exec);
  EXPECT_EQ(all(1), words());
  unsigned enabled = 9;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphNodeGetEnabled(exec, b, &enabled));
  EXPECT_EQ(0u, enabled);
}

TEST_F(GraphTest, EventNodesRecordAndWait) {
  CUevent event = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  const CUgraphNode filled = add_kernel(fill_, 8, {});
  CUgraphNode recorded = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddEventRecordNode(&recorded, graph_, &filled, 1, event));
  CUevent read = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphEventRecordNodeGetEvent(recorded, &read));
  EXPECT_EQ(event, read);
  run(instantiate());
  CUstream other = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamWaitEvent(other, event, 0));
  ASSERT_EQ(CUDA_SUCCESS, launch(add_, 1, other));
  EXPECT_EQ(all(9), words());
  ASSERT_EQ(CUDA_SUCCESS, cuEventSynchronize(event));
}

TEST_F(GraphTest, ANodeWhoseEventIsGoneDoesNothing) {
  CUevent event = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUgraphNode recorded = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddEventRecordNode(&recorded, graph_, nullptr, 0, event));
  CUgraphExec exec = instantiate();
  ASSERT_EQ(CUDA_SUCCESS, cuEventDestroy(event));
  run(exec);
  EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
}

TEST_F(GraphTest, AllocationNodesGiveAnAddressThatLastsFromNodeToNode) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = allocation_of_words();
  CUgraphNode allocated = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddMemAllocNode(&allocated, graph_, nullptr, 0, &allocation));
  ASSERT_NE(0u, allocation.dptr);
  CUDA_MEMSET_NODE_PARAMS fill{allocation.dptr, 0, 77, 4, kCount, 1};
  CUgraphNode filled = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddMemsetNode(&filled, graph_, &allocated, 1, &fill, context_));
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = allocation.dptr;
  copy.dstDevice = words_;
  copy.WidthInBytes = kCount * 4;
  copy.Height = copy.Depth = 1;
  CUgraphNode copied = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddMemcpyNode(&copied, graph_, &filled, 1, &copy, context_));
  CUgraphNode freed = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddMemFreeNode(&freed, graph_, &copied, 1, allocation.dptr));
  CUgraphExec exec = instantiate();
  std::size_t before = 0;
  std::size_t total = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemGetInfo(&before, &total));
  run(exec);
  run(exec);
  EXPECT_EQ(all(77), words());
  std::size_t after = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
  cuuint64_t bytes = 1;
  ASSERT_EQ(CUDA_SUCCESS,
            cuDeviceGetGraphMemAttribute(device_, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes));
  EXPECT_EQ(0u, bytes);
  ASSERT_EQ(CUDA_SUCCESS,
            cuDeviceGetGraphMemAttribute(device_, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &bytes));
  EXPECT_GE(bytes, kCount * 4);
  CUgraph clone = nullptr;
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone(&clone, graph_));
}

TEST_F(GraphTest, AnAllocationThatTheGraphDoesNotFreeIsTheProgramsToFree) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = allocation_of_words();
  CUgraphNode allocated = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddMemAllocNode(&allocated, graph_, nullptr, 0, &allocation));
  CUgraphExec exec = instantiate();
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree(allocation.dptr));
  for (int i = 0; i < 2; ++i) {
    run(exec);
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream_));
    EXPECT_EQ(CUDA_SUCCESS, cuMemsetD32(allocation.dptr, 1, kCount));
    EXPECT_EQ(CUDA_SUCCESS, cuMemFree(allocation.dptr));
  }
}

/// What a stream gets while this lives runs at its end.
class Barred {
 public:
  explicit Barred(CUstream stream) : stream_(stream) {
    EXPECT_EQ(CUDA_SUCCESS, cuLaunchHostFunc(stream, wait, &is_open_));
  }
  ~Barred() {
    is_open_.store(true);
    is_open_.notify_all();
    EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  }

 private:
  static void CUDA_CB wait(void* is_open) { static_cast<std::atomic<bool>*>(is_open)->wait(false); }

  CUstream stream_;
  std::atomic<bool> is_open_{false};
};

TEST_F(GraphTest, MemoryThatALaunchFreesByItselfIsThereForWorkBeforeTheLaunch) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = allocation_of_words();
  CUgraphNode allocated = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddMemAllocNode(&allocated, graph_, nullptr, 0, &allocation));
  CUDA_MEMSET_NODE_PARAMS fill{allocation.dptr, 0, 77, 4, kCount, 1};
  CUgraphNode filled = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddMemsetNode(&filled, graph_, &allocated, 1, &fill, context_));
  CUgraphExec exec = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphInstantiateWithFlags(
                              &exec, graph_, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  {
    Barred barred(stream_);
    ASSERT_EQ(CUDA_SUCCESS, cuGraphLaunch(exec, stream_));
    ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32Async(allocation.dptr, 5, kCount / 2, stream_));
    ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoDAsync(words_, allocation.dptr, kCount * 4, stream_));
    ASSERT_EQ(CUDA_SUCCESS, cuGraphLaunch(exec, stream_));  // does not wait for what is before it
  }
  auto expected = all(77);
  std::fill_n(expected.begin(), kCount / 2, 5);
  EXPECT_EQ(expected, words());
  EXPECT_EQ(CUDA_SUCCESS, cuMemFree(allocation.dptr));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphExecDestroy(exec));
}

TEST_F(GraphTest, AFreeNodeOfAnotherGraphFreesInTheOrderOfTheLaunches) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = allocation_of_words();
  CUgraphNode allocated = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddMemAllocNode(&allocated, graph_, nullptr, 0, &allocation));
  CUgraphExec allocates = instantiate();
  CUgraph other = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphCreate(&other, 0));
  CUgraphNode freed = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddMemFreeNode(&freed, other, nullptr, 0, allocation.dptr));
  CUgraphExec frees = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphInstantiateWithFlags(&frees, other, 0));
  {
    Barred barred(stream_);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(CUDA_SUCCESS, cuGraphLaunch(allocates, stream_));
      EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(allocates, stream_));
      ASSERT_EQ(CUDA_SUCCESS, cuGraphLaunch(frees, stream_));
    }
  }
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree(allocation.dptr));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphExecDestroy(frees));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphDestroy(other));
}

TEST_F(GraphTest, AUserObjectGoesWithItsGraph) {
  int destroyed = 0;
  CUuserObject object = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuUserObjectCreate(
                              &object, &destroyed, [](void* count) { ++*static_cast<int*>(count); },
                              1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CUgraph owner = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphCreate(&owner, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphRetainUserObject(owner, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  EXPECT_EQ(0, destroyed);
  ASSERT_EQ(CUDA_SUCCESS, cuGraphDestroy(owner));
  EXPECT_EQ(1, destroyed);
}

TEST_F(GraphTest, AnExecutableGraphKeepsTheUserObjectsOfItsGraph) {
  std::atomic<int> destroyed = 0;
  CUuserObject object = nullptr;
  ASSERT_EQ(CUDA_SUCCESS,
            cuUserObjectCreate(
                &object, &destroyed, [](void* count) { ++*static_cast<std::atomic<int>*>(count); },
                1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CUgraph owner = nullptr, outer = nullptr;
  CUgraphNode child = nullptr;
  CUgraphExec executable = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGraphCreate(&owner, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphRetainUserObject(owner, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphCreate(&outer, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphAddChildGraphNode(&child, outer, nullptr, 0, owner));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphInstantiateWithFlags(&executable, outer, 0));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphDestroy(owner));
  ASSERT_EQ(CUDA_SUCCESS, cuGraphDestroy(outer));
  EXPECT_EQ(0, destroyed);
  ASSERT_EQ(CUDA_SUCCESS, cuGraphLaunch(executable, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  EXPECT_EQ(0, destroyed);
  ASSERT_EQ(CUDA_SUCCESS, cuGraphExecDestroy(executable));
  EXPECT_EQ(1, destroyed);
}

TEST_F(GraphTest, ADrawingNamesKernelsAndEdges) {
  const CUgraphNode a = add_kernel(fill_, 1, {});
  add_kernel(add_, 1, {a});
  const std::string path = testing::TempDir() + "/graph_test-" + std::to_string(getpid()) + ".dot";
  ASSERT_EQ(CUDA_SUCCESS, cuGraphDebugDotPrint(graph_, path.c_str(), 0));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_NE(text.str().find("fill"), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("->"), std::string::npos) << text.str();
  unlink(path.c_str());
}

TEST_F(GraphTest, BadArgumentsAreRefused) {
  CUgraphNode node = nullptr;
  unsigned value = 1;
  const CUDA_KERNEL_NODE_PARAMS parameters = kernel(fill_, &value);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(nullptr, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(&graph_, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuGraphAddKernelNode(nullptr, graph_, nullptr, 0, &parameters));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphAddKernelNode(&node, graph_, nullptr, 0, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphAddKernelNode(&node, graph_, nullptr, 1, &parameters));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&node, nullptr, nullptr, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(nullptr, stream_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(nullptr, graph_, 0));
}

}  // namespace
}  // namespace plexrl::simgpu
