// Memory that was freed to a pool and synchronised is there for what the program allocates next,
// from elsewhere, though what is left beside it would not do.
#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

namespace {

constexpr std::size_t kLeft = 40 << 20;  // beside the rest of the program's memory
constexpr std::size_t kMost = 24 << 20;  // there is no second one in it

void say(const char* kind, CUresult result) {
  std::printf("%s: %s\n", kind, error_name(result).c_str());
}

class Pool {
 public:
  Pool() { CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING)); }
  ~Pool() { CHECK(cuStreamDestroy(stream_)); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  CUstream stream() const { return stream_; }
  /// Takes memory from the device's pool, uses it and frees it.
  void use() const {
    CUdeviceptr pooled;
    CHECK(cuMemAllocAsync(&pooled, kMost, stream_));
    CHECK(cuMemsetD32Async(pooled, 1, kMost / 4, stream_));
    CHECK(cuMemFreeAsync(pooled, stream_));
    CHECK(cuStreamSynchronize(stream_));
  }

 private:
  CUstream stream_;
};

void take_ordinary() {
  CUdeviceptr address = 0;
  const CUresult result = cuMemAlloc(&address, kMost);
  say("cuMemAlloc", result);
  if (result != CUDA_SUCCESS) return;
  CHECK(cuMemsetD32(address, 2, kMost / 4));
  print_device("cuMemAlloc", address, kMost);
  CHECK(cuMemFree(address));
}

void take_handle(CUdevice device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = cuMemCreate(&handle, kMost, &properties, 0);
  say("cuMemCreate", result);
  if (result == CUDA_SUCCESS) CHECK(cuMemRelease(handle));
}

void take_from_another_pool(CUdevice device, CUstream stream) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  CUmemoryPool pool;
  CHECK(cuMemPoolCreate(&pool, &properties));
  CUdeviceptr address = 0;
  const CUresult result = cuMemAllocFromPoolAsync(&address, kMost, pool, stream);
  say("another pool", result);
  if (result == CUDA_SUCCESS) CHECK(cuMemFreeAsync(address, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemPoolDestroy(pool));
}

}  // namespace

int main() {
  Program program;
  std::size_t free_bytes, total;
  CHECK(cuMemGetInfo(&free_bytes, &total));
  const std::size_t rest = (free_bytes - kLeft) & ~std::size_t{(4 << 20) - 1};
  const CUdeviceptr filler = allocate(rest);
  CHECK(cuMemsetD32(filler, 7, rest / 4));
  {
    const Pool pool;
    for (int round = 0; round < 2; ++round) {
      program.pause();
      pool.use();
      take_ordinary();
      pool.use();
      take_handle(program.device());
      pool.use();
      take_from_another_pool(program.device(), pool.stream());
    }
    program.pause();
  }
  CHECK(cuMemFree(filler));
}
