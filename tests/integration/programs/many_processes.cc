// Many processes that begin with CUDA at the same moment: `many_processes COUNT`. Each computes a
// little and checks it; prints how many were right.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

#include "tests/integration/programs/kernels.ptx.h"

namespace {

constexpr std::size_t kWords = 1024;

/// Begins when the other end of the pipe at `gate` is closed.
int one_of_many(int gate) {
  char nothing;
  if (read(gate, &nothing, 1) != 0) return 1;
  CHECK(cuInit(0));
  CUdevice device;
  CUcontext context;
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CUmodule module;
  CUfunction mix;
  CHECK(cuModuleLoadData(&module, kernels_ptx));
  CHECK(cuModuleGetFunction(&mix, module, "mix"));
  const auto seed = static_cast<std::uint32_t>(getpid());
  const CUdeviceptr data = allocate(kWords * 4);
  CHECK(cuMemsetD32(data, seed, kWords));
  launch(mix, kWords, nullptr, data, static_cast<unsigned long long>(kWords), 1u);
  std::vector<std::uint32_t> words(kWords);
  CHECK(cuMemcpyDtoH(words.data(), data, kWords * 4));
  CHECK(cuMemFree(data));
  CHECK(cuModuleUnload(module));
  CHECK(cuDevicePrimaryCtxRelease(device));
  return words == std::vector<std::uint32_t>(kWords, hash32(seed + 1)) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) return one_of_many(std::atoi(argv[2]));
  const int count = argc == 2 ? std::atoi(argv[1]) : 0;
  int gate[2];
  if (count <= 0 || pipe(gate) != 0 || dup2(gate[0], 0) != 0) return 2;
  close(gate[0]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addclose(&actions, gate[1]);
  char program[] = "/proc/self/exe", role[] = "one", number[] = "0";
  char* const arguments[] = {program, role, number, nullptr};
  for (int i = 0; i < count; ++i) {
    pid_t child = 0;
    if (posix_spawn(&child, program, &actions, nullptr, arguments, environ) != 0) return 1;
  }
  posix_spawn_file_actions_destroy(&actions);
  close(gate[1]);
  int right = 0, status = 0;
  while (wait(&status) > 0) right += status == 0 ? 1 : 0;
  std::printf("%d of %d right\n", right, count);
}
