#include <gtest/gtest.h>

#include <functional>

#include "interpose/handlers.h"
#include "interpose/nccl.h"
#include "interpose/verbs.h"
#include "tests/unit/shim/pins_fixture.h"

/// Memory that is registered with NCCL, or allocated by it, stays in HBM, and just as long.
namespace plexrl::shim {
namespace {

using testing::kMiB;
using testing::PinsTest;

/// An NCCL that does nothing but give out names. Its state is that of the test that runs.
struct FakeNccl {
  ncclResult_t result = ncclSuccess;  ///< of every call
  void* handle = nullptr;             ///< what registrations get
  ncclWindow_t* asked = nullptr;      ///< where a window's name is wanted at the end of the group
  int groups = 0;
  CUmemGenericAllocationHandle memory = 0;
  std::function<void()> while_registering;
} fake;

const ncclWindow_t kWindow = reinterpret_cast<ncclWindow_t>(0x5000);
const ncclComm_t kComm = reinterpret_cast<ncclComm_t>(0x6000);
const ncclComm_t kOther = reinterpret_cast<ncclComm_t>(0x7000);

ncclResult_t fake_register(ncclComm_t, void*, size_t, void** handle) {
  if (fake.while_registering) fake.while_registering();
  if (fake.result == ncclSuccess) *handle = fake.handle;
  return fake.result;
}
ncclResult_t fake_window(ncclComm_t, void*, size_t, ncclWindow_t* window, int) {
  if (fake.result != ncclSuccess) return fake.result;
  if (fake.groups == 0) {
    *window = kWindow;
  } else {
    fake.asked = window;
  }
  return ncclSuccess;
}
ncclResult_t fake_start() {
  ++fake.groups;
  return ncclSuccess;
}
ncclResult_t fake_end() {
  if (--fake.groups == 0 && fake.result == ncclSuccess && fake.asked != nullptr) {
    *fake.asked = kWindow;
  }
  return fake.result;
}
ncclResult_t fake_simulate(ncclSimInfo_t*) {
  --fake.groups;
  return ncclSuccess;
}
/// As NCCL's: a handle of its own for a multiple of the granularity, by the driver's names, which
/// are ours.
ncclResult_t fake_alloc(void** pointer, size_t bytes) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const std::size_t rounded = (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
  CUdeviceptr address = 0;
  EXPECT_EQ(shim::cuMemCreate(&fake.memory, rounded, &prop, 0), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemAddressReserve(&address, rounded, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemMap(address, rounded, 0, fake.memory, 0), CUDA_SUCCESS);
  *pointer = reinterpret_cast<void*>(address);
  return ncclSuccess;
}
ncclResult_t fake_free(void* pointer) {
  if (fake.result != ncclSuccess) return fake.result;
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  const auto mapped = Process::started()->backing(address);
  EXPECT_TRUE(mapped);
  EXPECT_EQ(shim::cuMemUnmap(address, mapped->bytes), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemRelease(fake.memory), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemAddressFree(address, mapped->bytes), CUDA_SUCCESS);
  return ncclSuccess;
}

class NcclTest : public PinsTest {
 protected:
  NcclTest() {
    fake = {};
    fake.handle = &fake;
    nccl.ncclCommRegister = &fake_register;
    nccl.ncclCommDeregister = [](ncclComm_t, void*) { return fake.result; };
    nccl.ncclCommWindowRegister = &fake_window;
    nccl.ncclCommWindowDeregister = [](ncclComm_t, ncclWindow_t) { return fake.result; };
    nccl.ncclCommDestroy = [](ncclComm_t) { return fake.result; };
    nccl.ncclCommAbort = [](ncclComm_t) { return fake.result; };
    nccl.ncclGroupStart = &fake_start;
    nccl.ncclGroupEnd = &fake_end;
    nccl.ncclGroupSimulateEnd = &fake_simulate;
    nccl.ncclMemAlloc = &fake_alloc;
    nccl.ncclMemFree = &fake_free;
  }
  void SetUp() override {
    PinsTest::SetUp();
    address_ = allocate(8 * kMiB);
    epoch_ = hold_lease();
  }
  ncclResult_t reg(void** handle, ncclComm_t comm = kComm) {
    return shim::ncclCommRegister(comm, reinterpret_cast<void*>(address_), 8 * kMiB, handle);
  }
  ncclResult_t reg_window(ncclWindow_t* window) {
    return shim::ncclCommWindowRegister(kComm, reinterpret_cast<void*>(address_), 8 * kMiB, window,
                                        0);
  }
  void expect_registered() {
    EXPECT_EQ(unpageable(), 8 * kMiB);
    EXPECT_EQ(reasons(), "registered with NCCL;");
    EXPECT_EQ(ranges().shown_totals(0).at(static_cast<std::size_t>(wire::MemoryKind::kNccl)).pinned,
              8 * kMiB);
  }

  CUdeviceptr address_ = 0;
  wire::Epoch epoch_{};
};

TEST_F(NcclTest, ABufferStaysUntilItIsDeregistered) {
  void* handle = nullptr;
  ASSERT_EQ(reg(&handle), ncclSuccess);
  ASSERT_EQ(handle, fake.handle);
  expect_registered();
  EXPECT_EQ(left_after_eviction(epoch_), 8 * kMiB);
  // Without a lease: what only gives back does not wait.
  fake.result = ncclSystemError;
  EXPECT_EQ(shim::ncclCommDeregister(kComm, handle), ncclSystemError);
  expect_registered();
  fake.result = ncclSuccess;
  EXPECT_EQ(shim::ncclCommDeregister(kComm, handle), ncclSuccess);
  expect_pageable_again();
  EXPECT_EQ(evict(1024 * kMiB).failed, 0u);
  EXPECT_EQ(driver_.used_bytes(), 0u);
}

TEST_F(NcclTest, OneHandleForTwoRegistrationsStaysUntilTheSecondEnds) {
  void* handle = nullptr;
  ASSERT_EQ(reg(&handle), ncclSuccess);
  ASSERT_EQ(reg(&handle), ncclSuccess);
  EXPECT_EQ(shim::ncclCommDeregister(kComm, handle), ncclSuccess);
  expect_registered();
  EXPECT_EQ(shim::ncclCommDeregister(kComm, handle), ncclSuccess);
  expect_pageable_again();
}

TEST_F(NcclTest, WhatNcclDoesNotRegisterStaysPageable) {
  void* handle = nullptr;
  fake.handle = nullptr;  // it has no use for it
  EXPECT_EQ(reg(&handle), ncclSuccess);
  expect_pageable_again();
  fake.result = ncclSystemError;
  EXPECT_EQ(reg(&handle), ncclSystemError);
  ncclWindow_t window = nullptr;
  EXPECT_EQ(reg_window(&window), ncclSystemError);
  expect_pageable_again();
  fake.result = ncclSuccess;
  manager_.refuses_pins = true;
  EXPECT_EQ(reg(&handle), ncclUnhandledCudaError);
  expect_pageable_again();
  EXPECT_EQ(left_after_eviction(epoch_), 0u);
}

TEST_F(NcclTest, ACommunicatorEndsWhatIsRegisteredWithIt) {
  void* handle = nullptr;
  ASSERT_EQ(reg(&handle), ncclSuccess);
  ncclWindow_t window = nullptr;
  ASSERT_EQ(reg_window(&window), ncclSuccess);
  EXPECT_EQ(shim::ncclCommDestroy(kOther), ncclSuccess);
  expect_registered();
  fake.result = ncclSystemError;
  EXPECT_EQ(shim::ncclCommDestroy(kComm), ncclSystemError);
  expect_registered();
  fake.result = ncclSuccess;
  EXPECT_EQ(shim::ncclCommAbort(kComm), ncclSuccess);
  expect_pageable_again();
}

TEST_F(NcclTest, WhatIsRegisteredWithoutWaitingStaysUntilItsCommunicatorEnds) {
  void* handle = nullptr;
  fake.result = ncclInProgress;
  EXPECT_EQ(reg(&handle), ncclInProgress);
  fake.result = ncclSuccess;
  EXPECT_EQ(shim::ncclCommDeregister(kComm, &handle), ncclSuccess) << "whatever it was called";
  expect_registered();
  EXPECT_EQ(shim::ncclCommDestroy(kComm), ncclSuccess);
  expect_pageable_again();
}

TEST_F(NcclTest, AWindowStaysUntilItIsDeregistered) {
  ncclWindow_t window = nullptr;
  ASSERT_EQ(reg_window(&window), ncclSuccess);
  expect_registered();
  EXPECT_EQ(shim::ncclCommWindowDeregister(kComm, window), ncclSuccess);
  expect_pageable_again();
}

TEST_F(NcclTest, AWindowOfAGroupIsKnownByTheNameThatTheEndOfTheGroupGives) {
  ncclWindow_t window = nullptr;
  shim::ncclGroupStart();
  shim::ncclGroupStart();
  ASSERT_EQ(reg_window(&window), ncclSuccess);
  shim::ncclGroupEnd();
  EXPECT_EQ(window, nullptr);
  EXPECT_EQ(shim::ncclGroupEnd(), ncclSuccess);
  ASSERT_EQ(window, kWindow);
  expect_registered();
  EXPECT_EQ(shim::ncclCommWindowDeregister(kComm, window), ncclSuccess);
  expect_pageable_again();
}

TEST_F(NcclTest, AGroupThatFailsOrIsSimulatedRegistersNothing) {
  ncclWindow_t window = nullptr;
  shim::ncclGroupStart();
  ASSERT_EQ(reg_window(&window), ncclSuccess);
  fake.result = ncclSystemError;
  EXPECT_EQ(shim::ncclGroupEnd(), ncclSystemError);
  expect_pageable_again();
  fake.result = ncclSuccess;
  shim::ncclGroupStart();
  ASSERT_EQ(reg_window(&window), ncclSuccess);
  EXPECT_EQ(shim::ncclGroupSimulateEnd(nullptr), ncclSuccess);
  expect_pageable_again();
}

TEST_F(NcclTest, ARegistrationWithANicInsideHasItsOwnEnd) {
  verbs.ibv_reg_mr = [](ibv_pd*, void* address, size_t, int) {
    return static_cast<ibv_mr*>(address);
  };
  verbs.ibv_dereg_mr = [](ibv_mr*) { return 0; };
  void* handle = nullptr;
  ibv_mr* region = nullptr;
  fake.while_registering = [&] {
    region = shim::ibv_reg_mr(nullptr, reinterpret_cast<void*>(address_), 8 * kMiB, 0);
  };
  ASSERT_EQ(reg(&handle), ncclSuccess);
  EXPECT_EQ(reasons(), "registered with NCCL;registered with a NIC;");
  EXPECT_EQ(unpageable(), 8 * kMiB);
  EXPECT_EQ(shim::ncclCommDeregister(kComm, handle), ncclSuccess);
  EXPECT_EQ(reasons(), "registered with a NIC;");
  EXPECT_EQ(unpageable(), 8 * kMiB);
  EXPECT_EQ(shim::ibv_dereg_mr(region), 0);
  expect_pageable_again();
}

TEST_F(NcclTest, MemoryOfNcclsOwnStaysUntilItIsFreed) {
  void* pointer = nullptr;
  ASSERT_EQ(shim::ncclMemAlloc(&pointer, 3 * kMiB), ncclSuccess);
  EXPECT_EQ(unpageable(), 4 * kMiB) << "what NCCL rounded it up to";
  EXPECT_EQ(reasons(), "allocated by ncclMemAlloc;");
  EXPECT_EQ(left_after_eviction(epoch_), 4 * kMiB);
  fake.result = ncclSystemError;
  EXPECT_EQ(shim::ncclMemFree(pointer), ncclSystemError);
  EXPECT_EQ(reasons(), "allocated by ncclMemAlloc;");
  fake.result = ncclSuccess;
  EXPECT_EQ(shim::ncclMemFree(pointer), ncclSuccess);
  tell_what_was_freed();
  expect_pageable_again();
}

TEST_F(NcclTest, MemoryOfNcclsOwnThatFindsNoRoomIsNotThere) {
  manager_.refuses_pins = true;
  void* pointer = &fake;
  EXPECT_EQ(shim::ncclMemAlloc(&pointer, 3 * kMiB), ncclUnhandledCudaError);
  EXPECT_EQ(pointer, &fake);
  tell_what_was_freed();
  EXPECT_EQ(manager_.used(), 12 * kMiB) << "the test's own";
  expect_pageable_again();
}

}  // namespace
}  // namespace plexrl::shim
