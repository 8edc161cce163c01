// Pools of a device that the program has no context on, used from another device: one made before
// there was any context, and the device's default one. Then with a context there, and after its
// end. Runner: gpus=2
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 6 << 20, kWords = kBytes / 4;
constexpr std::size_t kBallastBytes = 80 << 20;  // so that the other device is too small for both

CUmemoryPool make_pool(CUdevice device) {
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  CUmemoryPool pool;
  CHECK(cuMemPoolCreate(&pool, &props));
  cuuint64_t keep = ~cuuint64_t{0};
  CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  return pool;
}

void let(CUmemoryPool pool, CUdevice device, CUmemAccess_flags flags) {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {device}}, flags};
  CHECK(cuMemPoolSetAccess(pool, &access, 1));
}

void show_access(const char* name, CUmemoryPool pool, CUdevice device) {
  CUmemLocation where{CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CHECK(cuMemPoolGetAccess(&flags, pool, &where));
  std::printf("%s: access %d\n", name, flags);
}

}  // namespace

int main() {
  CHECK(cuInit(0));
  CUdevice near, far;
  CHECK(cuDeviceGet(&near, 0));
  CHECK(cuDeviceGet(&far, 1));
  const CUmemoryPool early = make_pool(near), elsewhere = make_pool(far);
  let(elsewhere, near, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CUmemoryPool standard;
  CHECK(cuDeviceGetDefaultMemPool(&standard, far));
  let(standard, near, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

  Program program;
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr own, remote, other, ballast;
  CHECK(cuMemAllocFromPoolAsync(&ballast, kBallastBytes, elsewhere, stream));
  CHECK(cuMemsetD32Async(ballast, 0xba11, kBallastBytes / 4, stream));
  CHECK(cuMemAllocFromPoolAsync(&own, kBytes, early, stream));
  CHECK(cuMemAllocFromPoolAsync(&remote, kBytes, elsewhere, stream));
  CHECK(cuMemAllocFromPoolAsync(&other, kBytes, standard, stream));
  for (const CUdeviceptr data : {own, remote, other}) {
    CHECK(cuMemsetD32Async(data, static_cast<unsigned>(data == own ? 1 : 2), kWords, stream));
  }
  int ordinal = -1;
  CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, remote));
  std::printf("on device %d\n", ordinal);
  const auto work = [&](unsigned round) {
    launch(program.kernel("mix"), kWords, stream, remote, static_cast<unsigned long long>(kWords),
           round);
    launch(program.kernel("combine"), kWords, stream, own, remote, other,
           static_cast<unsigned long long>(kWords), round + 3);
    launch(program.kernel("mix"), kWords, stream, other, static_cast<unsigned long long>(kWords),
           round + 9);
    CHECK(cuStreamSynchronize(stream));
  };
  work(0);
  program.pause();
  work(1);
  show_access("elsewhere", elsewhere, near);
  print_device("own", own, kBytes);
  print_device("remote", remote, kBytes);
  print_device("other", other, kBytes);

  // With a context of its own, and when that has gone again.
  CUcontext here, there;
  CHECK(cuCtxGetCurrent(&here));
  CHECK(cuDevicePrimaryCtxRetain(&there, far));
  CHECK(cuCtxSetCurrent(there));
  CHECK(cuMemsetD32(remote + kBytes / 2, 77, kWords / 4));
  CHECK(cuCtxSynchronize());
  CHECK(cuCtxSetCurrent(here));
  program.pause();
  work(2);
  CHECK(cuDevicePrimaryCtxRelease(far));
  program.pause();
  work(3);
  print_device("own", own, kBytes);
  print_device("remote", remote, kBytes);
  print_device("other", other, kBytes);
  print_device("ballast there", ballast, kBallastBytes);
  for (const CUdeviceptr data : {own, remote, other, ballast}) {
    CHECK(cuMemFreeAsync(data, stream));
  }
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemPoolDestroy(early));
  CHECK(cuMemPoolDestroy(elsewhere));
  CHECK(cuStreamDestroy(stream));
}
