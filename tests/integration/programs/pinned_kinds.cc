// Memory that others get hold of, one way a run: while they have it, it stays in HBM; afterwards it
// moves again. For run_figures.py, which looks during the two pauses at what plexrl-ctl says of it;
// the argument is the way.
#include <dlfcn.h>
#include <unistd.h>

#include <functional>

#include "tests/integration/programs/handles.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 6 << 20;

/// Ends what others have; the memory itself is the program's until its end, or freed by this.
using End = std::function<void()>;

void expect(bool is_so, const char* what) {
  if (is_so) return;
  std::fprintf(stderr, "%s failed\n", what);
  std::exit(1);
}

CUdeviceptr filled() {
  const CUdeviceptr memory = allocate(kBytes);
  CHECK(cuMemsetD32(memory, 7, kBytes / 4));
  CHECK(cuCtxSynchronize());
  return memory;
}

/// A descriptor for another driver. The memory stays until it is freed.
End dma_buf(const Program&) {
  const CUdeviceptr memory = filled();
  int fd = -1;
  CHECK(cuMemGetHandleForAddressRange(&fd, memory, kBytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  expect(fd >= 0 && close(fd) == 0, "the descriptor");
  return [=] { CHECK(cuMemFree(memory)); };
}

End sync_memops(const Program&) {
  const CUdeviceptr memory = filled();
  const auto set = [=](unsigned value) {
    CHECK(cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
  };
  set(1);
  return [=] { set(0); };
}

/// Memory of one of two devices, bound to an object that both belong to.
End multicast(const Program& program) {
  CUdevice other;
  CUcontext context;
  CHECK(cuDeviceGet(&other, 1));
  CHECK(cuDevicePrimaryCtxRetain(&context, other));
  CUmulticastObjectProp prop = {};
  prop.numDevices = 2;
  prop.size = kBytes;
  CUmemGenericAllocationHandle object;
  CHECK(cuMulticastCreate(&object, &prop));
  CHECK(cuMulticastAddDevice(object, program.device()));
  CHECK(cuMulticastAddDevice(object, other));
  CUmemAllocationProp its = {};
  its.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  its.location = {CU_MEM_LOCATION_TYPE_DEVICE, {program.device()}};
  CUmemGenericAllocationHandle handle;
  CHECK(cuMemCreate(&handle, kBytes, &its, 0));
  CHECK(cuMulticastBindMem(object, 0, handle, 0, kBytes, 0));
  const CUdevice device = program.device();
  return [=] {
    CHECK(cuMulticastUnbind(object, device, 0, kBytes));
    CHECK(cuMemRelease(object));
  };
}

/// NCCL, as a framework that loads it has it.
struct Nccl {
  template <typename Function>
  Function* get(const char* name) const {
    void* const found = library == nullptr ? nullptr : dlsym(library, name);
    expect(found != nullptr, name);
    return reinterpret_cast<Function*>(found);
  }
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  void* comm = nullptr;
};

const Nccl& nccl() {
  static const Nccl loaded = [] {
    Nccl fresh;
    const int device = 0;
    expect(fresh.get<int(void**, int, const int*)>("ncclCommInitAll")(&fresh.comm, 1, &device) == 0,
           "ncclCommInitAll");
    return fresh;
  }();
  return loaded;
}

End nccl_memory(const Program&) {
  void* memory = nullptr;
  expect(nccl().get<int(void**, std::size_t)>("ncclMemAlloc")(&memory, kBytes) == 0,
         "ncclMemAlloc");
  CHECK(cuMemsetD32(reinterpret_cast<CUdeviceptr>(memory), 7, kBytes / 4));
  CHECK(cuCtxSynchronize());
  return [=] { expect(nccl().get<int(void*)>("ncclMemFree")(memory) == 0, "ncclMemFree"); };
}

End nccl_buffer(const Program&) {
  void* const memory = reinterpret_cast<void*>(filled());
  void* handle = nullptr;
  expect(nccl().get<int(void*, void*, std::size_t, void**)>("ncclCommRegister")(
             nccl().comm, memory, kBytes, &handle) == 0,
         "ncclCommRegister");
  return [=] {
    expect(nccl().get<int(void*, void*)>("ncclCommDeregister")(nccl().comm, handle) == 0,
           "ncclCommDeregister");
  };
}

/// A window that ends with its communicator.
End nccl_window(const Program&) {
  void* const memory = reinterpret_cast<void*>(filled());
  static void* window = nullptr;
  expect(nccl().get<int(void*, void*, std::size_t, void**, int)>("ncclCommWindowRegister")(
             nccl().comm, memory, kBytes, &window, 0) == 0,
         "ncclCommWindowRegister");
  return [] {
    expect(nccl().get<int(void*)>("ncclCommDestroy")(nccl().comm) == 0, "ncclCommDestroy");
  };
}

const struct {
  const char* name;
  End (*begin)(const Program&);
} kWays[] = {{"dma_buf", dma_buf},         {"sync_memops", sync_memops},
             {"multicast", multicast},     {"nccl_memory", nccl_memory},
             {"nccl_buffer", nccl_buffer}, {"nccl_window", nccl_window}};

}  // namespace

int main(int argc, char** argv) {
  for (const auto& way : kWays) {
    if (argc < 2 || std::string(way.name) != argv[1]) continue;
    Program program;
    const End end = way.begin(program);
    program.pause();
    end();
    program.pause();
    return 0;
  }
  return 2;
}
