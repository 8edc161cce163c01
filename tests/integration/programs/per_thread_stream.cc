// Compiled for the per-thread default stream: the calls are the driver's _ptsz variants. Two
// threads use stream 0, each its own: what one has submitted does not wait for what the other has.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include <thread>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

/// A launch that cuGetProcAddress found by the flag, for this program or for the legacy stream.
auto find_launch(cuuint64_t flags) {
  void* function = nullptr;
  CHECK(cuGetProcAddress("cuLaunchKernel", &function, 12000, flags, nullptr));
  return reinterpret_cast<decltype(&cuLaunchKernel)>(function);
}

/// One thread's stream 0 stands still until the other thread, whose stream 0 goes on, lets it go.
void stand_still(const Program& program, CUcontext context, CUdeviceptr data, std::size_t words) {
  const CUdeviceptr flag = allocate(4);
  CHECK(cuMemsetD32(flag, 0, 1));
  CUevent waits = nullptr;
  CHECK(cuEventCreate(&waits, CU_EVENT_DISABLE_TIMING));
  std::thread waiter([&] {
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamWaitValue32(nullptr, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK(cuEventRecord(waits, nullptr));
  });
  waiter.join();
  const auto launch_here = find_launch(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  unsigned long long count = words;
  unsigned round = 9;
  CUdeviceptr out = data;
  void* arguments[] = {&out, &count, &round};
  CHECK(launch_here(program.kernel("mix"), static_cast<unsigned>(words / 128), 1, 1, 128, 1, 1, 0,
                    nullptr, arguments, nullptr));
  CHECK(cuStreamSynchronize(nullptr));
  std::printf("the other thread's stream: %s\n", error_name(cuEventQuery(waits)).c_str());
  CHECK(cuMemsetD32Async(flag, 1, 1, nullptr));
  CHECK(cuEventSynchronize(waits));
  CHECK(cuEventDestroy(waits));
  CHECK(cuMemFree(flag));
}

}  // namespace

int main() {
  Program program;
  CUcontext context;
  CHECK(cuCtxGetCurrent(&context));
  const std::size_t bytes = 4 << 20, words = bytes / 4;
  const CUdeviceptr blocks[2] = {allocate(bytes), allocate(bytes)};
  const auto work = [&](int i, unsigned round) {
    CHECK(cuCtxSetCurrent(context));
    if (round == 0) CHECK(cuMemsetD32Async(blocks[i], i, words, nullptr));
    launch(program.kernel("hold"), 1, nullptr, 1'000'000ull);
    launch(program.kernel("mix"), words, nullptr, blocks[i], static_cast<unsigned long long>(words),
           round);
    CHECK(cuStreamSynchronize(nullptr));
  };
  for (unsigned round = 0; round < 4; ++round) {
    std::thread other(work, 1, round);
    work(0, round);
    other.join();
    program.pause();
  }
  stand_still(program, context, blocks[0], words);
  for (const CUdeviceptr block : blocks) {
    print_device("block", block, bytes);
    CHECK(cuMemFree(block));
  }
}
