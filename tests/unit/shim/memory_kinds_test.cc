#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "interpose/handlers.h"
#include "shim/process.h"
#include "tests/unit/shim/process_fixture.h"

/// Pools and the job's own handles, in a whole process: what is mapped, charged and left over.
namespace plexrl::shim {
namespace {

using testing::kMiB;
using testing::ProcessTest;

class MemoryKindsTest : public ProcessTest {
 protected:
  CUmemAllocationProp properties() const {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    return prop;
  }
  CUmemGenericAllocationHandle create(std::size_t bytes) {
    const CUmemAllocationProp prop = properties();
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(shim::cuMemCreate(&handle, bytes, &prop, 0), CUDA_SUCCESS);
    return handle;
  }
  CUdeviceptr reserve(std::size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(shim::cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
  }
  CUresult give_access(CUdeviceptr address, std::size_t bytes) {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return shim::cuMemSetAccess(address, bytes, &access, 1);
  }
  bool write(CUdeviceptr address, std::size_t bytes, int value) {
    return driver_.write(address, std::vector<std::byte>(bytes, static_cast<std::byte>(value)));
  }
  int first_byte(CUdeviceptr address) {
    std::vector<std::byte> byte(1);
    return driver_.read(address, &byte) ? std::to_integer<int>(byte[0]) : -1;
  }
  CUdeviceptr allocate_async(std::size_t bytes, CUstream stream) {
    CUdeviceptr address = 0;
    EXPECT_EQ(shim::cuMemAllocAsync(&address, bytes, stream), CUDA_SUCCESS);
    return address;
  }
  CUstream make_stream() {
    CUstream stream = nullptr;
    EXPECT_EQ(shim::cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    return stream;
  }
  void evict_all(wire::Epoch epoch) {
    take_lease_back(epoch);
    evict(1024 * kMiB);
  }
  void expect_nothing_left() {
    EXPECT_EQ(driver_.used_bytes(), 0u);
    EXPECT_EQ(driver_.mapped_bytes(), 0u);
    EXPECT_EQ(ranges().charged_bytes(0), 0u);
  }
};

// ---- handles of the job

TEST_F(MemoryKindsTest, AHandleTakesNoMemoryUntilTheLeaseAndIsChargedAtOnce) {
  const auto handle = create(8 * kMiB);
  EXPECT_EQ(manager_.used(), 8 * kMiB);
  EXPECT_EQ(driver_.used_bytes(), 0u);
  hold_lease();
  EXPECT_EQ(driver_.used_bytes(), 8 * kMiB);
  EXPECT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(MemoryKindsTest, MappedBytesSurviveASwitchAtTheJobsAddress) {
  const auto handle = create(8 * kMiB);
  const CUdeviceptr address = reserve(8 * kMiB);
  ASSERT_EQ(shim::cuMemMap(address, 8 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(give_access(address, 8 * kMiB), CUDA_SUCCESS);
  const wire::Epoch epoch = hold_lease();
  ASSERT_TRUE(write(address, 8 * kMiB, 42));
  evict_all(epoch);
  EXPECT_EQ(driver_.used_bytes(), 0u);
  EXPECT_EQ(first_byte(address), -1);
  hold_lease();
  EXPECT_EQ(first_byte(address + 8 * kMiB - 1), 42);
  EXPECT_EQ(shim::cuMemUnmap(address, 8 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(MemoryKindsTest, MappingsMadeWhileAwayAreThereAfterwards) {
  const auto handle = create(4 * kMiB);
  const CUdeviceptr first = reserve(8 * kMiB), second = first + 4 * kMiB;
  ASSERT_EQ(shim::cuMemMap(first, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(give_access(first, 4 * kMiB), CUDA_SUCCESS);
  const wire::Epoch epoch = hold_lease();
  ASSERT_TRUE(write(first, 4 * kMiB, 7));
  evict_all(epoch);
  ASSERT_EQ(shim::cuMemMap(second, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(give_access(second, 4 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(shim::cuMemUnmap(first, 4 * kMiB), CUDA_SUCCESS);
  hold_lease();
  EXPECT_EQ(first_byte(first), -1);
  EXPECT_EQ(first_byte(second), 7);
  EXPECT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(first_byte(second), 7);
  EXPECT_EQ(shim::cuMemUnmap(second, 4 * kMiB), CUDA_SUCCESS);
  expect_nothing_left();
}

TEST_F(MemoryKindsTest, AnUnmappedHandleKeepsItsBytes) {
  const auto handle = create(2 * kMiB);
  const CUdeviceptr address = reserve(2 * kMiB);
  ASSERT_EQ(shim::cuMemMap(address, 2 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(give_access(address, 2 * kMiB), CUDA_SUCCESS);
  const wire::Epoch epoch = hold_lease();
  ASSERT_TRUE(write(address, 2 * kMiB, 9));
  ASSERT_EQ(shim::cuMemUnmap(address, 2 * kMiB), CUDA_SUCCESS);
  evict_all(epoch);
  EXPECT_EQ(driver_.used_bytes(), 0u);
  ASSERT_EQ(shim::cuMemMap(address, 2 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(give_access(address, 2 * kMiB), CUDA_SUCCESS);
  hold_lease();
  EXPECT_EQ(first_byte(address), 9);
  shim::cuMemUnmap(address, 2 * kMiB);
  shim::cuMemRelease(handle);
  expect_nothing_left();
}

TEST_F(MemoryKindsTest, AReservationInUseIsNotGivenBackEvenWhileItsMemoryIsAway) {
  const auto handle = create(2 * kMiB);
  const CUdeviceptr address = reserve(2 * kMiB);
  ASSERT_EQ(shim::cuMemMap(address, 2 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemAddressFree(address, 2 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(shim::cuMemUnmap(address, 2 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemAddressFree(address, 2 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(MemoryKindsTest, WrongCallsAreRefusedAsByTheDriver) {
  const auto handle = create(4 * kMiB);
  const CUdeviceptr address = reserve(8 * kMiB);
  EXPECT_EQ(shim::cuMemMap(address, 2 * kMiB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(shim::cuMemMap(address, 4 * kMiB, 2 * kMiB, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(shim::cuMemMap(address + 6 * kMiB, 4 * kMiB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(shim::cuMemMap(address, 4 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemMap(address + 2 * kMiB, 4 * kMiB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(shim::cuMemUnmap(address, 2 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(give_access(address, 8 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(shim::cuMemUnmap(address, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
}

/// Each driver call of an allocation and of its mapping fails once; the agent tries again, and in
/// the end nothing is left.
class FailingStep : public MemoryKindsTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(FailingStep, OfAHandleIsTriedAgainAndLeavesNothing) {
  const auto handle = create(8 * kMiB);
  const CUdeviceptr address = reserve(8 * kMiB);
  ASSERT_EQ(shim::cuMemMap(address, 8 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(give_access(address, 8 * kMiB), CUDA_SUCCESS);
  for (int nth = 1; nth <= 4; ++nth) {
    driver_.fail(GetParam(), nth, CUDA_ERROR_OUT_OF_MEMORY);
    const wire::Epoch epoch = hold_lease();
    EXPECT_TRUE(write(address, 8 * kMiB, nth));
    evict_all(epoch);
    EXPECT_EQ(driver_.used_bytes(), 0u);
  }
  hold_lease();
  EXPECT_EQ(first_byte(address), 4);
  shim::cuMemUnmap(address, 8 * kMiB);
  shim::cuMemRelease(handle);
  expect_nothing_left();
}

TEST_P(FailingStep, OfAnAllocationUnderALeaseIsTriedAgainAndLeavesNothing) {
  hold_lease();
  for (int nth = 1; nth <= 2; ++nth) {
    driver_.fail(GetParam(), nth, CUDA_ERROR_OUT_OF_MEMORY);
    const CUdeviceptr address = allocate(8 * kMiB);
    launch_aside();
    wait_launched(static_cast<int>(jobs_.size()));
    EXPECT_TRUE(write(address, 8 * kMiB, nth));
    EXPECT_EQ(shim::cuMemFree_v2(address), CUDA_SUCCESS);
    expect_nothing_left();
  }
}

TEST_P(FailingStep, OfAMappingUnderALeaseIsTriedAgainAndLeavesNothing) {
  hold_lease();
  const CUdeviceptr address = reserve(8 * kMiB);
  for (int nth = 1; nth <= 2; ++nth) {
    driver_.fail(GetParam(), nth, CUDA_ERROR_OUT_OF_MEMORY);
    const auto handle = create(8 * kMiB);
    ASSERT_EQ(shim::cuMemMap(address, 8 * kMiB, 0, handle, 0), CUDA_SUCCESS);
    // Access that the driver refuses is the job's to ask for again, as without us.
    const CUresult access = give_access(address, 8 * kMiB);
    if (access == CUDA_ERROR_OUT_OF_MEMORY)
      EXPECT_EQ(give_access(address, 8 * kMiB), CUDA_SUCCESS);
    else
      EXPECT_EQ(access, CUDA_SUCCESS);
    launch_aside();
    wait_launched(static_cast<int>(jobs_.size()));
    EXPECT_TRUE(write(address, 8 * kMiB, nth));
    EXPECT_EQ(shim::cuMemUnmap(address, 8 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
    expect_nothing_left();
  }
  EXPECT_EQ(shim::cuMemAddressFree(address, 8 * kMiB), CUDA_SUCCESS);
}

TEST_P(FailingStep, OfPoolMemoryUnderALeaseIsTriedAgainAndLeavesNothing) {
  hold_lease();
  const CUstream stream = make_stream();
  for (int nth = 1; nth <= 2; ++nth) {
    driver_.fail(GetParam(), nth, CUDA_ERROR_OUT_OF_MEMORY);
    const CUdeviceptr address = allocate_async(8 * kMiB, stream);
    launch_aside();
    wait_launched(static_cast<int>(jobs_.size()));
    EXPECT_TRUE(write(address, 8 * kMiB, nth));
    EXPECT_EQ(shim::cuMemFreeAsync(address, stream), CUDA_SUCCESS);
    process_.pools.at_rest();
    expect_nothing_left();
  }
  EXPECT_EQ(shim::cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

TEST_P(FailingStep, OfASmallAllocationUnderALeaseIsTriedAgainAndLeavesNothing) {
  hold_lease();
  driver_.fail(GetParam(), 1, CUDA_ERROR_OUT_OF_MEMORY);
  const CUdeviceptr address = allocate(300);
  launch_aside();
  wait_launched(static_cast<int>(jobs_.size()));
  EXPECT_TRUE(write(address, 300, 1));
  EXPECT_EQ(shim::cuMemFree_v2(address), CUDA_SUCCESS);
  expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(Steps, FailingStep,
                         ::testing::Values("cuMemCreate", "cuMemMap", "cuMemSetAccess"));

TEST_F(MemoryKindsTest, WithoutAddressesThereIsNoRange) {
  RangeTable table;  // one without addresses of its own
  driver_.fail_always("cuMemAddressReserve", CUDA_ERROR_OUT_OF_MEMORY);
  Range* range = nullptr;
  EXPECT_EQ(table.reserve(0, context_, 2 * kMiB, false, &range), CUDA_ERROR_OUT_OF_MEMORY);
  driver_.fail_always("cuMemAddressReserve", CUDA_SUCCESS);
  EXPECT_EQ(range, nullptr);
  EXPECT_EQ(table.charged_bytes(0), 0u);
}

// ---- pools

TEST_F(MemoryKindsTest, PoolMemorySurvivesASwitch) {
  const CUstream stream = make_stream();
  const CUdeviceptr address = allocate_async(3 * kMiB, stream);
  const wire::Epoch epoch = hold_lease();
  ASSERT_TRUE(write(address, 3 * kMiB, 11));
  evict_all(epoch);
  EXPECT_EQ(driver_.used_bytes(), 0u);
  hold_lease();
  EXPECT_EQ(first_byte(address), 11);
  EXPECT_EQ(shim::cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  process_.pools.at_rest();
  expect_nothing_left();
  EXPECT_EQ(shim::cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

TEST_F(MemoryKindsTest, FreedMemoryGoesToAnotherStreamOnlyWhenItsWorkIsOver) {
  hold_lease();
  const CUstream first = make_stream(), second = make_stream();
  const CUdeviceptr a = allocate_async(4 * kMiB, first);
  driver_.set_busy(first, true);
  ASSERT_EQ(shim::cuMemFreeAsync(a, first), CUDA_SUCCESS);
  const CUdeviceptr b = allocate_async(4 * kMiB, second);
  EXPECT_NE(b, a);
  EXPECT_EQ(allocate_async(4 * kMiB, first), a);
  ASSERT_EQ(shim::cuMemFreeAsync(a, first), CUDA_SUCCESS);
  driver_.set_busy(first, false);
  EXPECT_EQ(allocate_async(4 * kMiB, second), a);
  for (const CUdeviceptr address : {a, b}) {
    EXPECT_EQ(shim::cuMemFreeAsync(address, second), CUDA_SUCCESS);
  }
  process_.pools.at_rest();
  expect_nothing_left();
  EXPECT_EQ(shim::cuStreamDestroy_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuStreamDestroy_v2(second), CUDA_SUCCESS);
}

TEST_F(MemoryKindsTest, AtTheEndOfThePromiseAStreamWaitsForAnothersFree) {
  manager_.promised = 8 * kMiB;
  hold_lease();
  const CUstream first = make_stream(), second = make_stream();
  const CUdeviceptr a = allocate_async(6 * kMiB, first);
  driver_.set_busy(first, true);
  ASSERT_EQ(shim::cuMemFreeAsync(a, first), CUDA_SUCCESS);
  EXPECT_EQ(allocate_async(6 * kMiB, second), a);
  ASSERT_EQ(driver_.waits.size(), 1u);
  EXPECT_EQ(driver_.waits[0].first, second);
  driver_.set_busy(first, false);
  CUdeviceptr none = 5;
  EXPECT_EQ(shim::cuMemAllocAsync(&none, 6 * kMiB, second), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(none, 5u);
  EXPECT_EQ(shim::cuMemFreeAsync(a, second), CUDA_SUCCESS);
  process_.pools.at_rest();
  expect_nothing_left();
  EXPECT_EQ(shim::cuStreamDestroy_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuStreamDestroy_v2(second), CUDA_SUCCESS);
}

TEST_F(MemoryKindsTest, AFreeWithoutALeaseNeedsNoEventAndDoesNotWait) {
  const CUstream stream = make_stream();
  const CUdeviceptr address = allocate_async(kMiB, stream);
  const int records = driver_.calls("cuEventRecord");
  EXPECT_EQ(shim::cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  EXPECT_EQ(driver_.calls("cuEventRecord"), records);
  process_.pools.at_rest();
  expect_nothing_left();
  EXPECT_EQ(shim::cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

}  // namespace
}  // namespace plexrl::shim
