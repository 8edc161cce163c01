#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "interpose/handlers.h"
#include "shim/capability.h"
#include "shim/process.h"
#include "tests/unit/shim/sharing_fixture.h"

/// Memory between processes: a step that fails leaves nothing behind, and is made up for.
namespace plexrl::shim {
namespace {

using testing::kBytes;
using testing::kChunk;
using testing::kChunks;
using testing::kMiB;
using testing::kTheirs;
using testing::open_descriptors;
using testing::SharingTest;

// ---- the importer

TEST_F(SharingTest, WorkWaitsUntilImportedMemoryIsMapped) {
  hold_lease();
  CUdeviceptr address = 0;
  ASSERT_EQ(open(capability(kTheirs), &address), CUDA_SUCCESS);
  launch_aside();
  serve();
  wait_launched(2);
  EXPECT_TRUE(driver_.write(address, std::vector<std::byte>(kBytes)));
  EXPECT_EQ(shim::cuIpcCloseMemHandle(address), CUDA_SUCCESS);
  manager_.wait_for(wire::Type::kImportClosed);
  EXPECT_EQ(driver_.mapped_bytes(), 0u);
}

TEST_F(SharingTest, AChunkThatCouldNotBeMappedIsAskedForAgain) {
  struct {
    const char* call;
    int nth;
  } const steps[] = {{"cuMemImportFromShareableHandle", 1},
                     {"cuMemImportFromShareableHandle", 2},
                     {"cuMemMap", 1},
                     {"cuMemMap", 2},
                     {"cuMemSetAccess", 1},
                     {"cuMemSetAccess", 2}};
  hold_lease();
  int launches = 1;
  for (const auto& step : steps) {
    SCOPED_TRACE(step.call + std::string(" ") + std::to_string(step.nth));
    CUdeviceptr address = 0;
    driver_.fail(step.call, step.nth, CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_EQ(open(capability(kTheirs), &address), CUDA_SUCCESS);
    launch_aside();
    serve();
    serve();  // what failed, once more
    wait_launched(++launches);
    EXPECT_TRUE(driver_.write(address, std::vector<std::byte>(kBytes)));
    EXPECT_EQ(shim::cuIpcCloseMemHandle(address), CUDA_SUCCESS);
    EXPECT_EQ(driver_.mapped_bytes(), 0u);
    for (const auto handle : physical_) EXPECT_EQ(driver_.imported[handle], 0);
  }
}

TEST_F(SharingTest, AnImportThatIsClosedBeforeItCameLeavesNothing) {
  const wire::Epoch epoch = hold_lease();
  CUdeviceptr address = 0;
  ASSERT_EQ(open(capability(kTheirs), &address), CUDA_SUCCESS);
  const auto fetch = manager_.wait_for(wire::Type::kFetchHandles);
  ASSERT_EQ(shim::cuIpcCloseMemHandle(address), CUDA_SUCCESS);
  int fd = -1;
  ASSERT_EQ(driver.cuMemExportToShareableHandle(&fd, physical_[0],
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  wire::Handles late = *fetch->as<wire::Handles>();
  late.count = 1;
  manager_.send_with_fds(wire::Type::kHandles, &late, sizeof late, 0, {fd});
  ScopedFd(fd).reset();
  agent_is_done();
  EXPECT_EQ(driver_.mapped_bytes(), 0u);
  launch();  // nothing is missing
  take_lease_back(epoch);
}

TEST_F(SharingTest, MemoryThatNobodyKnowsCantBeOpened) {
  agent_is_done();
  const std::size_t before = open_descriptors();
  CUdeviceptr address = 77;
  EXPECT_EQ(open(capability(12345), &address), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(address, 77u);
  for (const auto& odd : {capability(kTheirs, kBytes), capability(kTheirs, 0, 2 * kBytes),
                          capability(kTheirs, kMiB, kBytes), capability(kTheirs, 0, 0)}) {
    EXPECT_EQ(open(odd, &address), CUDA_ERROR_INVALID_HANDLE);
    manager_.wait_for(wire::Type::kImportClosed);
  }
  EXPECT_EQ(driver_.mapped_bytes(), 0u);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(SharingTest, WithoutAddressesNothingIsImported) {
  hold_lease();
  wire::Imported huge = manager_.importable[kTheirs];
  huge.bytes = std::uint64_t{1} << 40;  // larger than what has been reserved so far
  huge.chunk_bytes = std::uint64_t{1} << 30;
  huge.chunks = 1024;
  manager_.importable[kTheirs] = huge;
  driver_.fail_always("cuMemAddressReserve", CUDA_ERROR_OUT_OF_MEMORY);
  CUdeviceptr address = 0;
  EXPECT_EQ(open(capability(kTheirs), &address), CUDA_ERROR_OUT_OF_MEMORY);
  driver_.fail_always("cuMemAddressReserve", CUDA_SUCCESS);
  manager_.wait_for(wire::Type::kImportClosed);
  launch();  // nothing is missing
}

TEST_F(SharingTest, AChunkThatItsOwnerHasEvictedIsLetGo) {
  const wire::Epoch epoch = hold_lease();
  CUdeviceptr address = 0;
  ASSERT_EQ(open(capability(kTheirs), &address), CUDA_SUCCESS);
  launch_aside();
  serve();
  wait_launched(2);
  take_lease_back(epoch);
  for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
    manager_.send(wire::Type::kParked, wire::Parked{kTheirs, chunk, 0, 0, 0, 0});
  }
  agent_is_done();
  EXPECT_EQ(driver_.mapped_bytes(), 0u);
  launch_aside();
  manager_.wait_for(wire::Type::kWantLease);
  const wire::Epoch next = manager_.grant();
  serve();  // they are needed for the lease
  manager_.wait_for(wire::Type::kLoaded);
  manager_.send(wire::Type::kRun, wire::LeaseRef{next});
  wait_launched(3);
  EXPECT_EQ(shim::cuIpcCloseMemHandle(address), CUDA_SUCCESS);
}

TEST_F(SharingTest, MemoryWhoseOwnerDiesBeforeItCameIsAnErrorAndNotZeroes) {
  hold_lease();
  CUdeviceptr address = 0;
  ASSERT_EQ(open(capability(kTheirs), &address), CUDA_SUCCESS);
  launch_aside();
  manager_.wait_for(wire::Type::kFetchHandles);
  // One chunk was evicted since the import, and has no bytes; of the other nothing is known.
  manager_.send(wire::Type::kParked, wire::Parked{kTheirs, 0, 0, 0, 0, 0});
  manager_.send(wire::Type::kOwnerGone, wire::OwnerGone{kTheirs, 1, 0});
  const auto told = manager_.wait_for(wire::Type::kParked);
  EXPECT_EQ(told->as<wire::Parked>()->chunk, 1u);
  EXPECT_EQ(told->as<wire::Parked>()->is_lost, 1u) << "so that no other importer waits for it";
  wait_launched(2);
  EXPECT_TRUE(driver_.write(address, std::vector<std::byte>(kChunk)));
  EXPECT_FALSE(driver_.write(address + kChunk, std::vector<std::byte>(1)));
  EXPECT_EQ(shim::cuIpcCloseMemHandle(address), CUDA_SUCCESS);
  EXPECT_EQ(driver_.mapped_bytes(), 0u);
}

TEST_F(SharingTest, AnHeirHandsOutWhatItHasAndSaysWhatIsLostToWhoeverAsksLater) {
  hold_lease();
  CUdeviceptr address = 0;
  ASSERT_EQ(open(capability(kTheirs), &address), CUDA_SUCCESS);
  launch_aside();
  manager_.wait_for(wire::Type::kFetchHandles);
  manager_.send(wire::Type::kParked, wire::Parked{kTheirs, 1, 0, 0, 0, 0});  // without bytes
  manager_.send(wire::Type::kOwnerGone, wire::OwnerGone{kTheirs, 1, 0});
  EXPECT_EQ(manager_.wait_for(wire::Type::kParked)->as<wire::Parked>()->chunk, 0u);
  wait_launched(2);
  constexpr std::uint64_t kNewcomer = 5;
  manager_.send(wire::Type::kFetchHandles, wire::Handles{kTheirs, kNewcomer, 0, kChunks});
  const auto lost = manager_.wait_for(wire::Type::kParked);
  EXPECT_EQ(lost->as<wire::Parked>()->chunk, 0u);
  EXPECT_EQ(lost->as<wire::Parked>()->is_lost, 1u);
  const auto handed_out = manager_.wait_for(wire::Type::kHandles);
  EXPECT_EQ(handed_out->as<wire::Handles>()->importer, kNewcomer);
  EXPECT_EQ(handed_out->as<wire::Handles>()->first, 1u);
  EXPECT_EQ(handed_out->as<wire::Handles>()->count, 1u);
  EXPECT_TRUE(handed_out->fds[0].valid());
  EXPECT_FALSE(handed_out->fds[1].valid());
  manager_.send(wire::Type::kFetchHandles, wire::Handles{kTheirs, kNewcomer, 0, 1});
  EXPECT_EQ(manager_.wait_for(wire::Type::kParked)->as<wire::Parked>()->is_lost, 1u);
  agent_is_done();
  EXPECT_FALSE(manager_.has(wire::Type::kHandles)) << "there is none of a lost chunk";
  EXPECT_EQ(shim::cuIpcCloseMemHandle(address), CUDA_SUCCESS);
}

TEST_F(SharingTest, AChunkThatTheHeirCantHandOutIsNotWaitedFor) {
  hold_lease();
  CUdeviceptr address = 0;
  ASSERT_EQ(open(capability(kTheirs), &address), CUDA_SUCCESS);
  launch_aside();
  manager_.wait_for(wire::Type::kFetchHandles);
  for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
    manager_.send(wire::Type::kParked, wire::Parked{kTheirs, chunk, 1, 0, 0, 0});
  }
  wait_launched(2);
  EXPECT_FALSE(driver_.write(address, std::vector<std::byte>(1)));
  EXPECT_EQ(shim::cuIpcCloseMemHandle(address), CUDA_SUCCESS);
}

// ---- after a restart of the manager

TEST_F(SharingTest, WhatIsMappedIsNotTrustedBeforeTheManagerHasFoundItsOwner) {
  CUdeviceptr address = 0;
  import_and_lose_manager(&address);
  launch_aside();
  manager_.wait_for(wire::Type::kWantLease);
  const wire::Epoch epoch = manager_.grant();
  agent_is_done();
  EXPECT_FALSE(manager_.has(wire::Type::kLoaded))
      << "all is mapped, perhaps not as its owner has it";
  manager_.send(wire::Type::kOwnerBack, wire::ExportRef{kTheirs});
  serve();
  manager_.wait_for(wire::Type::kLoaded);
  manager_.send(wire::Type::kRun, wire::LeaseRef{epoch});
  wait_launched(3);
  EXPECT_TRUE(driver_.write(address, std::vector<std::byte>(kBytes)));
  EXPECT_EQ(shim::cuIpcCloseMemHandle(address), CUDA_SUCCESS);
}

TEST_F(SharingTest, WhoHasAllOfADeadOwnersMemoryMappedOwnsItWithItsBytes) {
  CUdeviceptr address = 0;
  import_and_lose_manager(&address);
  manager_.send(wire::Type::kOwnerGone, wire::OwnerGone{kTheirs, 1, 1});
  const auto told = manager_.wait_for(wire::Type::kExport);
  EXPECT_EQ(told->as<wire::Export>()->id, kTheirs);
  EXPECT_EQ(told->as<wire::Export>()->chunks, kChunks);
  const wire::Epoch epoch = hold_lease();
  std::vector<std::byte> byte(1);
  ASSERT_TRUE(driver_.read(address + kBytes - 1, &byte));
  EXPECT_EQ(byte[0], std::byte{42});
  take_lease_back(epoch);
  EXPECT_EQ(evict(1024 * kMiB).resident_bytes, 0u) << "it is paged like everything of this process";
  hold_lease();
  ASSERT_TRUE(driver_.read(address + kBytes - 1, &byte));
  EXPECT_EQ(byte[0], std::byte{42});
  EXPECT_EQ(shim::cuIpcCloseMemHandle(address), CUDA_SUCCESS);
}

TEST_F(SharingTest, WhatIsLostOfADeadOwnersMemoryIsAnErrorAndNotZeroes) {
  CUdeviceptr address = 0;
  import_and_lose_manager(&address, [&] {
    manager_.send(wire::Type::kParked,
                  wire::Parked{kTheirs, 1, 0, 0, 0, 0});  // it has been evicted
    agent_is_done();
  });
  manager_.send(wire::Type::kOwnerGone, wire::OwnerGone{kTheirs, 1, 1});
  manager_.wait_for(wire::Type::kImportClosed);
  EXPECT_FALSE(manager_.has(wire::Type::kExport));
  hold_lease();  // nothing waits for it
  EXPECT_TRUE(driver_.write(address, std::vector<std::byte>(kChunk)));
  EXPECT_FALSE(driver_.write(address + kChunk, std::vector<std::byte>(1)));
  EXPECT_FALSE(manager_.has(wire::Type::kFetchHandles)) << "nobody could answer";
  EXPECT_EQ(shim::cuIpcCloseMemHandle(address), CUDA_SUCCESS);
  launch();
}

TEST_F(SharingTest, AProcessThatGoesOnAloneDoesNotWaitForWhatNobodyCanBring) {
  hold_lease();
  CUdeviceptr address = 0;
  ASSERT_EQ(open(capability(kTheirs), &address), CUDA_SUCCESS);
  launch_aside();
  manager_.wait_for(wire::Type::kFetchHandles);
  manager_.refuses = true;
  manager_.refusal = wire::kErrorVersion;  // a manager that it can't talk to any more
  manager_.die();
  manager_.start();
  wait_launched(2);
  EXPECT_FALSE(driver_.write(address, std::vector<std::byte>(1))) << "an error, not wrong bytes";
  EXPECT_EQ(shim::cuIpcCloseMemHandle(address), CUDA_SUCCESS);
  ranges().give_up_imports(false);
}

// ---- the owner

TEST_F(SharingTest, AHandleThatCouldNotBeExportedIsExportedWhenItIsAskedForAgain) {
  const CUdeviceptr address = allocate(kBytes);
  hold_lease();
  CUipcMemHandle handle;
  ASSERT_EQ(shim::cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
  const wire::Handles fetch{from_handle(handle)->id, 5, 0, kChunks};
  agent_is_done();
  const std::size_t before = open_descriptors();
  constexpr const char* kExport = "cuMemExportToShareableHandle";
  for (int nth = 1; nth <= static_cast<int>(kChunks); ++nth) {
    driver_.fail(kExport, nth, CUDA_ERROR_OUT_OF_MEMORY);
    const int failing_call = driver_.calls(kExport) + nth;
    manager_.send(wire::Type::kFetchHandles, fetch);
    // The turn in which it serves comes after that in which it was asked.
    while (driver_.calls(kExport) < failing_call) std::this_thread::yield();
    agent_is_done();
    EXPECT_FALSE(manager_.has(wire::Type::kHandles)) << "a part is of no use";
    EXPECT_EQ(open_descriptors(), before) << "descriptors of a part are closed";
  }
  manager_.send(wire::Type::kFetchHandles, fetch);
  EXPECT_EQ(manager_.wait_for(wire::Type::kHandles)->fds[kChunks - 1].valid(), true);
  agent_is_done();
  EXPECT_EQ(open_descriptors(), before) << "the owner keeps none";
  EXPECT_EQ(shim::cuMemFree_v2(address), CUDA_SUCCESS);
}

TEST_F(SharingTest, WhoAsksAgainWhileTheMemoryComesInIsAnsweredOnce) {
  const CUdeviceptr address = allocate(kBytes);
  CUipcMemHandle handle;
  ASSERT_EQ(shim::cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
  driver_.fail_always("cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY);
  launch_aside();
  manager_.wait_for(wire::Type::kWantLease);
  const wire::Epoch epoch = manager_.grant();
  const wire::Handles fetch{from_handle(handle)->id, 5, 0, kChunks};
  for (int i = 0; i < 3; ++i) manager_.send(wire::Type::kFetchHandles, fetch);
  agent_is_done();
  EXPECT_FALSE(manager_.has(wire::Type::kHandles));
  driver_.fail_always("cuMemCreate", CUDA_SUCCESS);
  manager_.wait_for(wire::Type::kLoaded);
  manager_.send(wire::Type::kRun, wire::LeaseRef{epoch});
  wait_launched(1);
  manager_.wait_for(wire::Type::kHandles);
  agent_is_done();
  EXPECT_FALSE(manager_.has(wire::Type::kHandles));
  EXPECT_EQ(shim::cuMemFree_v2(address), CUDA_SUCCESS);
}

TEST_F(SharingTest, WhatOthersStillHaveStaysUntilTheyCloseIt) {
  const CUdeviceptr address = allocate(kBytes);
  hold_lease();
  const std::size_t others = driver_.used_bytes() - kBytes;
  CUipcMemHandle handle;
  ASSERT_EQ(shim::cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
  manager_.has_importers = true;
  EXPECT_EQ(shim::cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(driver_.used_bytes(), others + kBytes);
  EXPECT_EQ(shim::cuMemFree_v2(address), CUDA_SUCCESS) << "the fake driver takes any address";
  manager_.send(wire::Type::kExportUnused, wire::ExportRef{from_handle(handle)->id});
  agent_is_done();
  EXPECT_EQ(driver_.used_bytes(), others);
}

}  // namespace
}  // namespace plexrl::shim
