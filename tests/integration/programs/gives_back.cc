// For run_waiting.py: makes one of everything, then waits for the runner's word and gives all of it
// back, a line for each call that has returned. The runner gives the word while the GPU is
// another job's, and will be until all of these lines are there. What the program kept is read by
// it and by other threads, which all have to wait for the GPU meanwhile.
#include <sys/mman.h>

#include <chrono>
#include <thread>

#include "tests/integration/programs/channel.h"
#include "tests/integration/programs/kernels.ptx.h"
#include "tests/integration/programs/peer.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 6 << 20, kWords = kBytes / 4, kSmallBytes = 4096;

/// Calls, and says so once the call has returned.
#define GIVE_BACK(call) (CHECK(call), said(#call))

void said(const char* call) {
  std::printf("%s\n", call);
  std::fflush(stdout);
}

void wait_for_the_word(Peer* peer) {
  if (peer == nullptr) return;
  peer->program_pauses.store(1);
  while (peer->stop.load() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

/// Memory that the job maps by itself.
struct OwnMapping {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;

  explicit OwnMapping(CUdevice device) {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    CHECK(cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    CHECK(cuMemCreate(&handle, bytes, &prop, 0));
    CHECK(cuMemMap(address, bytes, 0, handle, 0));
    CUmemAccessDesc access = {};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemSetAccess(address, bytes, &access, 1));
    CHECK(cuMemsetD8(address, 1, bytes));
  }
  void give_back() {
    GIVE_BACK(cuMemUnmap(address, bytes));
    GIVE_BACK(cuMemRelease(handle));
    GIVE_BACK(cuMemAddressFree(address, bytes));
  }
};

/// A stream and an event of it, memory of a pool, a graph captured from the stream and run once.
struct StreamAndItsOwn {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmemoryPool pool = nullptr;
  CUdeviceptr pooled = 0, freed = 0;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;

  StreamAndItsOwn(const Program& program, CUdeviceptr data) {
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {program.device()}};
    CHECK(cuMemPoolCreate(&pool, &props));
    cuuint64_t keep = kBytes;
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    CHECK(cuMemAllocFromPoolAsync(&pooled, kBytes, pool, stream));
    CHECK(cuMemAllocFromPoolAsync(&freed, kBytes, pool, stream));
    CHECK(cuMemsetD32Async(pooled, 7, kWords, stream));
    CHECK(cuMemsetD32Async(freed, 8, kWords, stream));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch(program.kernel("mix"), kWords, stream, data, static_cast<unsigned long long>(kWords),
           3u);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuEventRecord(event, stream));
    CHECK(cuStreamSynchronize(stream));
  }
  void give_back() {
    GIVE_BACK(cuMemFreeAsync(freed, stream));
    GIVE_BACK(cuMemPoolTrimTo(pool, 0));
    GIVE_BACK(cuMemFree(pooled));
    GIVE_BACK(cuMemPoolDestroy(pool));
    GIVE_BACK(cuGraphExecDestroy(exec));
    GIVE_BACK(cuGraphDestroy(graph));
    GIVE_BACK(cuEventDestroy(event));
    GIVE_BACK(cuStreamDestroy(stream));
  }
};

/// Page-locked memory, the driver's and the program's own, that kernels have written.
struct HostMemory {
  void* pinned = nullptr;
  void* own = nullptr;

