#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "interpose/handlers.h"
#include "shim/capability.h"
#include "shim/process.h"
#include "tests/unit/shim/process_fixture.h"

/// Memory between processes, from one side: the test plays the other process and the manager. A
/// step that fails leaves nothing behind, and is made up for.
namespace plexrl::shim {
namespace {

using testing::kMiB;
using testing::ProcessTest;

constexpr std::uint64_t kTheirs = 9;  ///< the name of memory of another process
constexpr std::size_t kBytes = 8 * kMiB, kChunk = 4 * kMiB, kChunks = 2;

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// While one lives, the process can open nothing more.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit fewer{200, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &fewer);
    for (int fd = dup(0); fd >= 0; fd = dup(0)) taken_.emplace_back(fd);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
  std::vector<ScopedFd> taken_;
};

class SharingTest : public ProcessTest {
 protected:
  void SetUp() override {
    ProcessTest::SetUp();
    wire::Imported theirs{};
    theirs.chunks = kChunks;
    theirs.bytes = kBytes;
    theirs.chunk_bytes = kChunk;
    std::memset(theirs.uuid.bytes, 1, sizeof theirs.uuid.bytes);  // of device 0 (fake driver)
    manager_.importable[kTheirs] = theirs;
    for (auto& handle : physical_) {
      ASSERT_EQ(driver.cuMemCreate(&handle, kChunk, nullptr, 0), CUDA_SUCCESS);
    }
  }
  void TearDown() override {
    for (const auto handle : physical_) {
      EXPECT_EQ(driver_.imported[handle], 0) << "a handle was not let go";
      driver.cuMemRelease(handle);
    }
    ProcessTest::TearDown();
  }

