// A job that holds BYTES of device memory and, ROUNDS times, keeps the GPU for BUSY_MS (device
// time, without work for the host) and is then idle for PAUSE_MS. Two of them take turns on a GPU
// too small for both. Usage: swap_job BYTES ROUNDS BUSY_MS PAUSE_MS Prints `done` and exits 0 when
// the memory still holds what was written.

#include <chrono>
#include <cstdint>
#include <thread>

#include "tests/bench/programs/cuda_check.h"

namespace {

constexpr char kHoldKernel[] = R"(
.version 7.5
.target sm_75
.address_size 64
.visible .entry hold(.param .u64 duration)
{
  .reg .u64 %rd<4>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [duration];
  mov.u64 %rd2, %globaltimer;
AGAIN:
  nanosleep.u32 50000;
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd3, %rd3, %rd2;
  setp.lt.u64 %p1, %rd3, %rd1;
  @%p1 bra AGAIN;
  ret;
}
)";

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: swap_job BYTES ROUNDS BUSY_MS PAUSE_MS\n");
    return 2;
  }
  const std::size_t bytes = std::strtoull(argv[1], nullptr, 10);
  const int rounds = std::atoi(argv[2]);
  std::uint64_t busy_ns = std::strtoull(argv[3], nullptr, 10) * 1'000'000;
  const auto pause = std::chrono::milliseconds(std::atoi(argv[4]));

  CUdevice device;
  CUcontext context;
  CHECK_CU(cuInit(0));
  CHECK_CU(cuDeviceGet(&device, 0));
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
  CHECK_CU(cuCtxSetCurrent(context));
  CUmodule module;
  CUfunction hold;
  CHECK_CU(cuModuleLoadData(&module, kHoldKernel));
  CHECK_CU(cuModuleGetFunction(&hold, module, "hold"));
  CUdeviceptr memory;
  CHECK_CU(cuMemAlloc(&memory, bytes));
  CHECK_CU(cuMemsetD32(memory, 0, bytes / 4));
  void* arguments[] = {&busy_ns};
  for (int round = 0; round < rounds; ++round) {
    // One word per round at a place of its own: the digest below sees a chunk that came back stale.
    const std::size_t word =
        static_cast<std::size_t>(round) * (bytes / 4 / static_cast<std::size_t>(rounds));
    CHECK_CU(cuMemsetD32(memory + word * 4, static_cast<unsigned>(round) + 1, 1));
    CHECK_CU(cuLaunchKernel(hold, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK_CU(cuCtxSynchronize());
    std::this_thread::sleep_for(pause);
  }
  for (int round = 0; round < rounds; ++round) {
    const std::size_t word =
        static_cast<std::size_t>(round) * (bytes / 4 / static_cast<std::size_t>(rounds));
    std::uint32_t value = 0;
    CHECK_CU(cuMemcpyDtoH(&value, memory + word * 4, sizeof value));
    if (value != static_cast<std::uint32_t>(round) + 1) {
      std::fprintf(stderr, "swap_job: word of round %d holds %u\n", round, value);
      return 1;
    }
  }
  CHECK_CU(cuMemFree(memory));
  CHECK_CU(cuDevicePrimaryCtxRelease(device));
  std::puts("done");
  return 0;
}
