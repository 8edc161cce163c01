#include "tests/unit/simgpu/api_fixture.h"

namespace plexrl::simgpu {
namespace {

constexpr std::size_t kMiB = 1 << 20;

/// Each test has a pool of its own on a device of 64 MiB.
class PoolTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
    ASSERT_EQ(CUDA_SUCCESS, cuMemPoolCreate(&pool_, &props));
  }
  void TearDown() override {
    if (pool_ != nullptr) {
      EXPECT_EQ(CUDA_SUCCESS, cuMemPoolDestroy(pool_));
    }
    DriverTest::TearDown();
  }
  CUdeviceptr allocate(std::size_t bytes) { return allocate(bytes, stream_); }
  CUdeviceptr allocate(std::size_t bytes, CUstream stream) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&pointer, bytes, pool_, stream));
    return pointer;
  }
  std::uint64_t figure(CUmemPool_attribute attribute) {
    std::uint64_t value = ~0ull;
    EXPECT_EQ(CUDA_SUCCESS, cuMemPoolGetAttribute(pool_, attribute, &value));
    return value;
  }
  /// Holds `stream` up until the returned word is set.
  unsigned* block(CUstream stream) {
    void* host = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuMemHostAlloc(&host, 4096, 0));
    auto* const word = static_cast<unsigned*>(host);
    *word = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(word), 1,
                                                CU_STREAM_WAIT_VALUE_EQ));
    return word;
  }
  static void let_go(unsigned* word) { __atomic_store_n(word, 1u, __ATOMIC_RELEASE); }

  CUmemoryPool pool_ = nullptr;
};

TEST_F(PoolTest, MemoryCanBeUsedInStreamOrder) {
  const CUdeviceptr pointer = allocate(kCount * 4);
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32Async(pointer, 7, kCount, stream_));
  std::vector<unsigned> host(kCount);
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoHAsync(host.data(), pointer, kCount * 4, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemFreeAsync(pointer, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  EXPECT_EQ(all(7), host);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(pointer, stream_)) << "freed twice";
}

TEST_F(PoolTest, TheSameStreamGetsItsFreedMemoryAgainBeforeTheDeviceFreedIt) {
  unsigned* const word = block(stream_);
  const CUdeviceptr first = allocate(40 * kMiB);
  ASSERT_EQ(CUDA_SUCCESS, cuMemFreeAsync(first, stream_));
  EXPECT_EQ(first, allocate(40 * kMiB)) << "64 MiB hold it only once";
  let_go(word);
  EXPECT_EQ(CUDA_SUCCESS, cuMemFreeAsync(first, stream_));
  EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
}

TEST_F(PoolTest, AnotherStreamGetsFreedMemoryBehindTheFree) {
  CUstream other = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr first = allocate(40 * kMiB);
  unsigned* const word = block(stream_);
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32Async(first, 1, 10, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemFreeAsync(first, stream_));
  const CUdeviceptr second = allocate(40 * kMiB, other);
  ASSERT_EQ(second, first);
  ASSERT_EQ(CUDA_SUCCESS, cuMemsetD32Async(second, 2, 10, other));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(other)) << "the free has not come yet";
  let_go(word);
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(other));
  unsigned value = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(&value, second, 4));
  EXPECT_EQ(2u, value);
  EXPECT_EQ(CUDA_SUCCESS, cuMemFreeAsync(second, other));
  EXPECT_EQ(CUDA_SUCCESS, cuStreamDestroy(other));
}

