#include "shim/registrations.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <new>

#include "interpose/handlers.h"
#include "interpose/verbs.h"
#include "tests/unit/shim/pins_fixture.h"

/// Memory that is registered with a NIC stays in HBM, and just as long.

namespace {
/// The next allocation of just this size by this thread fails; 0: none does.
thread_local std::size_t failing_size = 0;
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  const bool fails = bytes != 0 && bytes == failing_size;
  if (fails) failing_size = 0;
  void* const memory = fails ? nullptr : std::malloc(bytes != 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes != 0 ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace plexrl::shim {
namespace {

using testing::kMiB;
using testing::PinsTest;

/// A libibverbs that numbers regions. Its state is that of the test that runs.
struct FakeVerbs {
  int registrations = 0;
  int next_result = 0;  ///< of the next call that returns a number
  bool refuses = false;
  bool calls_itself = false;
  ibv_mr* names = nullptr;
} fake;

ibv_mr* fake_reg(ibv_pd*, void* addr, size_t length, int access) {
  ++fake.registrations;
  if (fake.refuses) {
    errno = EFAULT;
    return nullptr;
  }
  if (fake.calls_itself) {
    fake.calls_itself = false;
    // By the exported name, which is ours.
    return shim::ibv_reg_mr(nullptr, addr, length, access);
  }
  fake.names = reinterpret_cast<ibv_mr*>(reinterpret_cast<char*>(fake.names) + 16);
  return fake.names;
}
ibv_mr* fake_reg_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t, unsigned access) {
  return fake_reg(pd, addr, length, static_cast<int>(access));
}
int fake_rereg(ibv_mr*, int, ibv_pd*, void*, size_t, int) {
  return std::exchange(fake.next_result, 0);
}
int fake_dereg(ibv_mr*) { return std::exchange(fake.next_result, 0); }

class NicTest : public PinsTest {
 protected:
  NicTest() {
    fake = {};
    verbs.ibv_reg_mr = &fake_reg;
    verbs.ibv_reg_mr_iova2 = &fake_reg_iova2;
    verbs.ibv_rereg_mr = &fake_rereg;
    verbs.ibv_dereg_mr = &fake_dereg;
  }
  static void* at(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
  static ibv_mr* reg(CUdeviceptr address, std::size_t bytes) {
    return shim::ibv_reg_mr(nullptr, at(address), bytes, 0);
  }
  std::uint64_t shown(wire::MemoryKind kind) {
    return ranges().shown_totals(0).at(static_cast<std::size_t>(kind)).pinned;
  }
};

TEST_F(NicTest, RegisteredMemoryStaysUntilItIsDeregistered) {
  const CUdeviceptr address = allocate(16 * kMiB);  // in chunks of 4 MiB
  wire::Epoch epoch = hold_lease();
  ibv_mr* const region = reg(address + 5 * kMiB, 4 * kMiB);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(unpageable(), 8 * kMiB);
  EXPECT_EQ(manager_.used(), 16 * kMiB) << "it is charged once";
  EXPECT_EQ(reasons(), "registered with a NIC;");
  EXPECT_EQ(shown(wire::MemoryKind::kRdma), 8 * kMiB);
  EXPECT_EQ(shown(wire::MemoryKind::kAlloc), 0u);
  EXPECT_EQ(left_after_eviction(epoch), 8 * kMiB);
  EXPECT_TRUE(driver_.write(address + 5 * kMiB, std::vector<std::byte>(4 * kMiB)));
  // Without a lease: what only gives back does not wait.
  EXPECT_EQ(shim::ibv_dereg_mr(region), 0);
  expect_pageable_again();
  EXPECT_EQ(evict(1024 * kMiB).failed, 0u);
  EXPECT_EQ(driver_.used_bytes(), 0u);
}

TEST_F(NicTest, MemoryInTheHostIsBroughtBackToBeRegistered) {
  const CUdeviceptr address = allocate(8 * kMiB);
  take_lease_back(hold_lease());
  EXPECT_EQ(evict(1024 * kMiB).failed, 0u);
  ASSERT_EQ(driver_.used_bytes(), 0u);
  jobs_.emplace_back([&] {
    driver_.set_current(context_);
    EXPECT_NE(reg(address, 8 * kMiB), nullptr);
    EXPECT_TRUE(driver_.write(address, std::vector<std::byte>(8 * kMiB)));
    ++launched_;
  });
  manager_.wait_for(wire::Type::kWantLease);
  EXPECT_EQ(fake.registrations, 0);
  manager_.grant_and_run();
  wait_launched(static_cast<int>(jobs_.size()));
  EXPECT_EQ(unpageable(), 8 * kMiB);
}

TEST_F(NicTest, WhatIsRegisteredTwiceStaysUntilTheLastIsDeregistered) {
  const CUdeviceptr address = allocate(8 * kMiB);
  const wire::Epoch epoch = hold_lease();
  ibv_mr* const first = reg(address, 8 * kMiB);
  ibv_mr* const second = reg(address, kMiB);
  EXPECT_EQ(unpageable(), 8 * kMiB);
  EXPECT_EQ(shim::ibv_dereg_mr(first), 0);
  EXPECT_EQ(unpageable(), 4 * kMiB);
  EXPECT_EQ(left_after_eviction(epoch), 4 * kMiB);
  EXPECT_EQ(shim::ibv_dereg_mr(second), 0);
  expect_pageable_again();
}

TEST_F(NicTest, WhatTheNicRefusesStaysPageable) {
  const CUdeviceptr address = allocate(8 * kMiB);
  const wire::Epoch epoch = hold_lease();
  fake.refuses = true;
  errno = 0;
  EXPECT_EQ(reg(address, 8 * kMiB), nullptr);
  EXPECT_EQ(errno, EFAULT) << "the library's own";
  expect_pageable_again();
  EXPECT_EQ(left_after_eviction(epoch), 0u);
}

TEST_F(NicTest, HbmThatOthersWerePromisedIsNotRegistered) {
  const CUdeviceptr address = allocate(8 * kMiB);
  hold_lease();
  manager_.refuses_pins = true;
  EXPECT_EQ(reg(address, 8 * kMiB), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(fake.registrations, 0);
  expect_pageable_again();
}

TEST_F(NicTest, HostMemoryIsRegisteredWithoutALease) {
  allocate(4 * kMiB);
  char host[64];
  ibv_mr* const region = shim::ibv_reg_mr_iova2(nullptr, host, sizeof host, 0, 0);
  EXPECT_NE(region, nullptr);
  EXPECT_EQ(shim::ibv_dereg_mr(region), 0);
  expect_pageable_again();
}

TEST_F(NicTest, ACallInsideOfACallIsOneRegistration) {
  const CUdeviceptr address = allocate(8 * kMiB);
  hold_lease();
  fake.calls_itself = true;
  ibv_mr* const region = reg(address, 8 * kMiB);
  EXPECT_EQ(fake.registrations, 2);
  EXPECT_EQ(shim::ibv_dereg_mr(region), 0);
  expect_pageable_again();
}

TEST_F(NicTest, ARegionThatIsChangedHoldsItsNewMemory) {
  const CUdeviceptr before = allocate(4 * kMiB), after = allocate(8 * kMiB);
  hold_lease();
  ibv_mr* const region = reg(before, 4 * kMiB);
  const auto change = [&](int flags, int result) {
    fake.next_result = result;
    return shim::ibv_rereg_mr(region, flags, nullptr, at(after), 8 * kMiB, 0);
  };
  EXPECT_EQ(change(4, 0), 0) << "access alone";
  EXPECT_EQ(unpageable(), 4 * kMiB);
  EXPECT_EQ(change(IBV_REREG_MR_CHANGE_TRANSLATION, IBV_REREG_MR_ERR_INPUT),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(unpageable(), 4 * kMiB) << "it is as it was";
  EXPECT_EQ(change(IBV_REREG_MR_CHANGE_TRANSLATION, 0), 0);
  EXPECT_EQ(unpageable(), 8 * kMiB);
  EXPECT_TRUE(ranges().is_pinned(after));
  EXPECT_FALSE(ranges().is_pinned(before));
  constexpr int kUnknownOutcome = -4;
  fake.next_result = kUnknownOutcome;
  EXPECT_EQ(
      shim::ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, at(before), 4 * kMiB, 0),
      kUnknownOutcome);
  EXPECT_EQ(unpageable(), 12 * kMiB) << "it may be either";
  EXPECT_EQ(shim::ibv_dereg_mr(region), 0);
  expect_pageable_again();
}

TEST_F(NicTest, WhatCouldNotBeDeregisteredStays) {
  const CUdeviceptr address = allocate(8 * kMiB);
  hold_lease();
  ibv_mr* const region = reg(address, 8 * kMiB);
  fake.next_result = EBUSY;
  EXPECT_EQ(shim::ibv_dereg_mr(region), EBUSY);
  EXPECT_EQ(unpageable(), 8 * kMiB);
  EXPECT_EQ(shim::ibv_dereg_mr(region), 0);
  expect_pageable_again();
}

TEST_F(NicTest, WhatWasFreedWhileItWasRegisteredLetsNothingOfItsSuccessorGo) {
  const CUdeviceptr address = allocate(8 * kMiB);
  hold_lease();
  ibv_mr* const region = reg(address, 8 * kMiB);
  EXPECT_EQ(shim::cuMemFree_v2(address), CUDA_SUCCESS);
  ASSERT_EQ(allocate(8 * kMiB), address);
  ibv_mr* const successor = reg(address, 8 * kMiB);
  EXPECT_EQ(shim::ibv_dereg_mr(region), 0);
  EXPECT_TRUE(ranges().is_pinned(address));
  EXPECT_EQ(reasons(), "registered with a NIC;");
  EXPECT_EQ(shim::ibv_dereg_mr(successor), 0);
  tell_what_was_freed();
  expect_pageable_again();
}

TEST_F(NicTest, ARegionOverSeveralMappingsHoldsEach) {
  CUdeviceptr start = 0;
  ASSERT_EQ(shim::cuMemAddressReserve(&start, 16 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  const CUmemGenericAllocationHandle handles[] = {create(8 * kMiB), create(8 * kMiB)};
  ASSERT_EQ(shim::cuMemMap(start, 8 * kMiB, 0, handles[0], 0), CUDA_SUCCESS);
  ASSERT_EQ(shim::cuMemMap(start + 8 * kMiB, 8 * kMiB, 0, handles[1], 0), CUDA_SUCCESS);
  hold_lease();
  ibv_mr* const region = reg(start + 7 * kMiB, 2 * kMiB);
  EXPECT_TRUE(ranges().is_pinned(*process_.vmm.range_of(handles[0]) + 7 * kMiB));
  EXPECT_TRUE(ranges().is_pinned(*process_.vmm.range_of(handles[1])));
  EXPECT_EQ(shown(wire::MemoryKind::kRdma), unpageable());
  EXPECT_EQ(shim::ibv_dereg_mr(region), 0);
  expect_pageable_again();
  EXPECT_EQ(shim::cuMemUnmap(start, 16 * kMiB), CUDA_SUCCESS);
  for (const auto handle : handles) EXPECT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemAddressFree(start, 16 * kMiB), CUDA_SUCCESS);
}

TEST_F(NicTest, WithoutHostMemoryForItsNotesNothingIsHeldAndNobodyIsInside) {
  CUdeviceptr start = 0;
  ASSERT_EQ(shim::cuMemAddressReserve(&start, 16 * kMiB, 0, 0, 0), CUDA_SUCCESS);
  const CUmemGenericAllocationHandle handles[] = {create(8 * kMiB), create(8 * kMiB)};
  ASSERT_EQ(shim::cuMemMap(start, 8 * kMiB, 0, handles[0], 0), CUDA_SUCCESS);
  ASSERT_EQ(shim::cuMemMap(start + 8 * kMiB, 8 * kMiB, 0, handles[1], 0), CUDA_SUCCESS);
  hold_lease();
  for (const std::size_t notes : {1, 2}) {
    failing_size = notes * sizeof(Pins::Held);
    EXPECT_EQ(reg(start, 16 * kMiB), nullptr);
    EXPECT_EQ(failing_size, 0u) << "it was asked for";
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(Gate::threads_inside(), 0u);
    expect_pageable_again();
  }
  EXPECT_EQ(shim::cuMemUnmap(start, 16 * kMiB), CUDA_SUCCESS);
  for (const auto handle : handles) EXPECT_EQ(shim::cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemAddressFree(start, 16 * kMiB), CUDA_SUCCESS);
}

TEST_F(NicTest, EachReasonIsToldAsLongAsItHolds) {
  const CUdeviceptr address = allocate(8 * kMiB);
  hold_lease();
  ASSERT_EQ(export_dma_buf(address, kMiB), CUDA_SUCCESS);
  ibv_mr* const region = reg(address, 8 * kMiB);
  EXPECT_EQ(reasons(), "exported as a dma-buf;registered with a NIC;");
  EXPECT_EQ(shim::ibv_dereg_mr(region), 0);
  EXPECT_EQ(reasons(), "exported as a dma-buf;");
  EXPECT_EQ(unpageable(), 4 * kMiB);
}

}  // namespace
}  // namespace plexrl::shim
