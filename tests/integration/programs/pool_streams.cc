// Memory that passes from stream to stream through a pool: reused in the order of one stream,
// across streams by an event, in the current pool of the device, with the thread's own stream, and
// until the pool is full, where what is being freed has to be waited for.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kBytes = 2 << 20, kWords = kBytes / 4;

void add_into(Program& program, CUdeviceptr sum, unsigned seed, CUstream stream) {
  CUdeviceptr scratch;
  CHECK(cuMemAllocAsync(&scratch, kBytes, stream));
  CHECK(cuMemsetD32Async(scratch, seed, kWords, stream));
  launch(program.kernel("combine"), kWords, stream, sum, sum, scratch,
         static_cast<unsigned long long>(kWords), seed);
  CHECK(cuMemFreeAsync(scratch, stream));
}

}  // namespace

int main() {
  Program program;
  CUstream streams[3];
  CUdeviceptr sums[3];
  for (int i = 0; i < 3; ++i) {
    CHECK(cuStreamCreate(&streams[i], i == 2 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocAsync(&sums[i], kBytes, streams[i]));
    CHECK(cuMemsetD32Async(sums[i], static_cast<unsigned>(i), kWords, streams[i]));
  }
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {program.device()}};
  CUmemoryPool pool, standard, current;
  CHECK(cuMemPoolCreate(&pool, &props));
  CHECK(cuDeviceGetDefaultMemPool(&standard, program.device()));
  CUevent event;
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (unsigned round = 0; round < 3; ++round) {
    CHECK(cuDeviceSetMemPool(program.device(), round % 2 == 0 ? pool : standard));
    CHECK(cuDeviceGetMemPool(&current, program.device()));
    std::printf("current: %s\n", current == standard ? "default" : "own");
    for (unsigned i = 0; i < 30; ++i)
      add_into(program, sums[i % 3], round * 100 + i, streams[i % 3]);
    CHECK(cuStreamSynchronize(streams[2]));
    add_into(program, sums[2], round, CU_STREAM_PER_THREAD);
    CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    // What stream 0 made, stream 1 reads and frees.
    CUdeviceptr passed;
    CHECK(cuMemAllocAsync(&passed, kBytes, streams[0]));
    CHECK(cuMemcpyDtoDAsync(passed, sums[0], kBytes, streams[0]));
    CHECK(cuEventRecord(event, streams[0]));
    CHECK(cuStreamWaitEvent(streams[1], event, 0));
    launch(program.kernel("combine"), kWords, streams[1], sums[1], sums[1], passed,
           static_cast<unsigned long long>(kWords), 5u);
    CHECK(cuMemFreeAsync(passed, streams[1]));
    CHECK(cuCtxSynchronize());
    program.pause();
  }
  // A stream that goes while memory that it frees is still in use.
  CUstream passing;
  CHECK(cuStreamCreate(&passing, CU_STREAM_NON_BLOCKING));
  CUdeviceptr left;
  CHECK(cuMemAllocAsync(&left, kBytes, passing));
  launch(program.kernel("hold"), 1, passing, 20'000'000ull);
  CHECK(cuMemsetD32Async(left, 1, kWords, passing));
  CHECK(cuMemFreeAsync(left, passing));
  CHECK(cuStreamDestroy(passing));
  CHECK(cuMemAllocAsync(&left, kBytes, streams[0]));
  CHECK(cuMemsetD32Async(left, 77, kWords, streams[0]));
  CHECK(cuCtxSynchronize());
  print_device("left", left, kBytes);
  CHECK(cuMemFree(left));
  CHECK(cuDeviceSetMemPool(program.device(), standard));
  CHECK(cuMemPoolDestroy(pool));
  for (int i = 0; i < 3; ++i) {
    print_device("sum", sums[i], kBytes);
    CHECK(cuMemFreeAsync(sums[i], streams[i]));
    CHECK(cuStreamDestroy(streams[i]));
  }
  CHECK(cuEventDestroy(event));
}
