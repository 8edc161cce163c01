#include "shim/host_store.h"

#include <thread>

#include "shim/slab_worker.h"
#include "tests/unit/shim/pager_fixture.h"

namespace plexrl::shim {
namespace {

using testing::kMiB;

class HostStoreTest : public testing::PagerTest {
 protected:
  void wait_for_bytes(std::size_t bytes) {
    while (store_.bytes() < bytes) std::this_thread::yield();
  }
};

TEST_F(HostStoreTest, WhatIsPreparedIsRegisteredAndUsed) {
  EXPECT_TRUE(store_.prepare(16 * kMiB, contexts_));
  EXPECT_TRUE(store_.prepare(16 * kMiB, contexts_));
  EXPECT_FALSE(store_.prepare(16 * kMiB, contexts_));
  EXPECT_EQ(driver_.registered_ranges(), 2u);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(store_.take(4 * kMiB, context_));
  EXPECT_EQ(slabs_.requests, 2);
  EXPECT_EQ(store_.used_bytes(), 16 * kMiB);
}

TEST_F(HostStoreTest, WithoutAContextItIsRegisteredWhenItIsUsed) {
  contexts_.remove(context_);
  EXPECT_TRUE(store_.prepare(8 * kMiB, contexts_));
  EXPECT_EQ(driver_.registered_ranges(), 0u);
  const auto span = store_.take(4 * kMiB, context_);
  ASSERT_TRUE(span);
  store_.ensure_registered(*span, context_);
  EXPECT_EQ(driver_.registered_ranges(), 1u);
}

TEST_F(HostStoreTest, WhatADeadContextCannotRegisterAnotherMay) {
  driver_.fail("cuMemHostRegister_v2", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
  const auto span = store_.take(4 * kMiB, context_);
  ASSERT_TRUE(span);
  EXPECT_EQ(driver_.registered_ranges(), 0u);
  store_.ensure_registered(*span, context_);
  EXPECT_EQ(driver_.registered_ranges(), 1u);
}

TEST_F(HostStoreTest, ARegistrationThatIsRefusedIsNotTriedAgain) {
  driver_.fail("cuMemHostRegister_v2", 1, CUDA_ERROR_NOT_SUPPORTED);
  const auto span = store_.take(4 * kMiB, context_);
  ASSERT_TRUE(span);
  for (int i = 0; i < 3; ++i) store_.ensure_registered(*span, context_);
  EXPECT_EQ(driver_.registered_ranges(), 0u);
  EXPECT_EQ(driver_.calls("cuMemHostRegister_v2"), 1);
}

TEST_F(HostStoreTest, WithoutHostMemoryPreparingEnds) {
  slabs_.left = 0;
  EXPECT_FALSE(store_.prepare(8 * kMiB, contexts_));
  EXPECT_FALSE(store_.take(4 * kMiB, context_));
}

TEST_F(HostStoreTest, SlabsThatNothingIsInGoBack) {
  ASSERT_TRUE(store_.prepare(8 * kMiB, contexts_));
  const auto first = store_.take(4 * kMiB, context_);
  const auto second = store_.take(8 * kMiB, context_);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(driver_.registered_ranges(), 2u);
  EXPECT_EQ(store_.give_back_free(16 * kMiB), 0u);
  store_.put(*second);
  EXPECT_EQ(store_.give_back_free(1), 8 * kMiB);
  EXPECT_EQ(store_.give_back_free(16 * kMiB), 0u);
  EXPECT_EQ(slabs_.returned, 1);
  EXPECT_EQ(driver_.registered_ranges(), 1u);
  EXPECT_EQ(store_.bytes(), 8 * kMiB);
  EXPECT_EQ(store_.held_bytes(), 8 * kMiB) << "what the next manager is told";
  EXPECT_EQ(store_.used_bytes(), 4 * kMiB);
  std::memset(first->address, 1, first->bytes);  // what is left is still there
  store_.put(*first);
  EXPECT_EQ(store_.give_back_free(16 * kMiB), 8 * kMiB);
  EXPECT_EQ(driver_.registered_ranges(), 0u);
  EXPECT_TRUE(store_.take(4 * kMiB, context_));
}

TEST_F(HostStoreTest, ASlabWhoseRegistrationCannotEndIsUsedOn) {
  ASSERT_TRUE(store_.prepare(8 * kMiB, contexts_));
  driver_.fail("cuMemHostUnregister", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(store_.give_back_free(8 * kMiB), 0u);
  EXPECT_EQ(slabs_.returned, 0);
  EXPECT_TRUE(store_.take(8 * kMiB, context_));
  EXPECT_EQ(slabs_.requests, 1);
}

TEST_F(HostStoreTest, TheWorkerPreparesAsMuchAsIsWanted) {
  SlabWorker worker(store_, contexts_);
  worker.want(20 * kMiB);
  wait_for_bytes(24 * kMiB);
  worker.want(40 * kMiB);
  wait_for_bytes(40 * kMiB);
  worker.stop();
  EXPECT_EQ(store_.bytes(), 40 * kMiB);
  EXPECT_EQ(slabs_.requests, 5);
  EXPECT_EQ(driver_.registered_ranges(), 5u);
}

TEST_F(HostStoreTest, TheWorkerEndsWhereverItIs) {
  slabs_.left = 8 * kMiB;
  SlabWorker worker(store_, contexts_);
  worker.want(64 * kMiB);
  worker.stop();
  EXPECT_LE(store_.bytes(), 8 * kMiB);
}

}  // namespace
}  // namespace plexrl::shim