  static Capability capability(std::uint64_t id, std::size_t offset = 0,
                               std::size_t bytes = kBytes) {
    Capability made;
    made.id = id;
    made.tag = {5, 6};
    made.offset = offset;
    made.bytes = bytes;
    return made;
  }
  CUresult open(const Capability& what, CUdeviceptr* out) {
    return shim::cuIpcOpenMemHandle_v2(out, to_handle(what), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  }
  /// Answers the next question for handles, as their owner.
  void serve() {
    const auto packet = manager_.wait_for(wire::Type::kFetchHandles);
    const auto fetch = *packet->as<wire::Handles>();
    EXPECT_EQ(fetch.id, kTheirs);
    std::vector<ScopedFd> fds;
    std::vector<int> raw;
    for (std::uint32_t i = 0; i < fetch.count; ++i) {
      int fd = -1;
      ASSERT_EQ(driver.cuMemExportToShareableHandle(&fd, physical_[fetch.first + i],
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                CUDA_SUCCESS);
      fds.emplace_back(fd);
      raw.push_back(fd);
    }
    manager_.send_with_fds(wire::Type::kHandles, &fetch, sizeof fetch, 0, raw);
  }
  /// Maps kTheirs, which has 42 in its last byte, and comes to rest; then the manager dies and
  /// another one begins, to which the process has said what it shares.
  void import_and_lose_manager(
      CUdeviceptr* address, const std::function<void()>& before = [] {}) {
    const wire::Epoch epoch = hold_lease();
    ASSERT_EQ(open(capability(kTheirs), address), CUDA_SUCCESS);
    launch_aside();
    serve();
    wait_launched(2);
    ASSERT_TRUE(driver_.write(*address + kBytes - 1, std::vector<std::byte>(1, std::byte{42})));
    take_lease_back(epoch);
    before();
    manager_.die();
    manager_.start();
    manager_.wait_for(wire::Type::kSharesTold);
    EXPECT_EQ(manager_.wait_for(wire::Type::kImport)->as<wire::Import>()->id, kTheirs);
  }
  /// The agent has done with all that was sent before.
  void agent_is_done() { evict(0); }

  CUmemGenericAllocationHandle physical_[kChunks] = {};
};

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
  EXPECT_EQ(open(capability(12345), &address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(address, 77u);
  for (const auto& odd : {capability(kTheirs, kBytes), capability(kTheirs, 0, 2 * kBytes),
                          capability(kTheirs, kMiB, kBytes), capability(kTheirs, 0, 0)}) {
    EXPECT_EQ(open(odd, &address), CUDA_ERROR_INVALID_VALUE);
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
  for (int nth = 1; nth <= static_cast<int>(kChunks); ++nth) {
    driver_.fail("cuMemExportToShareableHandle", nth, CUDA_ERROR_OUT_OF_MEMORY);
    manager_.send(wire::Type::kFetchHandles, fetch);
    agent_is_done();
    agent_is_done();  // the turn in which it serves comes after the one in which it was asked
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

// ---- pools

class SharedPoolsTest : public SharingTest {
 protected:
  CUmemoryPool make_pool(CUmemAllocationHandleType types) {
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = types;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(shim::cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
    return pool;
  }
  ScopedFd export_pool(CUmemoryPool pool) {
    int fd = -1;
    EXPECT_EQ(shim::cuMemPoolExportToShareableHandle(&fd, pool,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              CUDA_SUCCESS);
    return ScopedFd(fd);
  }
  CUresult import_pool(const ScopedFd& fd, CUmemoryPool* out) {
    return shim::cuMemPoolImportFromShareableHandle(
        out, reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd.get())),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  }
  /// Of a pool of another process, which has the tag 3.
  CUmemoryPool imported_pool() {
    PoolName name;
    name.job = identity().job;
    name.tag = 3;
    std::memset(name.gpu.bytes, 1, sizeof name.gpu.bytes);
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(import_pool(to_descriptor(name), &pool), CUDA_SUCCESS);
    return pool;
  }
  CUresult import_pointer(CUmemoryPool pool, Capability what, CUdeviceptr* out) {
    what.pool = 3;
    CUmemPoolPtrExportData data = to_export_data(what);
    return shim::cuMemPoolImportPointer(out, pool, &data);
  }
};

TEST_F(SharedPoolsTest, WhatIsExportedNamesTheAllocationWithinItsSegment) {
  const CUmemoryPool pool = make_pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CUdeviceptr first = 0, second = 0;
  ASSERT_EQ(shim::cuMemAllocFromPoolAsync(&first, 5000, pool, CU_STREAM_LEGACY), CUDA_SUCCESS);
  ASSERT_EQ(shim::cuMemAllocFromPoolAsync(&second, 7000, pool, CU_STREAM_LEGACY), CUDA_SUCCESS);
  CUmemPoolPtrExportData data;
  ASSERT_EQ(shim::cuMemPoolExportPointer(&data, second), CUDA_SUCCESS);
  const auto named = from_export_data(data);
  ASSERT_TRUE(named);
  EXPECT_EQ(named->offset, second - first);
  EXPECT_EQ(named->bytes, 7000u);
  const auto of_pool = pool_from_descriptor(export_pool(pool).get());
  ASSERT_TRUE(of_pool);
  EXPECT_EQ(named->pool, of_pool->tag);
  EXPECT_EQ(of_pool->job, identity().job);
  EXPECT_EQ(shim::cuMemPoolExportPointer(&data, second + 512), CUDA_ERROR_INVALID_VALUE);
  for (const CUdeviceptr address : {first, second}) shim::cuMemFree_v2(address);
  EXPECT_EQ(shim::cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

TEST_F(SharedPoolsTest, AnExportThatFailsLeavesNothingAndTheNextOneSucceeds) {
  const CUmemoryPool pool = make_pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CUdeviceptr pooled = 0;
  ASSERT_EQ(shim::cuMemAllocFromPoolAsync(&pooled, 5000, pool, CU_STREAM_LEGACY), CUDA_SUCCESS);
  const CUdeviceptr plain = allocate(kBytes);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle own = 0;
  ASSERT_EQ(shim::cuMemCreate(&own, kBytes, &properties, 0), CUDA_SUCCESS);
  agent_is_done();
  const std::size_t descriptors = open_descriptors();
  const auto charged = [&] { return process_.devices.find(0)->charged_bytes; };
  const std::uint64_t before = charged();
  int fd = -1;
  const auto of_pool = [&] {
    return shim::cuMemPoolExportToShareableHandle(&fd, pool,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  };
  const auto of_handle = [&] {
    return shim::cuMemExportToShareableHandle(&fd, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                              0);
  };
  CUmemPoolPtrExportData data;
  CUipcMemHandle handle;
  driver_.fail("cuDeviceGetUuid_v2", 1, CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(of_pool(), CUDA_ERROR_DEVICE_UNAVAILABLE);
  manager_.die();
  EXPECT_EQ(shim::cuMemPoolExportPointer(&data, pooled), CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_EQ(shim::cuIpcGetMemHandle(&handle, plain), CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_EQ(of_handle(), CUDA_ERROR_OPERATING_SYSTEM);
  manager_.start();
  manager_.wait_for(wire::Type::kSharesTold);
  {
    const NoDescriptors none;
    EXPECT_EQ(of_pool(), CUDA_ERROR_OPERATING_SYSTEM);
    EXPECT_EQ(of_handle(), CUDA_ERROR_OPERATING_SYSTEM);
  }
  EXPECT_EQ(fd, -1);
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(charged(), before);

  EXPECT_EQ(shim::cuMemPoolExportPointer(&data, pooled), CUDA_SUCCESS);
  EXPECT_EQ(shim::cuIpcGetMemHandle(&handle, plain), CUDA_SUCCESS);
  for (const auto& export_once_more : {std::function(of_pool), std::function(of_handle)}) {
    EXPECT_EQ(export_once_more(), CUDA_SUCCESS);
    ScopedFd(fd).reset();
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(shim::cuMemRelease(own), CUDA_SUCCESS);
  for (const CUdeviceptr address : {pooled, plain}) {
    EXPECT_EQ(shim::cuMemFree_v2(address), CUDA_SUCCESS);
  }
  EXPECT_EQ(shim::cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(ranges().charged_bytes(0), 0u);
}

TEST_F(SharedPoolsTest, APoolThatWasNotMadeToBeSharedIsNot) {
  const CUmemoryPool pool = make_pool(CU_MEM_HANDLE_TYPE_NONE);
  int fd = -1;
  EXPECT_EQ(shim::cuMemPoolExportToShareableHandle(&fd, pool,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr address = 0;
  ASSERT_EQ(shim::cuMemAllocFromPoolAsync(&address, 5000, pool, CU_STREAM_LEGACY), CUDA_SUCCESS);
  CUmemPoolPtrExportData data;
  EXPECT_EQ(shim::cuMemPoolExportPointer(&data, address), CUDA_ERROR_INVALID_VALUE);
  shim::cuMemFree_v2(address);
  EXPECT_EQ(shim::cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

TEST_F(SharedPoolsTest, TwoAllocationsOfASegmentAreOneImportThatEndsWithTheLast) {
  hold_lease();
  const CUmemoryPool pool = imported_pool();
  CUdeviceptr first = 0, second = 0, again = 0;
  ASSERT_EQ(import_pointer(pool, capability(kTheirs, 0, 1000), &first), CUDA_SUCCESS);
  ASSERT_EQ(import_pointer(pool, capability(kTheirs, 4096, 1000), &second), CUDA_SUCCESS);
  EXPECT_EQ(second, first + 4096);
  EXPECT_EQ(import_pointer(pool, capability(kTheirs, 4096, 1000), &again),
            CUDA_ERROR_ALREADY_MAPPED);
  launch_aside();
  serve();
  wait_launched(2);
  EXPECT_EQ(driver_.mapped_bytes(), kBytes);
  EXPECT_EQ(shim::cuMemFree_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(driver_.mapped_bytes(), kBytes);
  EXPECT_FALSE(manager_.has(wire::Type::kImportClosed));
  EXPECT_EQ(shim::cuMemFree_v2(second), CUDA_SUCCESS);
  manager_.wait_for(wire::Type::kImportClosed);
  EXPECT_EQ(driver_.mapped_bytes(), 0u);
  EXPECT_EQ(shim::cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

TEST_F(SharedPoolsTest, AFreeInStreamOrderLetsGoWhenTheWorkBeforeItIsOver) {
  hold_lease();
  const CUmemoryPool pool = imported_pool();
  CUstream stream = nullptr;
  ASSERT_EQ(shim::cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  CUdeviceptr address = 0, again = 0;
  ASSERT_EQ(import_pointer(pool, capability(kTheirs, 0, 1000), &address), CUDA_SUCCESS);
  launch_aside();
  serve();
  wait_launched(2);
  driver_.set_busy(stream, true);
  launch(stream);
  ASSERT_EQ(shim::cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  EXPECT_EQ(driver_.mapped_bytes(), kBytes);
  // Its owner may have given the place to somebody else meanwhile, of another size.
  ASSERT_EQ(import_pointer(pool, capability(kTheirs, 512, 3000), &again), CUDA_SUCCESS);
  driver_.set_busy(stream, false);
  EXPECT_EQ(shim::cuMemFreeAsync(again, stream), CUDA_SUCCESS);
  shim::cuMemPoolDestroy(pool);
  manager_.wait_for(wire::Type::kImportClosed);
  EXPECT_EQ(driver_.mapped_bytes(), 0u);
  EXPECT_EQ(shim::cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

TEST_F(SharedPoolsTest, AnImportThatFailsLeavesNothing) {
  hold_lease();
  PoolName name;
  name.job = identity().job;
  name.tag = 3;
  std::memset(name.gpu.bytes, 1, sizeof name.gpu.bytes);
  const ScopedFd good = to_descriptor(name);
  CUmemoryPool pool = nullptr;
  driver_.fail("cuMemPoolCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(import_pool(good, &pool), CUDA_ERROR_OUT_OF_MEMORY);
  name.gpu.bytes[0] = 99;
  EXPECT_EQ(import_pool(to_descriptor(name), &pool), CUDA_ERROR_INVALID_DEVICE);
  name.gpu.bytes[0] = 1;
  name.job.lo += 1;
  EXPECT_EQ(import_pool(to_descriptor(name), &pool), CUDA_ERROR_INVALID_VALUE) << "another job's";
  EXPECT_EQ(pool, nullptr);
  pool = imported_pool();
  CUdeviceptr address = 0;
  EXPECT_EQ(import_pointer(pool, capability(12345), &address), CUDA_ERROR_INVALID_VALUE);
  for (const auto& odd : {capability(kTheirs, kBytes, 512), capability(kTheirs, 100, 512),
                          capability(kTheirs, 512, kBytes), capability(kTheirs, 0, 0)}) {
    EXPECT_EQ(import_pointer(pool, odd, &address), CUDA_ERROR_INVALID_VALUE);
    manager_.wait_for(wire::Type::kImportClosed);
  }
  EXPECT_EQ(address, 0u);
  EXPECT_EQ(driver_.mapped_bytes(), 0u);
  launch();  // nothing is missing
  EXPECT_EQ(shim::cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

}  // namespace
}  // namespace plexrl::shim
