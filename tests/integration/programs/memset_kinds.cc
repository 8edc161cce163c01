// Every width of memset, one- and two-dimensional, plain and on a stream.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const std::size_t bytes = 4 << 20, pitch = 4096;
  const CUdeviceptr data = allocate(bytes);
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuMemsetD8(data, 0x11, bytes));
  program.pause();
  CHECK(cuMemsetD16(data + 2, 0x2233, 1000));
  CHECK(cuMemsetD32(data + 4096, 0x44556677, 3000));
  CHECK(cuMemsetD2D8(data + (1 << 20), pitch, 0x88, 100, 50));
  program.pause();
  CHECK(cuMemsetD2D16(data + (1 << 20) + 512, pitch, 0x99aa, 60, 40));
  CHECK(cuMemsetD2D32(data + (1 << 20) + 1024, pitch, 0xbbccddee, 30, 20));
  CHECK(cuCtxSynchronize());
  CHECK(cuMemsetD8Async(data + (2 << 20) + 1, 0x12, 333, stream));
  CHECK(cuMemsetD16Async(data + (2 << 20) + 1000, 0x3456, 444, stream));
  CHECK(cuMemsetD32Async(data + (2 << 20) + 4000, 0x789abcde, 555, stream));
  program.pause();
  CHECK(cuMemsetD2D8Async(data + (3 << 20), pitch, 0x21, 9, 9, stream));
  CHECK(cuMemsetD2D16Async(data + (3 << 20) + 256, pitch, 0x4321, 8, 8, stream));
  CHECK(cuMemsetD2D32Async(data + (3 << 20) + 512, pitch, 0x87654321, 7, 7, stream));
  CHECK(cuStreamSynchronize(stream));
  print_device("data", data, bytes);
  CHECK(cuStreamDestroy(stream));
  CHECK(cuMemFree(data));
}
