// A job that holds BYTES of device memory with random content and, ROUNDS times, changes a word in
// each 2 MiB of the first CHANGED percent of it (negative: of every 2 MiB whose number is a
// multiple of −CHANGED), keeps the GPU for BUSY_MS (device time, without work for the host), and is
// then idle for PAUSE_MS. Two of them take turns on a GPU too small for both.
//
// Usage: swap_job BYTES ROUNDS BUSY_MS PAUSE_MS [CHANGED [block|odd|small]]
//
// Without CHANGED: all of it. The memory is one allocation (block), or many: of 3·2ᵏ + 1 MiB (odd),
// or of 40 KiB (small), in each of which at least a word changes. Prints `done` and exits 0 when
// the memory still holds what was written.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/programs/cuda_check.h"

namespace {

constexpr std::size_t kPieceBytes = std::size_t{2} << 20;

/// One allocation, and where its content begins in that of all.
struct Part {
  CUdeviceptr address;
  std::size_t offset, bytes;
};

std::vector<std::size_t> sizes_of(std::size_t bytes, const std::string& layout) {
  constexpr std::size_t kMiB = 1 << 20;
  std::vector<std::size_t> sizes;
  for (std::size_t left = bytes, k = 0; left != 0; k = (k + 1) % 5) {
    const std::size_t wanted = layout == "block" ? bytes
                               : layout == "odd" ? (std::size_t{3} << k) * kMiB + kMiB
                                                 : 40 << 10;
    sizes.push_back(std::min(left, wanted));
    left -= sizes.back();
  }
  return sizes;
}

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
  const std::string layout = argc == 7 ? argv[6] : "block";
  if (argc < 5 || argc > 7 || (layout != "block" && layout != "odd" && layout != "small")) {
    std::fprintf(stderr,
                 "usage: swap_job BYTES ROUNDS BUSY_MS PAUSE_MS [CHANGED [block|odd|small]]\n");
    return 2;
  }
  const std::size_t bytes = std::strtoull(argv[1], nullptr, 10);
  const int rounds = std::atoi(argv[2]);
  std::uint64_t busy_ns = std::strtoull(argv[3], nullptr, 10) * 1'000'000;
  const auto pause = std::chrono::milliseconds(std::atoi(argv[4]));
  const int changed = argc >= 6 ? std::atoi(argv[5]) : 100;

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
  std::vector<Part> parts;
  std::size_t offset = 0;
  for (const std::size_t size : sizes_of(bytes, layout)) {
    parts.push_back({0, offset, size});
    CHECK_CU(cuMemAlloc(&parts.back().address, size));
    offset += size;
  }
  std::mt19937 random(static_cast<unsigned>(bytes));
  std::vector<std::uint32_t> content(bytes / 4);
  for (std::uint32_t& word : content) word = static_cast<std::uint32_t>(random());
  for (const Part& part : parts) {
    CHECK_CU(cuMemcpyHtoD(part.address, content.data() + part.offset / 4, part.bytes));
  }
  void* arguments[] = {&busy_ns};
  for (int round = 0; round < rounds; ++round) {
    for (const Part& part : parts) {
      for (std::size_t at = 0; at < part.bytes; at += kPieceBytes) {
        const std::size_t piece = (part.offset + at) / kPieceBytes;
        const bool changes =
            changed < 0 ? piece % static_cast<std::size_t>(-changed) == 0
                        : (part.offset + at) * 100 < bytes * static_cast<std::size_t>(changed);
        if (!changes) continue;
        // At a place of its own in each round: a chunk that came back stale is seen below.
        const std::size_t word = at / 4 + static_cast<std::size_t>(round);
        std::uint32_t& its = content[part.offset / 4 + word];
        its = ~its;
        CHECK_CU(cuMemsetD32Async(part.address + word * 4, its, 1, nullptr));
      }
    }
    CHECK_CU(cuLaunchKernel(hold, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK_CU(cuCtxSynchronize());
    std::this_thread::sleep_for(pause);
  }
  std::vector<std::uint32_t> found(content.size());
  for (const Part& part : parts) {
    CHECK_CU(cuMemcpyDtoH(found.data() + part.offset / 4, part.address, part.bytes));
  }
  if (found != content) {
    std::fprintf(stderr, "swap_job: the memory holds something else than was written\n");
    return 1;
  }
  for (const Part& part : parts) CHECK_CU(cuMemFree(part.address));
  CHECK_CU(cuDevicePrimaryCtxRelease(device));
  std::puts("done");
  return 0;
}
