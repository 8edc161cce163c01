// A pool of another process, imported, whose memory a second device of this process may access: set
// before and after an allocation was imported, and in force whenever the memory has come back.
// Runner: gpus=2
#include "tests/integration/programs/channel.h"
#include "tests/integration/programs/handles.h"
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

#include "tests/integration/programs/kernels.ptx.h"

namespace {

constexpr std::size_t kBytes = 4 << 20, kWords = kBytes / 4;

/// Has a pool on device 0 and two allocations in it, which the other process changes.
int child(const char* socket) {
  Program program;
  Channel parent(socket);
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {program.device()}};
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemoryPool pool;
  CHECK(cuMemPoolCreate(&pool, &props));
  int fd = -1;
  CHECK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  parent.send_fd(fd);
  close(fd);
  CUdeviceptr data[2];
  for (unsigned i = 0; i < 2; ++i) {
    CHECK(cuMemAllocFromPoolAsync(&data[i], kBytes, pool, nullptr));
    CHECK(cuMemsetD32Async(data[i], 10 + i, kWords, nullptr));
    CHECK(cuCtxSynchronize());
    CUmemPoolPtrExportData name;
    CHECK(cuMemPoolExportPointer(&name, data[i]));
    parent.send(name);
  }
  parent.wait();
  print_device("owner: first", data[0], kBytes);
  print_device("owner: second", data[1], kBytes);
  parent.tell();
  parent.wait();
  for (const CUdeviceptr one : data) CHECK(cuMemFree(one));
  CHECK(cuMemPoolDestroy(pool));
  return 0;
}

void let(CUmemoryPool pool, CUdevice device, CUmemAccess_flags flags) {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {device}}, flags};
  CHECK(cuMemPoolSetAccess(pool, &access, 1));
  CUmemLocation where{CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  CUmemAccess_flags seen = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CHECK(cuMemPoolGetAccess(&seen, pool, &where));
  std::printf("device %d: access %d\n", device, seen);
}

CUdeviceptr import(CUmemoryPool pool, CUmemPoolPtrExportData name) {
  CUdeviceptr address;
  CHECK(cuMemPoolImportPointer(&address, pool, &name));
  return address;
}

}  // namespace

int main(int argc, char** argv) {
  setenv("PLEXRL_TEST_BALLAST", "20971520", 1);  // both processes of the job have to fit together
  if (argc > 2) return child(argv[2]);
  Program program;
  Channel owner = Channel::to_child();
  const int fd = owner.receive_fd();
  CUmemoryPool pool;
  CHECK(cuMemPoolImportFromShareableHandle(&pool, as_handle(fd),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  close(fd);
  CUcontext first, second;
  CUdevice far;
  CHECK(cuCtxGetCurrent(&first));
  CHECK(cuDeviceGet(&far, 1));
  CHECK(cuDevicePrimaryCtxRetain(&second, far));
  const CUdeviceptr before = import(pool, owner.receive<CUmemPoolPtrExportData>());
  let(pool, far, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  const CUdeviceptr after = import(pool, owner.receive<CUmemPoolPtrExportData>());
  CHECK(cuCtxSetCurrent(second));
  CUmodule module;
  CUfunction mix, combine;
  CHECK(cuModuleLoadData(&module, kernels_ptx));
  CHECK(cuModuleGetFunction(&mix, module, "mix"));
  CHECK(cuModuleGetFunction(&combine, module, "combine"));
  const CUdeviceptr own = allocate(kBytes);
  CHECK(cuMemsetD32(own, 1, kWords));
  for (unsigned round = 0; round < 3; ++round) {
    launch(mix, kWords, nullptr, before, static_cast<unsigned long long>(kWords), round);
    launch(combine, kWords, nullptr, after, after, before, static_cast<unsigned long long>(kWords),
           round + 3);
    launch(combine, kWords, nullptr, own, own, after, static_cast<unsigned long long>(kWords),
           round + 5);
    CHECK(cuCtxSynchronize());
    program.pause();
  }
  print_device("own", own, kBytes);
  owner.tell();
  owner.wait();
  CHECK(cuMemFree(own));
  CHECK(cuModuleUnload(module));
  CHECK(cuCtxSetCurrent(first));
  CHECK(cuDevicePrimaryCtxRelease(far));
  print_device("first", before, kBytes);
  print_device("second", after, kBytes);
  CHECK(cuMemFree(before));
  CHECK(cuMemFree(after));
  CHECK(cuMemPoolDestroy(pool));
  owner.tell();
  owner.join_child();
}
