#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <vector>

#include "interpose/handlers.h"
#include "shim/capability.h"
#include "shim/process.h"
#include "tests/unit/shim/sharing_fixture.h"

/// Pools between processes, and exports that fail.
namespace plexrl::shim {
namespace {

using testing::kBytes;
using testing::kTheirs;
using testing::open_descriptors;
using testing::SharingTest;

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
