#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "interpose/driver.h"
#include "interpose/nvml.h"
#include "shim/hooks.h"
#include "tests/unit/shim/process_fixture.h"

/// What a pool holds for later only is given back when something else of the job needs it, and
/// before anybody is told how much is free.
namespace plexrl::shim {
namespace {

using testing::kMiB;
using testing::ProcessTest;

constexpr std::size_t kPromise = 32 * kMiB;
constexpr std::size_t kMost = 24 * kMiB;  // of which the promise holds one

class PoolRoomTest : public ProcessTest {
 protected:
  void SetUp() override {
    manager_.promised = kPromise;
    ProcessTest::SetUp();
    EXPECT_EQ(shim::cuStreamCreate(&stream_, 0), CUDA_SUCCESS);
    hold_lease();
    EXPECT_EQ(driver.cuDeviceGetDefaultMemPool(&pool_, 0), CUDA_SUCCESS);
  }
  void TearDown() override {
    driver_.set_busy(stream_, false);
    process_.pools.trim(pool_, 0);
    EXPECT_EQ(shim::cuStreamDestroy_v2(stream_), CUDA_SUCCESS);
    ProcessTest::TearDown();
  }
  void keep_all() {
    cuuint64_t threshold = ~cuuint64_t{0};
    EXPECT_EQ(shim::cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
              CUDA_SUCCESS);
  }
  /// Leaves memory in the pool that nobody uses, until the agent finds the process at rest.
  void fill_pool() {
    CUdeviceptr pooled = 0;
    ASSERT_EQ(shim::cuMemAllocAsync(&pooled, kMost, stream_), CUDA_SUCCESS);
    ASSERT_EQ(manager_.used(), kMost);
    ASSERT_EQ(shim::cuMemFreeAsync(pooled, stream_), CUDA_SUCCESS);
  }
  static CUresult allocate_most() {
    CUdeviceptr address = 0;
    const CUresult result = shim::cuMemAlloc_v2(&address, kMost);
    if (result == CUDA_SUCCESS) shim::cuMemFree_v2(address);
    return result;
  }

