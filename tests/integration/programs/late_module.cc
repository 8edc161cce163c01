// A module with a variable of 40 MiB that is loaded, used and unloaded after the program has begun,
// with a pause in each state. For run_figures.py: the driver tells one figure for all that it has.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr const char* kCode = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 late_words[10485760] = {1234567};
)";

}  // namespace

int main() {
  Program program;
  program.pause();
  CUmodule module;
  CUdeviceptr words;
  std::size_t bytes;
  CHECK(cuModuleLoadData(&module, kCode));
  CHECK(cuModuleGetGlobal(&words, &bytes, module, "late_words"));
  print_device("late_words", words, bytes);
  program.pause();
  CHECK(cuModuleUnload(module));
  program.pause();
}
