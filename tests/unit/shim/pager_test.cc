#include "shim/pager.h"

#include <algorithm>
#include <string>

#include "tests/unit/shim/pager_fixture.h"

namespace plexrl::shim {
namespace {

using testing::kMiB;
using testing::PagerTest;

TEST_F(PagerTest, BacksWhatWasNeverWrittenWithoutACopy) {
  allocate(10 * kMiB);
  EXPECT_EQ(load(), Pager::Progress::kDone);
  EXPECT_EQ(figures_.zero_bytes, 10 * kMiB);
  EXPECT_EQ(figures_.moved_bytes, 0u);
  EXPECT_EQ(driver_.calls("cuMemcpyHtoDAsync_v2"), 0);
  EXPECT_EQ(driver_.calls("cuMemSetAccess"), 1);  // one for the run of three chunks
}

TEST_F(PagerTest, RunsOfCopiesBeginWithOneChunkAndGrow) {
  allocate(60 * kMiB);  // fifteen chunks
  load_all();
  open_gate();
  pager_.evict(0, ~std::uint64_t{0});
  const int before = driver_.calls("cuMemSetAccess");
  EXPECT_EQ(pager_.load_step(0, &figures_), Pager::Progress::kMore);
  EXPECT_EQ(driver_.calls("cuMemcpyHtoDAsync_v2"), 1);  // the link is at work after one chunk
  load_all();
  EXPECT_EQ(driver_.calls("cuMemcpyHtoDAsync_v2"), 15);
  EXPECT_EQ(driver_.calls("cuMemSetAccess") - before, 4);  // 1, 2, 4 and 8 chunks
}

TEST_F(PagerTest, EachDirectionHasItsStream) {
  allocate(8 * kMiB);
  load_all();
  open_gate();
  pager_.evict(0, ~std::uint64_t{0});
  load_all();
  EXPECT_EQ(driver_.streams_used("cuMemcpyDtoHAsync_v2").size(), 1u);
  EXPECT_EQ(driver_.streams_used("cuMemcpyHtoDAsync_v2").size(), 1u);
  EXPECT_NE(driver_.streams_used("cuMemcpyDtoHAsync_v2"),
            driver_.streams_used("cuMemcpyHtoDAsync_v2"));
}

TEST_F(PagerTest, BytesSurviveBeingEvictedAndLoaded) {
  const Range* range = allocate(10 * kMiB);
  load_all();
  open_gate();
  const auto bytes = random_bytes(10 * kMiB, 1);
  ASSERT_TRUE(driver_.write(range->start, bytes));
  const auto out = pager_.evict(0, ~std::uint64_t{0});
  EXPECT_FALSE(out.failed);
  EXPECT_EQ(out.moved_bytes, 10 * kMiB);
  EXPECT_EQ(driver_.used_bytes(), 0u);
  EXPECT_EQ(driver_.mapped_bytes(), 0u);
  load_all();
  EXPECT_EQ(figures_.moved_bytes, 10 * kMiB);
  expect_bytes(range, bytes);
}

TEST_F(PagerTest, EvictsAtLeastWhatIsAskedAndNotAll) {
  allocate(16 * kMiB);
  load_all();
  open_gate();
  const auto out = pager_.evict(0, 5 * kMiB);
  EXPECT_EQ(out.freed_bytes, 8 * kMiB);
  EXPECT_EQ(table_.totals(0).resident, 8 * kMiB);
}

TEST_F(PagerTest, UntouchedChunksLeaveWithoutACopy) {
  allocate(8 * kMiB);
  load_all();
  const auto out = pager_.evict(0, ~std::uint64_t{0});
  EXPECT_EQ(out.untouched_bytes, 8 * kMiB);
  EXPECT_EQ(out.moved_bytes, 0u);
  EXPECT_EQ(slabs_.requests, 0);
}

TEST_F(PagerTest, SlabsAreRegisteredOnceAndReused) {
  allocate(8 * kMiB);
  load_all();
  open_gate();
  for (int round = 0; round < 3; ++round) {
    pager_.evict(0, ~std::uint64_t{0});
    load_all();
    open_gate();
  }
  EXPECT_EQ(slabs_.requests, 1);
  EXPECT_EQ(driver_.calls("cuMemHostRegister_v2"), 1);
}

TEST_F(PagerTest, ASlabThatCantBeRegisteredIsUsedAllTheSame) {
  const Range* range = allocate(8 * kMiB);
  load_all();
  open_gate();
  const auto bytes = random_bytes(8 * kMiB, 2);
  ASSERT_TRUE(driver_.write(range->start, bytes));
  driver_.fail_always("cuMemHostRegister_v2", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(pager_.evict(0, ~std::uint64_t{0}).failed);
  load_all();
  expect_bytes(range, bytes);
}

TEST_F(PagerTest, WithoutHostMemoryChunksStay) {
  const Range* range = allocate(16 * kMiB);
  load_all();
  open_gate();
  const auto bytes = random_bytes(16 * kMiB, 3);
  ASSERT_TRUE(driver_.write(range->start, bytes));
  slabs_.left = 8 * kMiB;
  const auto out = pager_.evict(0, ~std::uint64_t{0});
  EXPECT_TRUE(out.failed);
  EXPECT_EQ(out.freed_bytes, 8 * kMiB);
  EXPECT_EQ(table_.totals(0).resident, 8 * kMiB);
  load_all();
  expect_bytes(range, bytes);
}

TEST_F(PagerTest, WithoutHostMemoryNotEveryChunkAsksForSome) {
  allocate(32 * kMiB);
  load_all();
  open_gate();
  slabs_.left = 0;
  EXPECT_TRUE(pager_.evict(0, ~std::uint64_t{0}).failed);
  EXPECT_EQ(slabs_.requests, 2);  // a slab of the usual size, and one for a chunk
  slabs_.left = 32 * kMiB;
  EXPECT_FALSE(pager_.evict(0, ~std::uint64_t{0}).failed);
}

TEST_F(PagerTest, BeforeItAsksForHostMemoryWhatIsCopiedLeavesHbm) {
  allocate(32 * kMiB);
  load_all();
  open_gate();
  slabs_.left = 8 * kMiB;
  std::vector<std::size_t> in_hbm;
  slabs_.before_request = [&] { in_hbm.push_back(driver_.used_bytes()); };
  pager_.evict(0, ~std::uint64_t{0});
  EXPECT_EQ(in_hbm, (std::vector<std::size_t>{32 * kMiB, 24 * kMiB, 24 * kMiB}));
}

TEST_F(PagerTest, WhereAnotherSlabDoesNotFitOneForTheChunkAloneMay) {
  const Range* range = allocate(16 * kMiB);
  load_all();
  open_gate();
  const auto bytes = random_bytes(16 * kMiB, 4);
  ASSERT_TRUE(driver_.write(range->start, bytes));
  slabs_.left = 12 * kMiB;
  EXPECT_EQ(pager_.evict(0, ~std::uint64_t{0}).freed_bytes, 12 * kMiB);
  EXPECT_EQ(store_.bytes(), 12 * kMiB);
  load_all();
  expect_bytes(range, bytes);
}

TEST_F(PagerTest, WhoOwesSlabsLoadsSlabBySlab) {
  std::vector<Range*> ranges;
  for (int i = 0; i < 4; ++i) ranges.push_back(allocate(4 * kMiB));
  load_all();
  open_gate();
  std::vector<std::vector<std::byte>> bytes;
  for (const Range* range : ranges) {
    bytes.push_back(random_bytes(4 * kMiB, range->start));
    ASSERT_TRUE(driver_.write(range->start, bytes.back()));
  }
  // They leave in this order, two to a slab.
  for (const int i : {0, 2, 1, 3}) table_.note_use(ranges[static_cast<std::size_t>(i)]->start);
  ASSERT_FALSE(pager_.evict(0, ~std::uint64_t{0}).failed);
  ASSERT_EQ(store_.bytes(), 16 * kMiB);
  driver_.hbm_bytes = 8 * kMiB;
  while (pager_.load_step(0, &figures_, Pager::Order::kBySlab) == Pager::Progress::kMore) {
  }
  EXPECT_EQ(table_.totals(0).resident, 8 * kMiB);
  EXPECT_EQ(pager_.give_back_host(8 * kMiB), 8 * kMiB);
  driver_.hbm_bytes = 64 * kMiB;
  load_all();
  for (std::size_t i = 0; i < ranges.size(); ++i) expect_bytes(ranges[i], bytes[i]);
}

TEST_F(PagerTest, KeptCopiesAreGivenUpForOthersAndNothingElse) {
  const Range* range = allocate(32 * kMiB);
  load_all();
  open_gate();
  const auto bytes = random_bytes(32 * kMiB, 5);
  ASSERT_TRUE(driver_.write(range->start, bytes));
  ASSERT_FALSE(pager_.evict(0, ~std::uint64_t{0}).failed);
  EXPECT_EQ(pager_.give_back_host(8 * kMiB), 0u);  // all of it is evicted bytes
  load_all();
  EXPECT_EQ(store_.bytes(), 32 * kMiB);
  EXPECT_EQ(pager_.give_back_host(12 * kMiB), 16 * kMiB);  // whole slabs
  EXPECT_EQ(store_.bytes(), 16 * kMiB);
  expect_bytes(range, bytes);
  // Half of it still has its copy, the rest is copied again.
  const auto out = pager_.evict(0, ~std::uint64_t{0});
  EXPECT_EQ(out.untouched_bytes, 16 * kMiB);
  EXPECT_EQ(out.moved_bytes, 16 * kMiB);
  load_all();
  expect_bytes(range, bytes);
  EXPECT_EQ(pager_.give_back_host(~std::uint64_t{0}), 32 * kMiB);
  EXPECT_EQ(driver_.registered_ranges(), 0u);
}

TEST_F(PagerTest, OutOfMemoryWhileLoadingIsTriedAgain) {
  const Range* range = allocate(40 * kMiB);
  const auto neighbour = driver_.hbm_bytes;
  driver_.hbm_bytes = 20 * kMiB;  // somebody else's memory is not gone yet
  EXPECT_EQ(load(), Pager::Progress::kNoMemory);
  EXPECT_EQ(table_.totals(0).moving, 0u);
  driver_.hbm_bytes = neighbour;
  EXPECT_EQ(load(), Pager::Progress::kDone);
  EXPECT_EQ(table_.totals(0).resident, range->mapped_bytes);
}

TEST_F(PagerTest, NothingIsOnItsWayWhenMemoryLacks) {
  const Range* range = allocate(40 * kMiB);
  load_all();
  open_gate();
  const auto bytes = random_bytes(40 * kMiB, 3);
  ASSERT_TRUE(driver_.write(range->start, bytes));
  pager_.evict(0, ~std::uint64_t{0});
  const auto neighbour = driver_.hbm_bytes;
  driver_.hbm_bytes = 20 * kMiB;
  EXPECT_EQ(load(), Pager::Progress::kNoMemory);
  EXPECT_EQ(table_.totals(0).moving, 0u);
  EXPECT_EQ(table_.totals(0).resident, 20 * kMiB);
  driver_.hbm_bytes = neighbour;
  load_all();
  expect_bytes(range, bytes);
}

TEST_F(PagerTest, ALoadThatIsNotGoneOnWithCanBeFinished) {
  allocate(40 * kMiB);
  load_all();
  open_gate();
  pager_.evict(0, ~std::uint64_t{0});
  EXPECT_EQ(pager_.load_step(0, &figures_), Pager::Progress::kMore);
  EXPECT_NE(table_.totals(0).moving, 0u);
  pager_.finish_loads(&figures_);
  EXPECT_EQ(table_.totals(0).moving, 0u);
}

struct Failure {
  const char* call;
  int nth;
};

class PagerFailureTest : public PagerTest, public ::testing::WithParamInterface<Failure> {};

TEST_P(PagerFailureTest, OneFailingCallLosesNothing) {
  const Range* range = allocate(22 * kMiB);
  load_all();
  open_gate();
  const auto bytes = random_bytes(22 * kMiB, 4);
  ASSERT_TRUE(driver_.write(range->start, bytes));
  driver_.fail(GetParam().call, GetParam().nth, CUDA_ERROR_INVALID_VALUE);
  pager_.evict(0, ~std::uint64_t{0});
  EXPECT_EQ(table_.totals(0).moving, 0u);
  pager_.evict(0, ~std::uint64_t{0});
  load_all();
  expect_bytes(range, bytes);
  EXPECT_EQ(driver_.used_bytes(), range->mapped_bytes);  // no handle was forgotten
}

INSTANTIATE_TEST_SUITE_P(
    EveryStep, PagerFailureTest,
    ::testing::Values(Failure{"cuMemcpyDtoHAsync_v2", 1}, Failure{"cuMemcpyDtoHAsync_v2", 3},
                      Failure{"cuMemUnmap", 1}, Failure{"cuMemUnmap", 4},
                      Failure{"cuEventRecord", 2}, Failure{"cuEventCreate", 1},
                      Failure{"cuEventSynchronize", 2}, Failure{"cuMemCreate", 1},
                      Failure{"cuMemCreate", 3}, Failure{"cuMemMap", 1}, Failure{"cuMemMap", 2},
                      Failure{"cuMemSetAccess", 1}, Failure{"cuMemcpyHtoDAsync_v2", 1},
                      Failure{"cuMemcpyHtoDAsync_v2", 4}, Failure{"cuStreamCreate", 1},
                      Failure{"cuMemHostRegister_v2", 1}),
    [](const auto& info) { return std::string(info.param.call) + std::to_string(info.param.nth); });

TEST_F(PagerTest, OfADeadContextOneLineIsSaidHoweverMuchItHas) {
  allocate(20 * kMiB);  // five chunks
  load_all();
  open_gate();
  driver_.fail_always("cuMemcpyDtoHAsync_v2", CUDA_ERROR_ILLEGAL_ADDRESS);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(pager_.evict(0, ~std::uint64_t{0}).freed_bytes, 20 * kMiB);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("context has failed"), std::string::npos) << said;
  driver_.fail_always("cuMemcpyDtoHAsync_v2", CUDA_SUCCESS);
}

TEST_F(PagerTest, AFailedContextGivesItsChunksUpAndIsNotTriedForEver) {
  allocate(8 * kMiB);
  load_all();
  open_gate();
  driver_.fail_always("cuMemcpyDtoHAsync_v2", CUDA_ERROR_ILLEGAL_ADDRESS);
  const auto out = pager_.evict(0, ~std::uint64_t{0});
  EXPECT_EQ(out.freed_bytes, 8 * kMiB);
  EXPECT_EQ(driver_.used_bytes(), 0u);
}

TEST_F(PagerTest, ADriverThatClosesInTheMidstIsLeftAloneAndNotWarnedOf) {
  allocate(8 * kMiB);
  load_all();
  open_gate();
  driver_.fail_always("cuMemcpyDtoHAsync_v2", CUDA_ERROR_DEINITIALIZED);
  driver_.fail_always("cuMemHostRegister_v2", CUDA_ERROR_DEINITIALIZED);
  ::testing::internal::CaptureStderr();
  const auto out = pager_.evict(0, ~std::uint64_t{0});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(out.failed);
  EXPECT_EQ(out.freed_bytes, 0u);
  EXPECT_EQ(driver_.calls("cuMemUnmap"), 0);
}

TEST_F(PagerTest, NothingLeavesAProcessThatIsAboutToEnd) {
  const Range* range = allocate(8 * kMiB);
  load_all();
  open_gate();
  const auto bytes = random_bytes(8 * kMiB, 3);
  ASSERT_TRUE(driver_.write(range->start, bytes));
  pager_.begin_exit();
  const auto out = pager_.evict(0, ~std::uint64_t{0});
  EXPECT_TRUE(out.failed);
  EXPECT_EQ(out.freed_bytes, 0u);
  EXPECT_EQ(driver_.calls("cuMemcpyDtoHAsync_v2"), 0);
  EXPECT_EQ(table_.totals(0).resident, 8 * kMiB);
  expect_bytes(range, bytes);
}

TEST_F(PagerTest, BackingAtOnceTellsWhenThereIsNoMemory) {
  const Range* range = allocate(80 * kMiB);  // HBM is 64
  EXPECT_FALSE(pager_.back_now(range));
  EXPECT_EQ(table_.totals(0).moving, 0u);
  const Range* small = allocate(2 * kMiB);
  driver_.hbm_bytes = 100 * kMiB;
  EXPECT_TRUE(pager_.back_now(small));
}

TEST_F(PagerTest, AReleasedRangeLeavesNothingBehind) {
  Range* range = allocate(10 * kMiB);
  load_all();
  open_gate();
  pager_.evict(0, 4 * kMiB);
  std::size_t freed = 0;
  pager_.release(table_.remove(range->start, &freed));
  EXPECT_EQ(driver_.used_bytes(), 0u);
  EXPECT_EQ(driver_.mapped_bytes(), 0u);
}

TEST_F(PagerTest, LeavingAContextTakesStreamAndRegistrationsOff) {
  allocate(8 * kMiB);
  load_all();
  open_gate();
  pager_.evict(0, ~std::uint64_t{0});
  EXPECT_EQ(driver_.registered_ranges(), 1u);
  pager_.leave_context(context_).unlock();
  EXPECT_EQ(driver_.registered_ranges(), 0u);
  EXPECT_TRUE(driver_.streams.empty());
  load_all();  // in a stream made anew, with the slab registered again
  EXPECT_EQ(driver_.registered_ranges(), 1u);
}

}  // namespace
}  // namespace plexrl::shim
