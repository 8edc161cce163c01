#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <vector>

#include "interpose/handlers.h"
#include "shim/capability.h"
#include "shim/process.h"
#include "tests/unit/shim/process_fixture.h"

namespace plexrl::shim::testing {

inline constexpr std::uint64_t kTheirs = 9;  ///< the name of memory of another process
inline constexpr std::size_t kBytes = 8 * kMiB, kChunk = 4 * kMiB, kChunks = 2;

inline std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// Memory between processes, from one side: the test plays the other process and the manager.
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

}  // namespace plexrl::shim::testing
