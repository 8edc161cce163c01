// A job whose GPU idles while it asks a tool, as RL jobs do: ROUNDS times a kernel of BUSY_MS, then
// CALLS requests of 4 KiB, one after the other, to a child process over a local socket, which works
// on each for about as long as on the others and answers.
//
// Usage: gap_job ROUNDS BUSY_MS CALLS. Prints the ns that all rounds took.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/bench/programs/cuda_check.h"

namespace {

constexpr std::size_t kRequestBytes = 4096;
using Request = std::array<std::uint8_t, kRequestBytes>;

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

bool read_all(int fd, Request& request) {
  std::size_t has = 0;
  while (has < request.size()) {
    const ssize_t got = ::read(fd, request.data() + has, request.size() - has);
    if (got <= 0) return false;
    has += static_cast<std::size_t>(got);
  }
  return true;
}

/// About a millisecond of work, less than what most tools need.
void work_on(Request& request) {
  for (int turn = 0; turn < 250; ++turn) {
    std::uint32_t sum = 1;
    for (std::uint8_t& byte : request) byte = static_cast<std::uint8_t>(sum = sum * 31 + byte);
  }
}

int start_tool() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) std::exit(1);
  if (::fork() == 0) {
    ::close(pair[0]);
    Request request;
    while (read_all(pair[1], request)) {
      work_on(request);
      if (::write(pair[1], request.data(), request.size()) < 0) break;
    }
    ::_exit(0);
  }
  ::close(pair[1]);
  return pair[0];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: gap_job ROUNDS BUSY_MS CALLS\n");
    return 2;
  }
  const int rounds = std::atoi(argv[1]);
  std::uint64_t busy_ns = std::strtoull(argv[2], nullptr, 10) * 1'000'000;
  const int calls = std::atoi(argv[3]);
  const int tool = start_tool();  // before CUDA: a fork of a process that uses it is another thing

  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction hold;
  CHECK_CU(cuInit(0));
  CHECK_CU(cuDeviceGet(&device, 0));
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
  CHECK_CU(cuCtxSetCurrent(context));
  CHECK_CU(cuModuleLoadData(&module, kHoldKernel));
  CHECK_CU(cuModuleGetFunction(&hold, module, "hold"));
  const auto begin = std::chrono::steady_clock::now();
  Request request{};
  for (int round = 0; round < rounds; ++round) {
    void* arguments[] = {&busy_ns};
    CHECK_CU(cuLaunchKernel(hold, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK_CU(cuCtxSynchronize());
    for (int call = 0; call < calls; ++call) {
      if (::write(tool, request.data(), request.size()) < 0 || !read_all(tool, request)) return 1;
    }
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  std::printf("%lld\n", static_cast<long long>(std::chrono::nanoseconds(took).count()));
  return 0;
}
