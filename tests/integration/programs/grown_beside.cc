// A module with a large variable is loaded, and the process does not use the GPU for a while: its
// neighbour, which is given the GPU, finds no room for all of its memory beside the module, and has
// to let this program run before the module goes again.
#include <chrono>
#include <thread>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr int kRounds = 3;
// Longer than the neighbour takes for what it can do of its load.
constexpr auto kAway = std::chrono::milliseconds(400);
// A variable of 40 MiB, and a kernel that counts in its first word.
constexpr const char* kCode = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 words[10485760] = {1234567};
.visible .entry count(.param .u64 out)
{
  .reg .u64 %address;
  .reg .u32 %word;
  ld.global.u32 %word, [words];
  add.u32 %word, %word, 1;
  st.global.u32 [words], %word;
  ld.param.u64 %address, [out];
  cvta.to.global.u64 %address, %address;
  st.global.u32 [%address], %word;
  ret;
}
)";

}  // namespace

int main() {
  Program program;
  const CUdeviceptr out = allocate(4);
  for (int round = 0; round < kRounds; ++round) {
    program.pause();
    CUmodule module = nullptr;
    CUfunction count = nullptr;
    CHECK(cuModuleLoadData(&module, kCode));
    CHECK(cuModuleGetFunction(&count, module, "count"));
    for (int i = 0; i < 2; ++i) {
      launch(count, 1, nullptr, out);
      std::uint32_t word = 0;
      CHECK(cuMemcpyDtoH(&word, out, 4));
      std::printf("round %d: %u\n", round, word);
      std::this_thread::sleep_for(kAway);
    }
    CHECK(cuModuleUnload(module));
  }
  CHECK(cuMemFree(out));
}
