#include "shim/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "interpose/handlers.h"
#include "shim/gate.h"
#include "shim/hooks.h"
#include "tests/unit/shim/process_fixture.h"

namespace plexrl::shim {
namespace {

using testing::kMiB;
using testing::ProcessTest;

TEST_F(ProcessTest, TwoAllocationsOfHalfABlockTakeOne) {
  hold_lease();
  CUdeviceptr first = 0, second = 0;
  ASSERT_EQ(shim::cuMemAlloc_v2(&first, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(shim::cuMemAlloc_v2(&second, kMiB), CUDA_SUCCESS);
  const auto figures = process_.devices.figures(0);
  ASSERT_TRUE(figures);
  EXPECT_EQ(figures->used_bytes, 2 * kMiB);
}

TEST_F(ProcessTest, ALaunchWaitsForTheLeaseAndAsksForIt) {
  launch_aside();
  const auto packet = manager_.wait_for(wire::Type::kWantLease);
  EXPECT_EQ(packet->as<wire::WantLease>()->gpus, 1u);
  EXPECT_EQ(launched_, 0);
  const wire::Epoch epoch = manager_.grant();
  manager_.wait_for(wire::Type::kLoaded);
  EXPECT_EQ(launched_, 0);
  manager_.send(wire::Type::kRun, wire::LeaseRef{epoch});
  wait_launched(1);
}

TEST_F(ProcessTest, AGrantThatRunsNowOpensTheGateAtOnce) {
  launch_aside();
  manager_.wait_for(wire::Type::kWantLease);
  manager_.grant(wire::kGrantRunNow);
  wait_launched(1);
  EXPECT_FALSE(manager_.has(wire::Type::kLoaded));
}

TEST_F(ProcessTest, AnAllocationNeedsNoLeaseAndIsBackedBeforeTheGateOpens) {
  const CUdeviceptr address = allocate(10 * kMiB);
  EXPECT_EQ(driver_.used_bytes(), 0u);
  EXPECT_EQ(manager_.used(), 10 * kMiB);
  hold_lease();
  EXPECT_TRUE(driver_.write(address, std::vector<std::byte>(10 * kMiB)));
}

TEST_F(ProcessTest, WithALeaseAnAllocationIsBackedWhenItReturns) {
  hold_lease();
  const CUdeviceptr address = allocate(3 * kMiB);
  EXPECT_TRUE(driver_.write(address, std::vector<std::byte>(3 * kMiB)));
  const CUdeviceptr small = allocate(100);
  EXPECT_TRUE(driver_.write(small, std::vector<std::byte>(100)));
}

TEST_F(ProcessTest, BeyondThePromiseIsOutOfMemoryAndTheOutputStays) {
  manager_.promised = 16 * kMiB;
  CUdeviceptr address = 42;
  EXPECT_EQ(shim::cuMemAlloc_v2(&address, 17 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(address, 42u);
  EXPECT_EQ(manager_.used(), 0u);
}

TEST_F(ProcessTest, ASizeThatWrapsIsOutOfMemory) {
  CUdeviceptr address = 42;
  EXPECT_EQ(shim::cuMemAlloc_v2(&address, ~std::size_t{0} - 100), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(ProcessTest, FreeGivesTheChargeBack) {
  const CUdeviceptr address = allocate(10 * kMiB);
  EXPECT_EQ(shim::cuMemFree_v2(address), CUDA_SUCCESS);
  allocate(2 * kMiB);  // a question comes after what was freed before it
  EXPECT_EQ(manager_.used(), 2 * kMiB);
}

TEST_F(ProcessTest, FreeWaitsForOutstandingWorkOnlyWithALease) {
  const CUdeviceptr first = allocate(2 * kMiB);
  EXPECT_EQ(shim::cuMemFree_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(driver_.calls("cuCtxSynchronize"), 0);
  const CUdeviceptr second = allocate(2 * kMiB);
  hold_lease();
  EXPECT_EQ(shim::cuMemFree_v2(second), CUDA_SUCCESS);
  EXPECT_EQ(driver_.calls("cuCtxSynchronize"), 1);
}

TEST_F(ProcessTest, FreeingTwiceOrTheMiddleIsTheDriversBusiness) {
  const CUdeviceptr address = allocate(10 * kMiB);
  shim::cuMemFree_v2(address + 512);
  EXPECT_EQ(driver_.calls("cuMemFree_v2"), 1);
  EXPECT_EQ(shim::cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(driver_.calls("cuMemFree_v2"), 1);
  shim::cuMemFree_v2(address);
  EXPECT_EQ(driver_.calls("cuMemFree_v2"), 2);
}

TEST_F(ProcessTest, BytesSurviveASwitch) {
  const CUdeviceptr address = allocate(20 * kMiB);
  const wire::Epoch epoch = hold_lease();
  std::vector<std::byte> bytes(20 * kMiB);
  for (std::size_t i = 0; i < bytes.size(); i += 4096) bytes[i] = static_cast<std::byte>(i >> 12);
  ASSERT_TRUE(driver_.write(address, bytes));
  take_lease_back(epoch);
  const wire::Evicted out = evict(~std::uint64_t{0});
  EXPECT_EQ(out.failed, 0u);
  EXPECT_EQ(out.moved_bytes, 20 * kMiB);
  EXPECT_EQ(driver_.used_bytes(), 0u);
  hold_lease();
  std::vector<std::byte> found(bytes.size());
  ASSERT_TRUE(driver_.read(address, &found));
  EXPECT_TRUE(found == bytes);
}

TEST_F(ProcessTest, NothingIsEvictedUnderAnOpenGate) {
  allocate(4 * kMiB);
  hold_lease();
  const wire::Evicted out = evict(~std::uint64_t{0});
  EXPECT_EQ(out.failed, 1u);
  EXPECT_EQ(out.freed_bytes, 0u);
  EXPECT_EQ(driver_.used_bytes(), 4 * kMiB);
}

TEST_F(ProcessTest, AWithdrawalFailsWhileWorkIsOutstandingAndTheLeaseGoesOn) {
  const wire::Epoch epoch = hold_lease();
  driver_.set_busy(CU_STREAM_LEGACY, true);
  launch();
  withdraw(epoch);
  const auto packet = manager_.wait_for(wire::Type::kNotDrained);
  EXPECT_THAT(packet->as<wire::NotDrained>()->obstacle, ::testing::StartsWith("stream 0x1 busy"));
  EXPECT_FALSE(gate.is_open());
  EXPECT_EQ(evict(kMiB).failed, 1u);
  manager_.send(wire::Type::kReopen, wire::LeaseRef{epoch});
  launch();
  driver_.set_busy(CU_STREAM_LEGACY, false);
}

TEST_F(ProcessTest, AWithdrawalSucceedsWhenTheWorkFinishes) {
  const wire::Epoch epoch = hold_lease();
  launch();
  take_lease_back(epoch);
  EXPECT_FALSE(gate.is_open());
  EXPECT_TRUE(process_.keeper.is_quiet());
}

TEST_F(ProcessTest, AnExclusiveProcessIsNeverCut) {
  const wire::Epoch epoch = hold_lease();
  note_exclusive("a reason by name");
  EXPECT_STREQ(manager_.wait_for(wire::Type::kExclusive)->as<wire::Exclusive>()->reason,
               "a reason by name");
  withdraw(epoch);
  EXPECT_STREQ(manager_.wait_for(wire::Type::kNotDrained)->as<wire::NotDrained>()->obstacle,
               "a reason by name");
  EXPECT_TRUE(gate.is_open());
}

TEST_F(ProcessTest, AnOldGrantIsDropped) {
  const wire::Epoch epoch = hold_lease();
  take_lease_back(epoch);
  wire::Grant old{};
  old.epoch = epoch;
  old.gpus = 1;
  old.flags = wire::kGrantRunNow;
  manager_.send(wire::Type::kGrant, old);
  evict(kMiB);  // an answer comes after the grant was looked at
  EXPECT_FALSE(gate.is_open());
}

TEST_F(ProcessTest, EdgesOfIdleAndBusyAreTold) {
  hold_lease();
  EXPECT_EQ(manager_.wait_for(wire::Type::kActivity)->as<wire::Activity>()->first_is_busy, 1u);
  EXPECT_EQ(manager_.wait_for(wire::Type::kActivity)->as<wire::Activity>()->first_is_busy, 0u);
  launch();
  EXPECT_EQ(manager_.wait_for(wire::Type::kActivity)->as<wire::Activity>()->first_is_busy, 1u);
}

TEST_F(ProcessTest, WithoutFreeHbmAnAllocationClosesTheGateUntilThereIsSome) {
  hold_lease();
  driver_.fail_always("cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY);
  const CUdeviceptr address = allocate(4 * kMiB);
  EXPECT_FALSE(gate.is_open());
  manager_.wait_for(wire::Type::kWantLease);  // the holder tells that it lacks memory
  driver_.fail_always("cuMemCreate", CUDA_SUCCESS);
  launch();
  EXPECT_TRUE(driver_.write(address, std::vector<std::byte>(4 * kMiB)));
}

TEST_F(ProcessTest, FiguresAreThePromiseMinusTheUse) {
  manager_.promised = 40 * kMiB;
  allocate(10 * kMiB);
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_EQ(shim::cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, 40 * kMiB);
  EXPECT_EQ(free, 30 * kMiB);
  EXPECT_EQ(shim::cuMemGetInfo_v2(nullptr, nullptr), CUDA_SUCCESS);
}

TEST_F(ProcessTest, FiguresNeedAContextAsTheDriversDo) {
  driver_.set_current(nullptr);
  std::size_t free = 7;
  EXPECT_EQ(shim::cuMemGetInfo_v2(&free, nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(free, 7u);
  driver_.set_current(context_);
}

TEST_F(ProcessTest, PointerQueriesAnswerForTheUsersBlock) {
  const CUdeviceptr address = allocate(1000);
  CUdeviceptr base = 0;
  std::size_t size = 0;
  EXPECT_EQ(shim::cuMemGetAddressRange_v2(&base, &size, address + 999), CUDA_SUCCESS);
  EXPECT_EQ(base, address);
  EXPECT_EQ(size, 1000u);
  unsigned int type = 0;
  EXPECT_EQ(shim::cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
            CUDA_SUCCESS);
  EXPECT_EQ(type, static_cast<unsigned int>(CU_MEMORYTYPE_DEVICE));
  void* host = &host;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                  CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void* data[] = {&size, &host};
  EXPECT_EQ(shim::cuPointerGetAttributes(2, wanted, data, address), CUDA_SUCCESS);
  EXPECT_EQ(size, 1000u);
  EXPECT_EQ(host, nullptr);
}

TEST_F(ProcessTest, GpuDirectIsToldAsTheDeviceHasIt) {
  const CUdeviceptr address = allocate(1000);
  unsigned int capable = 9;
  EXPECT_EQ(shim::cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
                                        address),
            CUDA_SUCCESS);
  EXPECT_EQ(capable, 0u);
  driver_.has_gpu_direct = true;
  shim::cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, address);
  EXPECT_EQ(capable, 1u);
}

TEST_F(ProcessTest, TwoSmallBlocksHaveDifferentBufferIds) {
  const CUdeviceptr a = allocate(100);
  const CUdeviceptr b = allocate(100);
  unsigned long long id_a = 0;
  unsigned long long id_b = 0;
  shim::cuPointerGetAttribute(&id_a, CU_POINTER_ATTRIBUTE_BUFFER_ID, a);
  shim::cuPointerGetAttribute(&id_b, CU_POINTER_ATTRIBUTE_BUFFER_ID, b);
  EXPECT_NE(id_a, id_b);
}

TEST_F(ProcessTest, PitchedRowsAreAlignedAndCharged) {
  CUdeviceptr address = 0;
  std::size_t pitch = 0;
  EXPECT_EQ(shim::cuMemAllocPitch_v2(&address, &pitch, 1000, 4096, 4), CUDA_SUCCESS);
  EXPECT_EQ(pitch, 1024u);
  EXPECT_EQ(manager_.used(), 4 * kMiB);
}

TEST_F(ProcessTest, ADestroyedContextTakesItsAllocationsWithIt) {
  CUcontext other = nullptr;
  ASSERT_EQ(shim::cuCtxCreate_v4(&other, nullptr, 0, 0), CUDA_SUCCESS);
  const CUdeviceptr address = allocate(4 * kMiB);
  EXPECT_EQ(shim::cuCtxDestroy_v2(other), CUDA_SUCCESS);
  EXPECT_FALSE(process_.memory.find(address));
  driver_.set_current(context_);
  allocate(2 * kMiB);
  EXPECT_EQ(manager_.used(), 2 * kMiB);
}

TEST_F(ProcessTest, AContextMadeByAPrivateTableIsNotedWhenItBecomesCurrent) {
  const CUcontext hidden = driver_.make_context();
  EXPECT_FALSE(contexts().device_of(hidden));
  EXPECT_EQ(shim::cuCtxPushCurrent_v2(hidden), CUDA_SUCCESS);
  EXPECT_EQ(contexts().device_of(hidden), 0);
  contexts().remove(hidden);
  driver_.set_current(context_);
}

TEST_F(ProcessTest, AContextWithoutRoomWaitsForTheLeaseAndForNeighboursToLeave) {
  allocate(1);  // attaches the GPU
  driver_.fail_always("cuCtxCreate_v4", CUDA_ERROR_OUT_OF_MEMORY);
  CUcontext made = nullptr;
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::thread job([&] {
    driver_.set_current(context_);
    result = shim::cuCtxCreate_v4(&made, nullptr, 0, 0);
  });
  manager_.wait_for(wire::Type::kWantLease);
  manager_.grant_and_run();
  manager_.wait_for(wire::Type::kWantLease);  // holds it, and lacks memory
  driver_.fail_always("cuCtxCreate_v4", CUDA_SUCCESS);
  job.join();
  EXPECT_EQ(result, CUDA_SUCCESS);
  contexts().remove(made);
}

TEST_F(ProcessTest, AFunctionThatIsLoadedLateWaitsForRoomAsItsModuleWould) {
  allocate(1);  // attaches the GPU
  driver_.fail_always("cuModuleGetFunction", CUDA_ERROR_OUT_OF_MEMORY);
  CUfunction found = nullptr;
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::thread job([&] {
    driver_.set_current(context_);
    result = call_with_room(
        [&] { return driver.cuModuleGetFunction(&found, nullptr, "none of this name"); });
  });
  manager_.wait_for(wire::Type::kWantLease);
  manager_.grant_and_run();
  manager_.wait_for(wire::Type::kWantLease);  // holds it, and lacks memory
  driver_.fail_always("cuModuleGetFunction", CUDA_ERROR_NOT_FOUND);
  job.join();
  EXPECT_EQ(result, CUDA_ERROR_NOT_FOUND);
  driver_.fail_always("cuModuleGetFunction", CUDA_SUCCESS);
}

TEST_F(ProcessTest, ALaunchWhoseKernelIsLoadedLateWaitsForRoomInsideTheGate) {
  allocate(1);
  hold_lease();
  std::uint32_t inside = 0;
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::atomic<bool> may_load{false};
  std::thread job([&] {
    driver_.set_current(context_);
    const auto launch = [&] {
      inside = Gate::threads_inside();
      return may_load ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    };
    result = gate_again({interpose::Api::cuLaunchKernel, CU_STREAM_LEGACY}, launch);
  });
  manager_.wait_for(wire::Type::kWantLease);  // holds it, and lacks memory
  may_load = true;
  job.join();
  EXPECT_EQ(result, CUDA_SUCCESS);
  EXPECT_EQ(inside, 1u);
}

TEST_F(ProcessTest, AStreamWithoutRoomWaitsForTheLeaseAndForNeighboursToLeave) {
  allocate(1);
  driver_.fail_always("cuStreamCreate", CUDA_ERROR_OUT_OF_MEMORY);
  CUstream made = nullptr;
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::thread job([&] {
    driver_.set_current(context_);
    result = shim::cuStreamCreate(&made, 0);
  });
  manager_.wait_for(wire::Type::kWantLease);
  manager_.grant_and_run();
  manager_.wait_for(wire::Type::kWantLease);
  driver_.fail_always("cuStreamCreate", CUDA_SUCCESS);
  job.join();
  EXPECT_EQ(result, CUDA_SUCCESS);
  EXPECT_EQ(shim::cuStreamDestroy_v2(made), CUDA_SUCCESS);
}

TEST_F(ProcessTest, WhatStaysTheDriversIsChargedAndReported) {
  CUdeviceptr pooled = 0x5000;
  const interpose::CountedCall call{interpose::Api::cuMemAllocAsync,
                                    interpose::UnpageableKind::kPool, 6 * kMiB, nullptr};
  EXPECT_EQ(count_enter(call), CUDA_SUCCESS);
  count_leave(call, pooled, CUDA_SUCCESS);
  EXPECT_EQ(manager_.used(), 6 * kMiB);
  const auto kind = static_cast<int>(wire::MemoryKind::kPool);
  while (manager_.wait_for(wire::Type::kMemoryReport)->as<wire::MemoryReport>()->kind_bytes[kind] !=
         6 * kMiB) {
  }
  EXPECT_EQ(shim::cuMemFree_v2(pooled), CUDA_SUCCESS);
  allocate(2 * kMiB);
  EXPECT_EQ(manager_.used(), 2 * kMiB);
}

TEST_F(ProcessTest, WhatTheDriverRefusesIsNotCharged) {
  const interpose::CountedCall call{interpose::Api::cuMemAllocAsync,
                                    interpose::UnpageableKind::kPool, 6 * kMiB, nullptr};
  EXPECT_EQ(count_enter(call), CUDA_SUCCESS);
  count_leave(call, 0, CUDA_ERROR_OUT_OF_MEMORY);
  allocate(2 * kMiB);
  EXPECT_EQ(manager_.used(), 2 * kMiB);
}

TEST_F(ProcessTest, DriverMemoryBeyondThePromiseIsOutOfMemory) {
  const interpose::CountedCall call{interpose::Api::cuMemAllocAsync,
                                    interpose::UnpageableKind::kPool, 2000 * kMiB, nullptr};
  EXPECT_EQ(count_enter(call), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(ProcessTest, ManagedMemoryCountsAgainstThePromise) {
  manager_.promised = 8 * kMiB;
  allocate(4 * kMiB);
  const auto managed = [](std::uint64_t bytes) {
    return interpose::CountedCall{interpose::Api::cuMemAllocManaged,
                                  interpose::UnpageableKind::kManaged, bytes, nullptr};
  };
  EXPECT_EQ(count_enter(managed(5 * kMiB)), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(count_enter(managed(4 * kMiB)), CUDA_SUCCESS);
  count_leave(managed(4 * kMiB), 0x5000, CUDA_SUCCESS);
  EXPECT_EQ(manager_.unpageable(), 4 * kMiB);
  CUdeviceptr none = 0;
  EXPECT_EQ(shim::cuMemAlloc_v2(&none, 1 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(shim::cuMemFree_v2(0x5000), CUDA_SUCCESS);
  allocate(4 * kMiB);
  EXPECT_EQ(manager_.unpageable(), 0u);
}

TEST_F(ProcessTest, WhatTheNeighboursPromisesRefuseIsExplainedOnce) {
  const auto array = [](std::uint64_t bytes) {
    return interpose::CountedCall{interpose::Api::cuMemAllocManaged,
                                  interpose::UnpageableKind::kManaged, bytes, nullptr};
  };
  manager_.refuses_pins = true;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(count_enter(array(8 * kMiB)), CUDA_ERROR_OUT_OF_MEMORY);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("8 MiB that only the driver can move"), std::string::npos) << said;
  EXPECT_EQ(said.find("out of memory"), said.rfind("out of memory")) << said;
}

TEST_F(ProcessTest, AHolderGoesOnWithoutAManagerAndTellsTheNextOne) {
  allocate(4 * kMiB);
  const wire::Epoch epoch = hold_lease();
  manager_.die();
  launch();
  const CUdeviceptr address = allocate(2 * kMiB);
  EXPECT_TRUE(driver_.write(address, std::vector<std::byte>(2 * kMiB)));
  manager_.start();
  const auto packet = manager_.wait_for(wire::Type::kResumeState);
  const auto* const state = packet->as<wire::ResumeState>();
  EXPECT_EQ(state->held, epoch);
  EXPECT_EQ(state->flags, 1u);
  EXPECT_EQ(state->charged_bytes, 6 * kMiB);
  EXPECT_EQ(state->resident_bytes, 6 * kMiB);
  EXPECT_EQ(manager_.last_hello().flags, static_cast<std::uint32_t>(wire::kHelloResume));
  EXPECT_EQ(manager_.last_hello().session, 77u);
}

TEST_F(ProcessTest, TheNextManagerLearnsOfAllSlabsHoweverMuchOfThemIsInUse) {
  const CUdeviceptr address = allocate(4 * kMiB);
  wire::Epoch epoch = hold_lease();
  EXPECT_TRUE(driver_.write(address, std::vector<std::byte>(4 * kMiB, std::byte{1})));
  EXPECT_TRUE(driver_.write(address, {std::byte{2}}));  // else it leaves without a copy
  take_lease_back(epoch);
  EXPECT_EQ(evict(4 * kMiB).moved_bytes, 4 * kMiB);
  const std::size_t held = process_.store.bytes();
  EXPECT_GE(held, 4 * kMiB);
  EXPECT_EQ(process_.store.held_bytes(), held);
  hold_lease();  // the bytes are in HBM again, and their copy is kept
  manager_.die();
  manager_.start();
  EXPECT_EQ(manager_.wait_for(wire::Type::kSlabsHeld)->as<wire::SlabsHeld>()->bytes, held);
  EXPECT_EQ(manager_.wait_for(wire::Type::kResumeState)->as<wire::ResumeState>()->host_bytes, 0u);
  EXPECT_EQ(shim::cuMemFree_v2(address), CUDA_SUCCESS);
}

TEST_F(ProcessTest, AWaiterWaitsForTheNextManager) {
  launch_aside();
  manager_.wait_for(wire::Type::kWantLease);
  manager_.die();
  manager_.start();
  manager_.wait_for(wire::Type::kResumeState);
  manager_.wait_for(wire::Type::kWantLease);
  EXPECT_EQ(launched_, 0);
  manager_.grant_and_run();
  wait_launched(1);
}

TEST_F(ProcessTest, WhatComesWhileTheAgentAsksIsNotSleptOn) {
  allocate(4 * kMiB);
  take_lease_back(hold_lease());
  manager_.die();
  manager_.evicts_before_attached = wire::Evict{0, 0, ~std::uint64_t{0}};
  manager_.start();
  const auto packet = manager_.wait_for(wire::Type::kEvicted);
  EXPECT_EQ(packet->request, 99u);
  EXPECT_EQ(packet->as<wire::Evicted>()->freed_bytes, 4 * kMiB);
}

TEST_F(ProcessTest, ADrainThatLosesItsManagerReopens) {
  const wire::Epoch epoch = hold_lease();
  take_lease_back(epoch);
  const wire::Epoch second = hold_lease();
  driver_.set_busy(CU_STREAM_LEGACY, true);
  launch();
  withdraw(second);
  manager_.die();
  launch();  // passes again
  driver_.set_busy(CU_STREAM_LEGACY, false);
  manager_.start();
  EXPECT_EQ(manager_.wait_for(wire::Type::kResumeState)->as<wire::ResumeState>()->held, second);
}

// The GPU may be another gang's by then, so the gate must not open on the strength of the old
// lease.
TEST_F(ProcessTest, WhoSaidItIsDrainedDoesNotReopenWithoutAManager) {
  const wire::Epoch epoch = hold_lease();
  withdraw(epoch);
  manager_.wait_for(wire::Type::kDrained);
  manager_.die();
  launch_aside();
  manager_.start();
  const auto packet = manager_.wait_for(wire::Type::kResumeState);
  EXPECT_EQ(packet->as<wire::ResumeState>()->held, wire::Epoch{});
  EXPECT_EQ(packet->as<wire::ResumeState>()->flags, 0u);
  manager_.wait_for(wire::Type::kWantLease);
  EXPECT_EQ(launched_, 1);
  manager_.grant_and_run();
  wait_launched(2);
}

TEST_F(ProcessTest, AMalformedPacketIsALostConnection) {
  hold_lease();
  manager_.send_raw("nonsense", 8);
  manager_.wait_for(wire::Type::kResumeState);
  launch();
}

TEST_F(ProcessTest, ACaptureDefersFreesAndFailsADrain) {
  const CUdeviceptr address = allocate(4 * kMiB);
  const wire::Epoch epoch = hold_lease();
  CUstream stream = nullptr;
  ASSERT_EQ(shim::cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(shim::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(driver_.calls("cuCtxSynchronize"), 0);
  EXPECT_EQ(driver_.used_bytes(), 4 * kMiB);
  withdraw(epoch);
  EXPECT_STREQ(manager_.wait_for(wire::Type::kNotDrained)->as<wire::NotDrained>()->obstacle,
               "capture in progress");
  manager_.send(wire::Type::kReopen, wire::LeaseRef{epoch});
  CUgraph graph = nullptr;
  ASSERT_EQ(shim::cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  take_lease_back(epoch);
  EXPECT_EQ(driver_.used_bytes(), 0u);
  ASSERT_EQ(shim::cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

TEST(ProcessJoin, ARefusalSaysWhy) {
  testing::FakeDriver driver;
  testing::FakeManager manager;
  manager.refuses = true;
  Process process({{1, 2}, {3, 4}}, [&] { return manager.dial(); });
  wire::Error why{};
  EXPECT_EQ(process.join(&why), Client::Handshake::kRefused);
  EXPECT_STREQ(why.text, "the job's secret is wrong");
}

TEST(ProcessJoin, AMalformedWelcomeIsARefusal) {
  testing::FakeDriver driver;
  testing::FakeManager manager;
  manager.sends_malformed_welcome = true;
  Process process({{1, 2}, {3, 4}}, [&] { return manager.dial(); });
  wire::Error why{};
  EXPECT_EQ(process.join(&why), Client::Handshake::kRefused);
}

TEST(ProcessJoin, AManagerThatDoesNotAnswerYetIsWaitedForAsLongAsItLives) {
  testing::FakeDriver driver;
  testing::FakeManager manager;
  manager.is_silent = true;
  Process process({{1, 2}, {3, 4}}, [&] { return manager.dial(); });
  wire::Error why{};
  auto handshake = Client::Handshake::kAdmitted;
  std::thread joining([&] { handshake = process.join(&why); });
  EXPECT_NE(manager.wait_for(wire::Type::kHello), nullptr);
  manager.die();
  joining.join();
  EXPECT_EQ(handshake, Client::Handshake::kLost);
}

TEST(ProcessJoin, NobodyIsToldApartFromARefusal) {
  testing::FakeDriver driver;
  Process process({{1, 2}, {3, 4}}, [] { return ScopedFd{}; });
  wire::Error why{};
  EXPECT_EQ(process.join(&why), Client::Handshake::kNobody);
}

TEST(ProcessStart, WithoutAJobTheProcessIsUnsharedAndCallsAreTheDrivers) {
  testing::FakeDriver driver;
  driver.set_current(driver.make_context());
  ::unsetenv("PLEXRL_JOB_ID");
  CUdeviceptr address = 0;
  EXPECT_EQ(shim::cuMemAlloc_v2(&address, 100), CUDA_SUCCESS);
  EXPECT_EQ(driver.calls("cuMemAlloc_v2"), 1);
  EXPECT_TRUE(gate.is_open());
  Process::forget();
  gate.close();
}

}  // namespace
}  // namespace plexrl::shim
