#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "interpose/handlers.h"
#include "shim/gate.h"
#include "shim/hooks.h"
#include "shim/process.h"
#include "tests/unit/shim/fake_driver.h"
#include "tests/unit/shim/fake_manager.h"

namespace plexrl::shim::testing {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

/// A whole shared process against a driver and a manager that are fakes.
class ProcessTest : public ::testing::Test {
 protected:
  ProcessTest() : process_(identity(), [this] { return manager_.dial(); }) {}

  void SetUp() override {
    context_ = driver_.make_context();
    driver_.set_current(context_);
    gate.close();
    wire::Error why{};
    ASSERT_EQ(process_.join(&why), Client::Handshake::kAdmitted) << why.text;
  }
  void TearDown() override {
    gate.open();  // whoever waits goes on
    for (std::thread& job : jobs_) job.join();
    driver_.fail_always("cuMemCreate", CUDA_SUCCESS);
    process_.memory.context_ended(context_);
    {
      const auto looks = activity().exclude_looks();
      activity().context_ends(context_);
    }
    process_.agent.stop();
    process_.pager.leave_context(context_).unlock();
    contexts().remove(context_);
    Process::forget();
    gate.close();
  }

  static Identity identity() { return {{1, 2}, {3, 4}}; }
  CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(shim::cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
    return address;
  }
  void launch(CUstream stream = CU_STREAM_LEGACY) {
    gate.enter(stream);
    gate.leave();
  }
  /// A launch by a thread of the job.
  void launch_aside() {
    jobs_.emplace_back([this] {
      driver_.set_current(context_);
      launch();
      ++launched_;
    });
  }
  void wait_launched(int count) {
    while (launched_ != count) std::this_thread::yield();
  }
  wire::Epoch hold_lease() {
    launch_aside();
    manager_.wait_for(wire::Type::kWantLease);
    const wire::Epoch epoch = manager_.grant_and_run();
    wait_launched(static_cast<int>(jobs_.size()));
    return epoch;
  }
  void withdraw(wire::Epoch epoch) {
    manager_.send(wire::Type::kWithdraw, wire::Withdraw{epoch, 1});
  }
  void take_lease_back(wire::Epoch epoch) {
    withdraw(epoch);
    manager_.wait_for(wire::Type::kDrained);
    manager_.send(wire::Type::kRevoked, wire::LeaseRef{epoch});
  }
  wire::Evicted evict(std::uint64_t bytes) {
    wire::Evict request{};
    request.bytes = bytes;
    manager_.send(wire::Type::kEvict, request, 5);
    const auto packet = manager_.wait_for(wire::Type::kEvicted);
    EXPECT_EQ(packet->request, 5u);
    return *packet->as<wire::Evicted>();
  }

  FakeDriver driver_{64 * kMiB};
  FakeManager manager_;
  Process process_;
  CUcontext context_ = nullptr;
  std::vector<std::thread> jobs_;
  std::atomic<int> launched_{0};
};

}  // namespace plexrl::shim::testing
