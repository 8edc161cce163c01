// A job that holds BYTES of device memory with random content and, ROUNDS times, changes a word in
// each 2 MiB of the first CHANGED percent of it (negative: of every 2 MiB whose number is a
// multiple of −CHANGED), keeps the GPU for BUSY_MS (device time, without work for the host), and is
// then idle for PAUSE_MS. Two of them take turns on a GPU too small for both.
//
// Usage: swap_job BYTES ROUNDS BUSY_MS PAUSE_MS [CHANGED]
//
// Without CHANGED: all of it. Prints `done` and exits 0 when the memory still holds what was
// written.

#include <chrono>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "tests/bench/programs/cuda_check.h"

namespace {

constexpr std::size_t kPieceBytes = std::size_t{2} << 20;

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
  if (argc != 5 && argc != 6) {
    std::fprintf(stderr, "usage: swap_job BYTES ROUNDS BUSY_MS PAUSE_MS [CHANGED]\n");
    return 2;
  }
  const std::size_t bytes = std::strtoull(argv[1], nullptr, 10);
  const int rounds = std::atoi(argv[2]);
  std::uint64_t busy_ns = std::strtoull(argv[3], nullptr, 10) * 1'000'000;
  const auto pause = std::chrono::milliseconds(std::atoi(argv[4]));
  const int changed = argc == 6 ? std::atoi(argv[5]) : 100;

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
  std::mt19937 random(static_cast<unsigned>(bytes));
  std::vector<std::uint32_t> content(bytes / 4);
  for (std::uint32_t& word : content) word = static_cast<std::uint32_t>(random());
  CHECK_CU(cuMemcpyHtoD(memory, content.data(), bytes));
  void* arguments[] = {&busy_ns};
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t piece = 0; piece < bytes / kPieceBytes; ++piece) {
      const bool changes =
          changed < 0 ? piece % static_cast<std::size_t>(-changed) == 0
                      : piece * kPieceBytes * 100 < bytes * static_cast<std::size_t>(changed);
      if (!changes) continue;
      // At a place of its own in each round: a chunk that came back stale is seen below.
      const std::size_t word = piece * kPieceBytes / 4 + static_cast<std::size_t>(round);
      content[word] = ~content[word];
      CHECK_CU(cuMemsetD32Async(memory + word * 4, content[word], 1, nullptr));
    }
    CHECK_CU(cuLaunchKernel(hold, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK_CU(cuCtxSynchronize());
    std::this_thread::sleep_for(pause);
  }
  std::vector<std::uint32_t> found(content.size());
  CHECK_CU(cuMemcpyDtoH(found.data(), memory, bytes));
  if (found != content) {
    std::fprintf(stderr, "swap_job: the memory holds something else than was written\n");
    return 1;
  }
  CHECK_CU(cuMemFree(memory));
  CHECK_CU(cuDevicePrimaryCtxRelease(device));
  std::puts("done");
  return 0;
}
