// Every direction and shape of a synchronous copy.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

CUDA_MEMCPY2D copy_2d(CUdeviceptr from, CUdeviceptr to, std::size_t pitch) {
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.srcPitch = pitch;
  copy.srcXInBytes = 16;
  copy.srcY = 3;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  copy.dstPitch = 2 * pitch;
  copy.WidthInBytes = 300;
  copy.Height = 40;
  return copy;
}

}  // namespace

int main() {
  Program program;
  const std::size_t bytes = 3 << 20;
  const CUdeviceptr a = allocate(bytes), b = allocate(bytes), c = allocate(bytes);
  const auto data = pattern(bytes, 5);
  CHECK(cuMemcpyHtoD(a, data.data(), bytes));
  CHECK(cuMemsetD8(b, 0, bytes));
  CHECK(cuMemsetD8(c, 0, bytes));
  program.pause();
  CHECK(cuMemcpyDtoD(b, a + 4096, bytes - 4096));
  program.pause();
  CHECK(cuMemcpy(c, b, bytes / 2));  // unified addressing: the driver finds out where each end is
  const CUDA_MEMCPY2D plane = copy_2d(a, c + bytes / 2, 1024);
  CHECK(cuMemcpy2D(&plane));
  program.pause();
  CUDA_MEMCPY3D box = {};
  std::vector<unsigned char> host(64 * 32 * 16, 0);
  box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = b;
  box.srcPitch = 512;
  box.srcHeight = 64;
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = host.data();
  box.dstPitch = 64;
  box.dstHeight = 32;
  box.WidthInBytes = 60;
  box.Height = 30;
  box.Depth = 16;
  CHECK(cuMemcpy3D(&box));
  print_host("box", host.data(), host.size());
  print_device("a", a, bytes);
  print_device("b", b, bytes);
  print_device("c", c, bytes);
  for (const CUdeviceptr block : {a, b, c}) CHECK(cuMemFree(block));
}