  CUstream stream_ = nullptr;
  CUmemoryPool pool_ = nullptr;
};

TEST_F(PoolRoomTest, OrdinaryMemoryGetsIt) {
  fill_pool();
  EXPECT_EQ(allocate_most(), CUDA_SUCCESS);
}

TEST_F(PoolRoomTest, HandlesGetIt) {
  fill_pool();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(shim::cuMemCreate(&handle, kMost, &properties, 0), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(PoolRoomTest, MemoryThatStaysTheDriversGetsIt) {
  using interpose::UnpageableKind;
  for (const UnpageableKind kind :
       {UnpageableKind::kManaged, UnpageableKind::kArray, UnpageableKind::kPool}) {
    fill_pool();
    const interpose::CountedCall call{interpose::Api::cuMemAllocManaged, kind, kMost, nullptr};
    ASSERT_EQ(count_enter(call), CUDA_SUCCESS) << static_cast<int>(kind);
    count_leave(call, 0, CUDA_ERROR_INVALID_VALUE);
  }
}

TEST_F(PoolRoomTest, InAContextThatHasFailedEveryCallAnswersItsError) {
  CUdeviceptr kept = 0;
  ASSERT_EQ(shim::cuMemAlloc_v2(&kept, kMiB), CUDA_SUCCESS);
  const std::size_t used = manager_.used();
  const auto every_call_answers = [&](CUresult result) {
    for (const char* call : {"cuStreamIsCapturing", "cuCtxSynchronize"})
      driver_.fail_always(call, result);
  };
  every_call_answers(CUDA_ERROR_LAUNCH_FAILED);
  CUdeviceptr address = 0;
  std::size_t pitch = 0;
  for (const std::size_t bytes : {std::size_t{1}, kMost, 2 * kPromise, ~std::size_t{0}}) {
    EXPECT_EQ(shim::cuMemAlloc_v2(&address, bytes), CUDA_ERROR_LAUNCH_FAILED) << bytes;
    EXPECT_EQ(shim::cuMemAllocPitch_v2(&address, &pitch, bytes, 2, 4), CUDA_ERROR_LAUNCH_FAILED)
        << bytes;
  }
  const interpose::CountedCall call{interpose::Api::cuMemAllocManaged,
                                    interpose::UnpageableKind::kManaged, 2 * kPromise, nullptr};
  EXPECT_EQ(count_enter(call), CUDA_ERROR_LAUNCH_FAILED);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(shim::cuMemFree_v2(kept), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(manager_.used(), used);
  every_call_answers(CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemFree_v2(kept), CUDA_SUCCESS);
}

TEST_F(PoolRoomTest, WhatItsOwnPromiseRefusesIsExplainedOnce) {
  CUdeviceptr kept = 0;
  ASSERT_EQ(shim::cuMemAlloc_v2(&kept, 4 * kMiB), CUDA_SUCCESS);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  const interpose::CountedCall managed{interpose::Api::cuMemAllocManaged,
                                       interpose::UnpageableKind::kManaged, kPromise, nullptr};
  CUdeviceptr none = 0;
  CUmemGenericAllocationHandle handle = 0;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(shim::cuMemAlloc_v2(&none, std::size_t{1} << 46), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "no GPU has as much";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(shim::cuMemAlloc_v2(&none, kPromise), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(shim::cuMemAllocAsync(&none, kPromise, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(shim::cuMemCreate(&handle, kPromise, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(count_enter(managed), CUDA_ERROR_OUT_OF_MEMORY);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("and uses 4: "), std::string::npos) << said;
  EXPECT_NE(said.find("promised 32 MiB"), std::string::npos) << said;
  EXPECT_EQ(said.find("out of memory"), said.rfind("out of memory")) << said;
  EXPECT_EQ(shim::cuMemFree_v2(kept), CUDA_SUCCESS);
}

TEST_F(PoolRoomTest, AGraphGetsIt) {
  fill_pool();
  CUgraphExec exec = nullptr;
  const CUgraph graph = driver_.make_graph({kMost});
  ASSERT_EQ(shim::cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

TEST_F(PoolRoomTest, NotBeforeTheWorkBeforeTheFreeIsOver) {
  CUdeviceptr pooled = 0;
  ASSERT_EQ(shim::cuMemAllocAsync(&pooled, kMost, stream_), CUDA_SUCCESS);
  driver_.set_busy(stream_, true);
  ASSERT_EQ(shim::cuMemFreeAsync(pooled, stream_), CUDA_SUCCESS);
  EXPECT_EQ(allocate_most(), CUDA_ERROR_OUT_OF_MEMORY);
  driver_.set_busy(stream_, false);
  EXPECT_EQ(allocate_most(), CUDA_SUCCESS);
}

TEST_F(PoolRoomTest, WhatThePoolIsToKeepStaysThere) {
  keep_all();
  fill_pool();
  EXPECT_EQ(allocate_most(), CUDA_ERROR_OUT_OF_MEMORY);
  CUdeviceptr pooled = 0;
  EXPECT_EQ(shim::cuMemAllocAsync(&pooled, kMost, stream_), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemFreeAsync(pooled, stream_), CUDA_SUCCESS);
}

TEST_F(PoolRoomTest, WhatAnotherThreadIsGivingBackIsWaitedFor) {
  static std::atomic<bool> has_begun, goes_on;
  static CUresult (*unmap)(CUdeviceptr, std::size_t);
  has_begun = goes_on = false;
  unmap = driver.cuMemUnmap.get();
  keep_all();  // what is kept is given back when that is asked for, and at no other time
  fill_pool();
  driver.cuMemUnmap = +[](CUdeviceptr address, std::size_t bytes) {
    has_begun = true;
    while (!goes_on) std::this_thread::yield();
    return unmap(address, bytes);
  };
  std::thread trims([this] { process_.pools.trim(pool_, 0); });
  while (!has_begun) std::this_thread::yield();
  std::atomic<CUresult> result{CUDA_ERROR_UNKNOWN};
  std::thread allocates([&] {
    driver_.set_current(context_);
    CUdeviceptr address = 0;
    result = shim::cuMemAlloc_v2(&address, kMost);
  });
  while (manager_.charges_refused == 0) std::this_thread::yield();
  goes_on = true;
  trims.join();
  allocates.join();
  driver.cuMemUnmap = unmap;
  EXPECT_EQ(result, CUDA_SUCCESS);
}

// ---- figures

nvmlReturn_t uuid_of_device_0(nvmlDevice_t, char* text, unsigned int bytes) {
  const std::string uuid = "GPU-01010101-0101-0101-0101-010101010101";
  text[uuid.copy(text, bytes - 1)] = '\0';
  return NVML_SUCCESS;
}

/// NVML as of a GPU that is much larger than the promise.
class PoolFiguresTest : public PoolRoomTest {
 protected:
  void SetUp() override {
    PoolRoomTest::SetUp();
    uuid_ = nvml.nvmlDeviceGetUUID.get();
    memory_ = nvml.nvmlDeviceGetMemoryInfo.get();
    memory_v2_ = nvml.nvmlDeviceGetMemoryInfo_v2.get();
    nvml.nvmlDeviceGetUUID = &uuid_of_device_0;
    nvml.nvmlDeviceGetMemoryInfo = +[](nvmlDevice_t, nvmlMemory_t* memory) {
      memory->total = memory->free = std::uint64_t{1} << 40;
      return NVML_SUCCESS;
    };
    nvml.nvmlDeviceGetMemoryInfo_v2 = +[](nvmlDevice_t, nvmlMemory_v2_t* memory) {
      memory->total = memory->free = std::uint64_t{1} << 40;
      return NVML_SUCCESS;
    };
  }
  void TearDown() override {
    nvml.nvmlDeviceGetUUID = uuid_;
    nvml.nvmlDeviceGetMemoryInfo = memory_;
    nvml.nvmlDeviceGetMemoryInfo_v2 = memory_v2_;
    PoolRoomTest::TearDown();
  }
  static std::uint64_t free_by_cuda() {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(shim::cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
    return free;
  }
  static std::uint64_t free_by_nvml() {
    nvmlMemory_t memory{};
    EXPECT_EQ(shim::nvmlDeviceGetMemoryInfo(nullptr, &memory), NVML_SUCCESS);
    return memory.free;
  }
  static std::uint64_t free_by_nvml_v2() {
    nvmlMemory_v2_t memory{};
    EXPECT_EQ(shim::nvmlDeviceGetMemoryInfo_v2(nullptr, &memory), NVML_SUCCESS);
    return memory.free;
  }
  using Ask = std::uint64_t (*)();
  static constexpr Ask kAsks[] = {&free_by_cuda, &free_by_nvml, &free_by_nvml_v2};

 private:
  decltype(nvml.nvmlDeviceGetUUID.get()) uuid_;
  decltype(nvml.nvmlDeviceGetMemoryInfo.get()) memory_;
  decltype(nvml.nvmlDeviceGetMemoryInfo_v2.get()) memory_v2_;
};

TEST_F(PoolFiguresTest, WhoeverIsAskedFirstSaysThatItIsFree) {
  for (const Ask first : kAsks) {
    fill_pool();
    EXPECT_EQ(first(), kPromise);
    for (const Ask next : kAsks) EXPECT_EQ(next(), kPromise);
  }
}

TEST_F(PoolFiguresTest, WhatIsInUseOrKeptIsNotFree) {
  CUdeviceptr pooled = 0;
  ASSERT_EQ(shim::cuMemAllocAsync(&pooled, kMost, stream_), CUDA_SUCCESS);
  for (const Ask ask : kAsks) EXPECT_EQ(ask(), kPromise - kMost);
  keep_all();
  ASSERT_EQ(shim::cuMemFreeAsync(pooled, stream_), CUDA_SUCCESS);
  for (const Ask ask : kAsks) EXPECT_EQ(ask(), kPromise - kMost);
}

}  // namespace
}  // namespace plexrl::shim