  explicit HostMemory(const Program& program) {
    CHECK(cuMemHostAlloc(&pinned, kBytes, CU_MEMHOSTALLOC_DEVICEMAP));
    own = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(cuMemHostRegister(own, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
    for (void* memory : {pinned, own}) {
      CUdeviceptr address;
      CHECK(cuMemHostGetDevicePointer(&address, memory, 0));
      launch(program.kernel("mix"), kWords, nullptr, address,
             static_cast<unsigned long long>(kWords), 5u);
    }
    CHECK(cuCtxSynchronize());
  }
  void give_back() {
    GIVE_BACK(cuMemFreeHost(pinned));
    GIVE_BACK(cuMemHostUnregister(own));
  }
};

/// Code in each of the forms that it is loaded in.
struct Code {
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  CUlinkState linker = nullptr;

  Code() {
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuLibraryLoadData(&library, kernels_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(cuLinkCreate(0, nullptr, nullptr, &linker));
    CUfunction hold;
    CHECK(cuModuleGetFunction(&hold, module, "hold"));
    launch(hold, 1, nullptr, 1ull);
    CHECK(cuCtxSynchronize());
  }
  void give_back() {
    GIVE_BACK(cuLinkDestroy(linker));
    GIVE_BACK(cuLibraryUnload(library));
    GIVE_BACK(cuModuleUnload(module));
  }
};

/// A context with a stream, an event, a module and memory that nobody gives back one by one.
struct SecondContext {
  CUcontext context = nullptr;

  explicit SecondContext(CUdevice device) {
    CHECK(cuCtxCreate(&context, nullptr, 0, device));
    CUstream stream;
    CUmodule module;
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuMemsetD32Async(allocate(kBytes), 9, kWords, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuCtxPopCurrent(nullptr));
  }
  void give_back() { GIVE_BACK(cuCtxDestroy(context)); }
};

void use_primary_context(CUdevice device) {
  CUcontext context;
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
}

void read_kept(CUdevice device, CUdeviceptr kept, std::vector<unsigned char>& copy) {
  use_primary_context(device);
  CHECK(cuMemcpyDtoH(copy.data(), kept, copy.size()));
  CHECK(cuDevicePrimaryCtxRelease(device));
}

void mix_kept(const Program& program, CUdeviceptr kept) {
  use_primary_context(program.device());
  launch(program.kernel("mix"), kWords, nullptr, kept, static_cast<unsigned long long>(kWords), 1u);
  CHECK(cuCtxSynchronize());
  CHECK(cuDevicePrimaryCtxRelease(program.device()));
}

int child(const char* socket) {
  Program program;
  Channel parent(socket);
  const CUdeviceptr data = allocate(kBytes);
  CHECK(cuMemsetD32(data, 6, kWords));
  CUipcMemHandle handle;
  CHECK(cuIpcGetMemHandle(&handle, data));
  parent.send(handle);
  parent.wait();
  CHECK(cuMemFree(data));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) {
    setenv("PLEXRL_TEST_BALLAST", "1048576", 1);
    return child(argv[2]);
  }
  Peer* const peer = map_peer();
  unsetenv("PLEXRL_TEST_PEER");  // this program's pauses are the runner's
  Program program;
  Channel channel = Channel::to_child();
  CUdeviceptr theirs;
  CHECK(cuIpcOpenMemHandle(&theirs, channel.receive<CUipcMemHandle>(),
                           CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  const CUdeviceptr kept = allocate(kBytes), also_kept = allocate(kBytes);
  const CUdeviceptr large = allocate(kBytes);
  const CUdeviceptr small = allocate(kSmallBytes), never_used = allocate(kBytes);
  CHECK(cuMemsetD32(kept, 1, kWords));
  CHECK(cuMemsetD32(also_kept, 4, kWords));
  CHECK(cuMemsetD32(large, 2, kWords));
  CHECK(cuMemsetD8(small, 3, kSmallBytes));
  CHECK(cuMemcpyDtoD(kept + kBytes / 2, theirs, kBytes / 2));
  OwnMapping mapping(program.device());
  StreamAndItsOwn stream(program, kept);
  HostMemory host(program);
  Code code;
  SecondContext second(program.device());
  wait_for_the_word(peer);

  std::vector<unsigned char> copy(kBytes);
  std::thread reader([&] { read_kept(program.device(), kept, copy); });
  std::thread launcher([&] { mix_kept(program, also_kept); });
  stream.give_back();
  mapping.give_back();
  host.give_back();
  code.give_back();
  second.give_back();
  GIVE_BACK(cuMemFree(large));
  GIVE_BACK(cuMemFree(small));
  GIVE_BACK(cuMemFree(never_used));
  GIVE_BACK(cuIpcCloseMemHandle(theirs));
  if (peer != nullptr) peer->program_pauses.store(2);

  reader.join();
  launcher.join();
  print_host("kept, read by a thread", copy.data(), kBytes);
  print_device("kept", kept, kBytes);
  print_device("also kept", also_kept, kBytes);
  CHECK(cuMemFree(kept));
  CHECK(cuMemFree(also_kept));
  channel.tell();
  channel.join_child();
}
