// Two contexts in one process on the same memory of virtual memory management: mapped while one of
// them is current, written by each in turn in the order of an event, grown while the other is
// current, and still there when the one that mapped it first is gone.
#include "tests/integration/programs/handles.h"

using namespace plexrl::integration;

#include "tests/integration/programs/kernels.ptx.h"

namespace {

constexpr std::size_t kBytes = 4 << 20, kWords = kBytes / 4;

struct Side {
  CUcontext context;
  CUstream stream;
  CUevent done;
  CUfunction mix, combine;
};

Side make_side(CUdevice device) {
  Side side;
  CHECK(cuCtxCreate(&side.context, nullptr, 0, device));
  CHECK(cuStreamCreate(&side.stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&side.done, CU_EVENT_DISABLE_TIMING));
  CUmodule module;
  CHECK(cuModuleLoadData(&module, kernels_ptx));
  CHECK(cuModuleGetFunction(&side.mix, module, "mix"));
  CHECK(cuModuleGetFunction(&side.combine, module, "combine"));
  return side;
}

CUdeviceptr map_new(CUdevice device) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  CUmemGenericAllocationHandle handle;
  CHECK(cuMemCreate(&handle, kBytes, &prop, 0));
  const CUdeviceptr address = map_handle(device, handle, kBytes);
  CHECK(cuMemRelease(handle));  // the mapping keeps the memory
  return address;
}

void unmap(CUdeviceptr address) {
  CHECK(cuMemUnmap(address, kBytes));
  CHECK(cuMemAddressFree(address, kBytes));
}

/// `first` mixes `a`, then `second`, in its own context and stream, adds it to `b`.
void pass_on(const Side& first, const Side& second, CUdeviceptr a, CUdeviceptr b, unsigned round) {
  CHECK(cuCtxSetCurrent(first.context));
  launch(first.mix, kWords, first.stream, a, static_cast<unsigned long long>(kWords), round);
  CHECK(cuEventRecord(first.done, first.stream));
  CHECK(cuCtxSetCurrent(second.context));
  CHECK(cuStreamWaitEvent(second.stream, first.done, 0));
  launch(second.combine, kWords, second.stream, b, b, a, static_cast<unsigned long long>(kWords),
         3u);
  CHECK(cuStreamSynchronize(second.stream));
}

}  // namespace

int main() {
  Program program;
  const Side left = make_side(program.device());
  const CUdeviceptr a = map_new(program.device());
  const Side right = make_side(program.device());
  const CUdeviceptr b = map_new(program.device());
  CHECK(cuMemsetD32(a, 1, kWords));
  CHECK(cuMemsetD32(b, 2, kWords));
  CHECK(cuCtxSynchronize());
  for (unsigned round = 0; round < 2; ++round) {
    program.pause();
    pass_on(left, right, a, b, round);
    program.pause();
    pass_on(right, left, b, a, round + 10);
  }
  print_device("a", a, kBytes);
  CHECK(cuCtxDestroy(left.context));
  program.pause();
  CHECK(cuCtxSetCurrent(right.context));
  launch(right.combine, kWords, right.stream, a, a, b, static_cast<unsigned long long>(kWords), 5u);
  CHECK(cuStreamSynchronize(right.stream));
  print_device("a", a, kBytes);
  print_device("b", b, kBytes);
  unmap(a);
  unmap(b);
  CHECK(cuCtxDestroy(right.context));
}
