// Two contexts beside the primary one, each with its own memory and module; one is destroyed while
// paged out.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

#include "tests/integration/programs/kernels.ptx.h"

namespace {

struct Side {
  CUcontext context;
  CUfunction mix;
  CUdeviceptr data;
};

constexpr std::size_t kBytes = 6 << 20, kWords = kBytes / 4;

Side make_side(CUdevice device, unsigned seed) {
  Side side;
  CHECK(cuCtxCreate(&side.context, nullptr, 0, device));
  CUmodule module;
  CHECK(cuModuleLoadData(&module, kernels_ptx));
  CHECK(cuModuleGetFunction(&side.mix, module, "mix"));
  side.data = allocate(kBytes);
  CHECK(cuMemsetD32(side.data, seed, kWords));
  return side;
}

}  // namespace

int main() {
  Program program;
  Side sides[] = {make_side(program.device(), 1), make_side(program.device(), 2)};
  for (unsigned round = 0; round < 3; ++round) {
    program.pause();
    for (const Side& side : sides) {
      CHECK(cuCtxPushCurrent(side.context));
      launch(side.mix, kWords, nullptr, side.data, static_cast<unsigned long long>(kWords), round);
      CHECK(cuCtxPopCurrent(nullptr));
    }
    CHECK(cuCtxSetCurrent(sides[1].context));
    CHECK(cuCtxSynchronize());
  }
  print_device("second", sides[1].data, kBytes);
  CHECK(cuCtxSetCurrent(sides[0].context));
  print_device("first", sides[0].data, kBytes);
  program.pause();
  CHECK(cuCtxDestroy(sides[0].context));
  CHECK(cuCtxSetCurrent(sides[1].context));
  launch(sides[1].mix, kWords, nullptr, sides[1].data, static_cast<unsigned long long>(kWords), 9u);
  print_device("second", sides[1].data, kBytes);
  CHECK(cuCtxDestroy(sides[1].context));
}
