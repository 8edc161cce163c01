// Copies on two streams that events order: in on one, work and out on the other.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  Program program;
  const std::size_t bytes = 8 << 20, words = bytes / 4;
  const CUdeviceptr data = allocate(bytes);
  void* host;
  CHECK(cuMemHostAlloc(&host, bytes, 0));
  CUstream in, out;
  CUevent arrived, left;
  CHECK(cuStreamCreate(&in, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&out, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&arrived, CU_EVENT_DEFAULT));
  CHECK(cuEventCreate(&left, CU_EVENT_DEFAULT));
  for (std::uint32_t round = 0; round < 4; ++round) {
    const auto bytes_in = pattern(bytes, round);
    std::copy(bytes_in.begin(), bytes_in.end(), static_cast<unsigned char*>(host));
    CHECK(cuMemcpyHtoDAsync(data, host, bytes, in));
    CHECK(cuEventRecord(arrived, in));
    CHECK(cuStreamWaitEvent(out, arrived, 0));
    launch(program.kernel("mix"), words, out, data, static_cast<unsigned long long>(words), round);
    if (round % 2 == 0)
      program.pause();  // the copy and the kernel may be under way when the pause begins
    CHECK(cuMemcpyDtoHAsync(host, data, bytes, out));
    CHECK(cuEventRecord(left, out));
    CHECK(cuEventSynchronize(left));
    float ms = -1;
    CHECK(cuEventElapsedTime(&ms, arrived, left));
    print_host(ms >= 0 && cuEventQuery(left) == CUDA_SUCCESS ? "ordered" : "out of order", host,
               bytes);
    program.pause();
  }
  for (const CUevent event : {arrived, left}) CHECK(cuEventDestroy(event));
  for (const CUstream stream : {in, out}) CHECK(cuStreamDestroy(stream));
  CHECK(cuMemFreeHost(host));
  CHECK(cuMemFree(data));
}