TEST_F(PoolTest, ASynchronisationGivesBackWhatTheThresholdDoesNotKeep) {
  const CUdeviceptr pointer = allocate(10 * kMiB);
  EXPECT_EQ(10 * kMiB, figure(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  EXPECT_EQ(10 * kMiB, figure(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  ASSERT_EQ(CUDA_SUCCESS, cuMemFreeAsync(pointer, stream_));
  EXPECT_EQ(0u, figure(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  EXPECT_EQ(0u, figure(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  EXPECT_EQ(10 * kMiB, figure(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH));

  std::uint64_t threshold = 32 * kMiB;
  ASSERT_EQ(CUDA_SUCCESS,
            cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  ASSERT_EQ(CUDA_SUCCESS, cuMemFreeAsync(allocate(10 * kMiB), stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  EXPECT_EQ(10 * kMiB, figure(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  ASSERT_EQ(CUDA_SUCCESS, cuMemPoolTrimTo(pool_, 0));
  EXPECT_EQ(0u, figure(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
}

TEST_F(PoolTest, HighMarksAreOnlyResetToZero) {
  ASSERT_EQ(CUDA_SUCCESS, cuMemFreeAsync(allocate(4 * kMiB), stream_));
  std::uint64_t value = 5;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
  value = 0;
  EXPECT_EQ(CUDA_SUCCESS, cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
  EXPECT_EQ(0u, figure(CU_MEMPOOL_ATTR_USED_MEM_HIGH));
}

TEST_F(PoolTest, TooMuchIsOutOfMemoryAndChangesNothing) {
  CUdeviceptr pointer = 42;
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&pointer, 65 * kMiB, pool_, stream_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&pointer, 0, pool_, stream_));
  EXPECT_EQ(42u, pointer);
  EXPECT_EQ(0u, figure(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
}

TEST_F(PoolTest, APoolHasAtMostItsMaximum) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
  props.maxSize = 4 * kMiB;
  CUmemoryPool small = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuMemPoolCreate(&small, &props));
  CUdeviceptr pointer = 0;
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&pointer, 6 * kMiB, small, stream_));
  EXPECT_EQ(CUDA_SUCCESS, cuMemAllocFromPoolAsync(&pointer, 4 * kMiB, small, stream_));
  EXPECT_EQ(CUDA_SUCCESS, cuMemFree(pointer));
  EXPECT_EQ(CUDA_SUCCESS, cuMemPoolDestroy(small));
}

TEST_F(PoolTest, MemoryOutlivesItsDestroyedPool) {
  const CUdeviceptr pointer = allocate(kMiB);
  ASSERT_EQ(CUDA_SUCCESS, cuMemPoolDestroy(pool_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemPoolTrimTo(pool_, 0)) << "the handle is stale";
  pool_ = nullptr;
  EXPECT_EQ(CUDA_SUCCESS, cuMemsetD8(pointer, 1, kMiB));
  std::size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemGetInfo(&before, &total));
  EXPECT_EQ(CUDA_SUCCESS, cuMemFree(pointer));
  ASSERT_EQ(CUDA_SUCCESS, cuMemGetInfo(&after, &total));
  EXPECT_EQ(before + 2 * kMiB, after);
}

TEST_F(PoolTest, TheDevicesPoolIsTheDefaultOneUntilItIsSet) {
  CUmemoryPool standard = nullptr, current = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuDeviceGetDefaultMemPool(&standard, device_));
  ASSERT_EQ(CUDA_SUCCESS, cuDeviceGetMemPool(&current, device_));
  EXPECT_EQ(standard, current);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(standard));
  ASSERT_EQ(CUDA_SUCCESS, cuDeviceSetMemPool(device_, pool_));
  CUdeviceptr pointer = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAllocAsync(&pointer, 100, stream_));
  CUmemoryPool of_pointer = nullptr;
  ASSERT_EQ(CUDA_SUCCESS,
            cuPointerGetAttribute(&of_pointer, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer));
  EXPECT_EQ(pool_, of_pointer);
  ASSERT_EQ(CUDA_SUCCESS, cuMemFreeAsync(pointer, stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream_));
  ASSERT_EQ(CUDA_SUCCESS, cuMemPoolDestroy(pool_));
  pool_ = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuDeviceGetMemPool(&current, device_));
  EXPECT_EQ(standard, current) << "a destroyed pool is nobody's current one";
}

TEST_F(PoolTest, PlainMemoryMayBeFreedInStreamOrder) {
  CUdeviceptr plain = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&plain, 4 * kMiB));
  EXPECT_EQ(CUDA_SUCCESS, cuMemFreeAsync(plain, stream_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree(plain));
}

}  // namespace
}  // namespace plexrl::simgpu
