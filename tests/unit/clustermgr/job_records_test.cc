#include "clustermgr/job_records.h"

#include <gtest/gtest.h>

#include "tests/unit/clustermgr/fake_cluster.h"

namespace plexrl::clustermgr {
namespace {

using placement::seconds;
using test::fake_durations;
using test::fake_job;

TEST(JobRecords, ARoundIsABurstAndTheGapAfterIt) {
  const auto usual = usual_round(fake_job("a", "x", 2, 6).gangs());
  ASSERT_TRUE(usual);
  EXPECT_DOUBLE_EQ(seconds(usual->burst), 2);
  EXPECT_DOUBLE_EQ(seconds(usual->gap), 6);
  EXPECT_DOUBLE_EQ(usual->cv, 0);
}

TEST(JobRecords, SpreadQuantilesAreVariation) {
  cluster::v1::Job job = fake_job("a", "x", 2, 6);
  job.mutable_gangs(0)->mutable_gaps()->set_p90_s(6 + 2.563);
  EXPECT_NEAR(usual_round(job.gangs())->cv, 0.11, 0.02);
}

TEST(JobRecords, GangsTogetherAreBusyWhileAnyIs) {
  cluster::v1::Job job = fake_job("a", "x", 2, 6);
  *job.add_gangs() = fake_job("b", "x", 1, 1).gangs(0);
  const auto usual = usual_round(job.gangs());
  EXPECT_DOUBLE_EQ(seconds(usual->burst), 6);  // 1/4 + 1/2 of 8 s
  *job.add_gangs() = job.gangs(1);
  EXPECT_DOUBLE_EQ(seconds(usual_round(job.gangs())->gap), 0);
}

TEST(JobRecords, AGangThatHasShownTooLittleIsNotKnown) {
  cluster::v1::Job job = fake_job("a", "x", 2, 6);
  *job.mutable_gangs(0)->mutable_gaps() = fake_durations(6, 2);
  EXPECT_FALSE(usual_round(job.gangs()));
  EXPECT_FALSE(JobRecords().news(job, 1));
}

TEST(JobRecords, OnlyNewsAreStored) {
  JobRecords records;
  const cluster::v1::Job job = fake_job("a", "x", 2, 6);
  const auto first = records.news(job, 7);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->seen_unix_ns(), 7);
  EXPECT_EQ(first->promised_bytes(), 20 * test::kGiB);
  records.remember(*first);
  EXPECT_FALSE(records.news(job, 8));
  EXPECT_FALSE(records.news(fake_job("b", "x", 2.2, 6), 8));
  EXPECT_TRUE(records.news(fake_job("b", "x", 4, 6), 8));
  EXPECT_TRUE(records.news(fake_job("b", "y", 2, 6), 8));
  cluster::v1::Job longer = job;
  *longer.mutable_gangs(0)->mutable_gaps() = fake_durations(6, 40);
  EXPECT_TRUE(records.news(longer, 8));
}

TEST(JobRecords, TheOneSeenLongestAgoGoesFirst) {
  JobRecords records;
  for (std::size_t i = 0; i <= JobRecords::kMost; ++i) {
    cluster::v1::JobRecord record;
    record.set_user("ann");
    record.set_name(std::to_string(i));
    record.set_seen_unix_ns(i == 5 ? -1 : static_cast<std::int64_t>(i));
    records.remember(std::move(record));
  }
  const auto oldest = records.too_many();
  ASSERT_TRUE(oldest);
  EXPECT_EQ(oldest->second, "5");
  records.forget(oldest->first, oldest->second);
  EXPECT_FALSE(records.too_many());
}

TEST(JobRecords, BurstsOfGangsThatOverlapAreOne) {
  cluster::v1::Job job = test::fake_recorded_job("x", 10, 90);
  std::vector<placement::Burst> bursts = recent_bursts(job.gangs());
  ASSERT_EQ(bursts.size(), 12);
  EXPECT_EQ(bursts[0].wanted, placement::Instant{0});
  EXPECT_DOUBLE_EQ(seconds(bursts[1].wanted), 100);
  *job.add_gangs() = job.gangs(0);
  for (cluster::v1::Burst& burst : *job.mutable_gangs(1)->mutable_recent()) {
    burst.set_wanted_ns(burst.wanted_ns() + 5'000'000'000);
    burst.set_ended_ns(burst.ended_ns() + 5'000'000'000);
  }
  bursts = recent_bursts(job.gangs());
  ASSERT_EQ(bursts.size(), 12);
  EXPECT_DOUBLE_EQ(seconds(bursts[0].ended), 15);
  EXPECT_DOUBLE_EQ(seconds(bursts[0].work), 15);
  EXPECT_TRUE(recent_bursts(fake_job("a", "x", 2, 6).gangs()).empty());
}

}  // namespace
}  // namespace plexrl::clustermgr
