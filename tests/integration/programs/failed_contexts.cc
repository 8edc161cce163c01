// Contexts that end while their memory is away: the primary one is reset, another one has a sticky
// error and is destroyed. Memory of a third goes through all of it.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

#include "tests/integration/programs/kernels.ptx.h"

namespace {

constexpr std::size_t kKept = 72 << 20, kBytes = 6 << 20;  // with the former nobody fits beside us

/// Memory and a kernel of the current context.
struct Side {
  CUfunction mix;
  CUdeviceptr data;
  std::size_t bytes;

  explicit Side(std::size_t size, unsigned seed) : data(allocate(size)), bytes(size) {
    CUmodule module;
    CUfunction fill;
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleGetFunction(&mix, module, "mix"));
    CHECK(cuModuleGetFunction(&fill, module, "fill"));
    launch(fill, size / 16, nullptr, data, static_cast<unsigned long long>(size / 16), seed);
  }
  void run(unsigned round) const {
    launch(mix, bytes / 4, nullptr, data, static_cast<unsigned long long>(bytes / 4), round);
    CHECK(cuCtxSynchronize());
  }
  void print(const char* name) const { print_device(name, data, bytes); }
};

CUcontext create(CUdevice device) {
  CUcontext context;
  CHECK(cuCtxCreate(&context, nullptr, 0, device));
  return context;
}

void reset_primary(Program& program, unsigned round) {
  CUcontext primary;
  CHECK(cuDevicePrimaryCtxRetain(&primary, program.device()));
  CHECK(cuCtxSetCurrent(primary));
  const Side side(kBytes, round);
  side.run(round);
  program.pause();
  side.print("of the primary context");
  program.pause();
  CHECK(cuDevicePrimaryCtxReset(program.device()));
  unsigned flags = 0;
  int active = 1;
  CHECK(cuDevicePrimaryCtxGetState(program.device(), &flags, &active));
  std::printf("after its reset: %s\n", active == 0 ? "not active" : "active");
}

/// What calls answer in a context that has failed.
void print_answers(CUdeviceptr data) {
  constexpr std::size_t kTooMuch = std::size_t{1} << 50;
  unsigned word = 0;
  CUdeviceptr more = 5;
  std::size_t pitch = 0;
  std::size_t free = 0, total = 0;
  CUstream stream = nullptr;
  std::printf("synchronize %s\n", error_name(cuCtxSynchronize()).c_str());
  std::printf("copy %s\n", error_name(cuMemcpyDtoH(&word, data, sizeof word)).c_str());
  std::printf("fill %s\n", error_name(cuMemsetD32(data, 1, 1)).c_str());
  std::printf("allocate %s\n", error_name(cuMemAlloc(&more, kBytes)).c_str());
  std::printf("allocate little %s\n", error_name(cuMemAlloc(&more, 1)).c_str());
  std::printf("allocate nothing %s\n", error_name(cuMemAlloc(&more, 0)).c_str());
  std::printf("allocate in order %s\n", error_name(cuMemAllocAsync(&more, 1, nullptr)).c_str());
  std::printf("managed %s\n", error_name(cuMemAllocManaged(&more, kBytes, 1)).c_str());
  for (const std::size_t bytes : {kTooMuch, ~std::size_t{0}}) {
    std::printf("allocate too much %s\n", error_name(cuMemAlloc(&more, bytes)).c_str());
    std::printf("rows of too much %s\n",
                error_name(cuMemAllocPitch(&more, &pitch, bytes, 2, 4)).c_str());
    std::printf("too much in order %s\n",
                error_name(cuMemAllocAsync(&more, bytes, nullptr)).c_str());
    std::printf("too much managed %s\n", error_name(cuMemAllocManaged(&more, bytes, 1)).c_str());
  }
  std::printf("memory %s\n", error_name(cuMemGetInfo(&free, &total)).c_str());
  std::printf("stream %s\n", error_name(cuStreamCreate(&stream, 0)).c_str());
}

void fail(Program& program, CUcontext context, CUcontext kept) {
  CHECK(cuCtxSetCurrent(context));
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const Side side(kBytes, 3);
  CUdeviceptr of_pool = 0;
  CHECK(cuMemAllocAsync(&of_pool, kBytes, nullptr));
  side.run(1);
  program.pause();
  side.print("of one that will fail");
  const CUdeviceptr nowhere = 256;
  launch(side.mix, 128, nullptr, nowhere, 128ull, 1u);
  print_answers(side.data);
  program.pause();
  print_answers(side.data);
  CHECK(cuCtxSetCurrent(kept));  // which is well, and its stream is not
  CUdeviceptr more = 5;
  std::printf("in order there %s\n", error_name(cuMemAllocAsync(&more, 1, stream)).c_str());
  CHECK(cuCtxSetCurrent(context));
  for (int i = 0; i < 2; ++i) {
    std::printf("free in order %s\n", error_name(cuMemFreeAsync(side.data, nullptr)).c_str());
    std::printf("free %s\n", error_name(cuMemFree(side.data)).c_str());
    std::printf("free of a pool's %s\n", error_name(cuMemFree(of_pool)).c_str());
  }
}

}  // namespace

int main() {
  Program program(false);
  const CUcontext kept = create(program.device());
  const Side side(kKept, 1);
  for (unsigned round = 0; round < 2; ++round) {
    reset_primary(program, round);
    CHECK(cuCtxSetCurrent(kept));
    side.run(round);
  }
  for (unsigned round = 2; round < 4; ++round) {
    const CUcontext failing = create(program.device());
    fail(program, failing, kept);
    CHECK(cuCtxSetCurrent(kept));
    side.run(round);
    program.pause();
    CHECK(cuCtxDestroy(failing));
    side.print("kept");
  }
  CHECK(cuCtxDestroy(kept));
}
