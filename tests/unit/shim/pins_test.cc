#include <gtest/gtest.h>

#include <new>
#include <thread>

#include "interpose/handlers.h"
#include "shim/process.h"
#include "tests/unit/shim/pins_fixture.h"

/// Memory that others than the job's gated calls read or write: it stays in HBM until it is let go.
namespace plexrl::shim {
namespace {

using testing::kMiB;
using testing::PinsTest;

TEST_F(PinsTest, ADmaBufKeepsJustItsChunksInHbm) {
  const CUdeviceptr address = allocate(16 * kMiB);  // in chunks of 4 MiB
  const wire::Epoch epoch = hold_lease();
  ASSERT_EQ(export_dma_buf(address + 5 * kMiB, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(unpageable(), 8 * kMiB);
  EXPECT_EQ(manager_.used(), 16 * kMiB) << "it is charged once";
  EXPECT_EQ(reasons(), "exported as a dma-buf;");
  EXPECT_EQ(left_after_eviction(epoch), 8 * kMiB);
  EXPECT_TRUE(driver_.write(address + 5 * kMiB, std::vector<std::byte>(kMiB)));
}

TEST_F(PinsTest, FreedMemoryIsNotPinnedAnyMore) {
  const CUdeviceptr address = allocate(16 * kMiB);
  hold_lease();
  ASSERT_EQ(export_dma_buf(address, 16 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(export_dma_buf(address, 4 * kMiB), CUDA_SUCCESS) << "a second time";
  EXPECT_EQ(shim::cuMemFree_v2(address), CUDA_SUCCESS);
  tell_what_was_freed();
  EXPECT_EQ(manager_.used(), 4 * kMiB);
  expect_pageable_again();
}

TEST_F(PinsTest, WhatTheDriverDoesNotExportStaysPageable) {
  const CUdeviceptr address = allocate(8 * kMiB);
  const wire::Epoch epoch = hold_lease();
  driver_.fail("cuMemGetHandleForAddressRange", 1, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(export_dma_buf(address, 8 * kMiB), CUDA_ERROR_NOT_SUPPORTED);
  expect_pageable_again();
  EXPECT_EQ(left_after_eviction(epoch), 0u);
}

TEST_F(PinsTest, HbmThatOthersWerePromisedIsNotPinned) {
  const CUdeviceptr address = allocate(8 * kMiB);
  const wire::Epoch epoch = hold_lease();
  manager_.refuses_pins = true;
  EXPECT_EQ(export_dma_buf(address, 8 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver_.calls("cuMemGetHandleForAddressRange"), 0);
  expect_pageable_again();
  EXPECT_EQ(left_after_eviction(epoch), 0u);
}

CUresult set_sync_memops(CUdeviceptr address, unsigned value) {
  return shim::cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address);
}

TEST_F(PinsTest, AnAttributeOfTheMappingStaysWithIt) {
  const CUdeviceptr address = allocate(10 * kMiB);  // in chunks of 4 MiB
  const wire::Epoch epoch = hold_lease();
  ASSERT_EQ(set_sync_memops(address + 100, 1), CUDA_SUCCESS);
  EXPECT_EQ(driver_.sync_memops.size(), 3u) << "to the driver each chunk is an allocation";
  EXPECT_EQ(reasons(), "attribute SYNC_MEMOPS set;");
  EXPECT_EQ(left_after_eviction(epoch), 10 * kMiB);
}

TEST_F(PinsTest, AnAttributeThatIsUnsetKeepsNothing) {
  const CUdeviceptr address = allocate(8 * kMiB);
  const wire::Epoch epoch = hold_lease();
  ASSERT_EQ(set_sync_memops(address, 0), CUDA_SUCCESS);
  expect_pageable_again();
  for (int again = 0; again < 2; ++again) ASSERT_EQ(set_sync_memops(address, 1), CUDA_SUCCESS);
  EXPECT_EQ(unpageable(), 8 * kMiB);
  ASSERT_EQ(set_sync_memops(address + 4 * kMiB, 0), CUDA_SUCCESS);
  for (const auto& [handle, value] : driver_.sync_memops) EXPECT_EQ(value, 0u);
  expect_pageable_again();
  EXPECT_EQ(left_after_eviction(epoch), 0u);
}

TEST_F(PinsTest, AnAttributeThatCouldNotBeSetKeepsNothing) {
  const CUdeviceptr address = allocate(8 * kMiB);
  hold_lease();
  driver_.fail("cuPointerSetAttribute", 2, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(set_sync_memops(address, 1), CUDA_ERROR_INVALID_CONTEXT);
  expect_pageable_again();
  manager_.refuses_pins = true;
  EXPECT_EQ(set_sync_memops(address, 1), CUDA_ERROR_OUT_OF_MEMORY);
  expect_pageable_again();
}

TEST_F(PinsTest, AnAttributeIsOfTheMappingThatTheJobMade) {
  const auto handle = create(8 * kMiB);
  CUdeviceptr start = 0;
  ASSERT_EQ(shim::cuMemAddressReserve(&start, 8 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(shim::cuMemMap(start, 8 * kMiB, 0, handle, 0), CUDA_SUCCESS);
  hold_lease();
  ASSERT_EQ(set_sync_memops(start + 5 * kMiB, 1), CUDA_SUCCESS);
  EXPECT_EQ(driver_.sync_memops.size(), driver_.handles.size());
  EXPECT_EQ(unpageable(), 8 * kMiB);
  ASSERT_EQ(set_sync_memops(start, 0), CUDA_SUCCESS);
  expect_pageable_again();
  EXPECT_EQ(shim::cuMemUnmap(start, 8 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemAddressFree(start, 8 * kMiB), CUDA_SUCCESS);
}

/// Two that hold memory at a time; the manager's answers come when the test gives them.
class HoldersTest : public PinsTest {
 protected:
  void export_aside(CUdeviceptr address, std::size_t bytes, CUresult* result) {
    jobs_.emplace_back([=, this] {
      driver_.set_current(context_);
      *result = export_dma_buf(address, bytes);
      ++launched_;
    });
  }
  /// Answers a pin with a no, and those that come after it.
  void refuse(const Packet& question) {
    manager_.refuses_pins = true;
    manager_.delays_pins = false;
    manager_.send(wire::Type::kCharged, wire::Charged{}, question.request);
    wait_launched(static_cast<int>(jobs_.size()));
  }
};

TEST_F(HoldersTest, WhatOneIsRefusedAnotherDoesNotTakeForHeld) {
  const CUdeviceptr address = allocate(8 * kMiB);
  hold_lease();
  manager_.delays_pins = true;
  CUresult first = CUDA_SUCCESS, second = CUDA_SUCCESS;
  export_aside(address, 8 * kMiB, &first);
  const auto question = manager_.wait_for(wire::Type::kPin);
  export_aside(address, 8 * kMiB, &second);
  while (Gate::threads_inside() != 2) std::this_thread::yield();
  refuse(*question);
  EXPECT_EQ(first, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(second, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver_.calls("cuMemGetHandleForAddressRange"), 0);
  expect_pageable_again();
  EXPECT_EQ(process_.devices.find(0)->unpageable_bytes, 0u);
}

TEST_F(HoldersTest, WhoLetsGoDoesNotWaitForOneWhoAsks) {
  const CUdeviceptr address = allocate(8 * kMiB);
  hold_lease();
  ASSERT_EQ(set_sync_memops(address, 1), CUDA_SUCCESS);
  ASSERT_EQ(shim::cuMulticastBindAddr(77, 0, address, 4 * kMiB, 0), CUDA_SUCCESS);
  ASSERT_EQ(set_sync_memops(address, 0), CUDA_SUCCESS);
  EXPECT_EQ(unpageable(), 4 * kMiB);
  manager_.delays_pins = true;
  CUresult result = CUDA_SUCCESS;
  export_aside(address, 8 * kMiB, &result);  // of which half is held already
  const auto question = manager_.wait_for(wire::Type::kPin);
  EXPECT_EQ(shim::cuMulticastUnbind(77, 0, 0, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(unpageable(), 4 * kMiB) << "it is held by the other yet";
  refuse(*question);
  EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
  expect_pageable_again();
  EXPECT_EQ(process_.devices.find(0)->unpageable_bytes, 0u);
}

TEST_F(PinsTest, WhoIsLackingHostMemoryInTheDriversCallIsOutsideAgain) {
  const CUdeviceptr address = allocate(8 * kMiB);
  const auto handle = create(4 * kMiB);
  const wire::Epoch epoch = hold_lease();
  driver.cuMemGetHandleForAddressRange = [](void*, CUdeviceptr, std::size_t, CUmemRangeHandleType,
                                            unsigned long long) -> CUresult {
    throw std::bad_alloc();
  };
  driver.cuPointerSetAttribute = [](const void*, CUpointer_attribute, CUdeviceptr) -> CUresult {
    throw std::bad_alloc();
  };
  driver.cuMulticastBindMem = [](CUmemGenericAllocationHandle, std::size_t,
                                 CUmemGenericAllocationHandle, std::size_t, std::size_t,
                                 unsigned long long) -> CUresult { throw std::bad_alloc(); };
  EXPECT_EQ(export_dma_buf(address, kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(set_sync_memops(address, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(shim::cuMulticastBindMem(77, 0, handle, 0, 4 * kMiB, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Gate::threads_inside(), 0u);
  expect_pageable_again();
  EXPECT_EQ(left_after_eviction(epoch), 0u);
  EXPECT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(PinsTest, WhatWasBoundToAReleasedObjectIsLetGoWhenItsNameIsAnothers) {
  const CUdeviceptr first = allocate(8 * kMiB), second = allocate(8 * kMiB);
  hold_lease();
  ASSERT_EQ(shim::cuMulticastBindAddr(77, 0, first, 8 * kMiB, 0), CUDA_SUCCESS);
  driver_.bound.clear();  // the object has ended
  ASSERT_EQ(shim::cuMulticastBindAddr(77, 0, second, 4 * kMiB, 0), CUDA_SUCCESS);
  EXPECT_FALSE(ranges().is_pinned(first));
  EXPECT_EQ(unpageable(), 4 * kMiB);
  EXPECT_EQ(shim::cuMulticastUnbind(77, 0, 0, 4 * kMiB), CUDA_SUCCESS);
  expect_pageable_again();
}

TEST_F(PinsTest, MemoryIsPageableAgainWhenItIsUnboundFromAMulticastObject) {
  const auto handle = create(8 * kMiB);
  const wire::Epoch epoch = hold_lease();
  ASSERT_EQ(shim::cuMulticastBindMem(77, 2 * kMiB, handle, 0, 8 * kMiB, 0), CUDA_SUCCESS);
  EXPECT_EQ(reasons(), "bound to a multicast object;");
  EXPECT_EQ(unpageable(), 8 * kMiB);
  EXPECT_EQ(shim::cuMulticastUnbind(77, 0, 4 * kMiB, 8 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(unpageable(), 8 * kMiB) << "something else was asked to be unbound";
  EXPECT_EQ(shim::cuMulticastUnbind(77, 0, 2 * kMiB, 8 * kMiB), CUDA_SUCCESS);
  expect_pageable_again();
  EXPECT_EQ(left_after_eviction(epoch), 0u);
  EXPECT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(PinsTest, ABindThatFailsHalfWayLeavesNothingBound) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemGenericAllocationHandle handle = 0;  // not to be exported, so in chunks
  ASSERT_EQ(shim::cuMemCreate(&handle, 12 * kMiB, &prop, 0), CUDA_SUCCESS);
  hold_lease();
  for (int piece = 1; piece <= 3; ++piece) {
    driver_.fail("cuMulticastBindMem", piece, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(shim::cuMulticastBindMem(77, 0, handle, 0, 12 * kMiB, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_TRUE(driver_.bound.empty());
    expect_pageable_again();
  }
  ASSERT_EQ(shim::cuMulticastBindMem(77, 0, handle, 0, 12 * kMiB, 0), CUDA_SUCCESS);
  EXPECT_EQ(driver_.bound.size(), 3u);
  EXPECT_EQ(shim::cuMulticastUnbind(77, 0, 0, 12 * kMiB), CUDA_SUCCESS);
  EXPECT_TRUE(driver_.bound.empty());
  EXPECT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(PinsTest, AMappedAddressIsBoundByTheHandlesBehindIt) {
  const CUdeviceptr address = allocate(12 * kMiB);
  hold_lease();
  ASSERT_EQ(shim::cuMulticastBindAddr(77, 2 * kMiB, address + 2 * kMiB, 8 * kMiB, 0), CUDA_SUCCESS);
  EXPECT_GT(driver_.bound.size(), 1u) << "the driver has it in several allocations";
  EXPECT_EQ(driver_.calls("cuMulticastBindAddr"), 0);
  EXPECT_EQ(reasons(), "bound to a multicast object;");
  for (const std::size_t bytes : {std::size_t{0}, 12 * kMiB}) {
    EXPECT_EQ(shim::cuMulticastBindAddr(78, 0, address + 2 * kMiB, bytes, 0),
              CUDA_ERROR_INVALID_VALUE)
        << bytes << " bytes are not there";
  }
  EXPECT_EQ(shim::cuMulticastUnbind(77, 0, 2 * kMiB, 8 * kMiB), CUDA_SUCCESS);
  EXPECT_TRUE(driver_.bound.empty());
  expect_pageable_again();
}

TEST_F(PinsTest, WhatWasFreedWhileItWasBoundLetsNothingOfItsSuccessorGo) {
  const auto handle = create(8 * kMiB);
  hold_lease();
  ASSERT_EQ(shim::cuMulticastBindMem(77, 0, handle, 0, 8 * kMiB, 0), CUDA_SUCCESS);
  ASSERT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
  const CUdeviceptr successor = allocate(8 * kMiB);  // at the same address
  ASSERT_EQ(export_dma_buf(successor, 8 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMulticastUnbind(77, 0, 0, 8 * kMiB), CUDA_SUCCESS);
  EXPECT_TRUE(ranges().is_pinned(successor));
  EXPECT_EQ(unpageable(), 8 * kMiB);
}

// ---- --export=real

class RealExportsTest : public PinsTest {
 protected:
  void SetUp() override {
    PinsTest::SetUp();
    process_.exports_are_real = true;
    ranges().set_whole_exports(true);
  }
  void TearDown() override {
    ranges().set_whole_exports(false);
    PinsTest::TearDown();
  }
  CUresult export_handle(CUmemGenericAllocationHandle handle, ScopedFd* out) {
    int fd = -1;
    const CUresult result = shim::cuMemExportToShareableHandle(
        &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == CUDA_SUCCESS) out->reset(fd);
    return result;
  }
};

TEST_F(RealExportsTest, ADescriptorIsTheDriversAndItsMemoryStays) {
  const auto handle = create(8 * kMiB);
  const wire::Epoch epoch = hold_lease();
  ScopedFd fd;
  ASSERT_EQ(export_handle(handle, &fd), CUDA_SUCCESS);
  CUmemGenericAllocationHandle opened = 0;
  ASSERT_EQ(driver.cuMemImportFromShareableHandle(
                &opened, reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd.get())),
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_SUCCESS);
  EXPECT_EQ(driver_.handles.at(opened).size(), 8 * kMiB) << "all of it, in one piece";
  EXPECT_EQ(reasons(), "exported to any process (--export=real);");
  EXPECT_EQ(left_after_eviction(epoch), 8 * kMiB);
  hold_lease();
  EXPECT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
  driver.cuMemRelease(opened);
  EXPECT_EQ(driver_.used_bytes(), 0u);
  tell_what_was_freed();
  expect_pageable_again();
}

TEST_F(RealExportsTest, AnExportThatFailsLeavesItPageable) {
  const auto handle = create(8 * kMiB);
  const wire::Epoch epoch = hold_lease();
  ScopedFd fd;
  driver_.fail("cuMemExportToShareableHandle", 1, CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_EQ(export_handle(handle, &fd), CUDA_ERROR_OPERATING_SYSTEM);
  expect_pageable_again();
  manager_.refuses_pins = true;
  EXPECT_EQ(export_handle(handle, &fd), CUDA_ERROR_OUT_OF_MEMORY);
  expect_pageable_again();
  EXPECT_EQ(left_after_eviction(epoch), 0u);
  EXPECT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
}

}  // namespace
}  // namespace plexrl::shim
