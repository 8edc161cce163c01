#include "clustermgr/placements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/clustermgr/fake_cluster.h"

namespace plexrl::clustermgr {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;
using cluster::v1::PlaceJobRequest;
using cluster::v1::Placement;
using test::fake_report;
using test::fake_request;

struct PlacementsTest : ::testing::Test {
  Placements placements{10s};

  std::string add(const PlaceJobRequest& request, Placement::State state,
                  const std::string& job_id = "") {
    Placement record = placements.newcomer(request, 0).value();
    record.set_state(state);
    record.set_job_id(job_id);
    if (state == Placement::PLACED || state == Placement::RUNNING) record.set_node("a1");
    placements.put(record, 0s);
    return record.id();
  }
};

const std::string kJob(32, 'e');

TEST_F(PlacementsTest, WhatCannotBeAskedForIsSaid) {
  EXPECT_TRUE(Placements::check(fake_request("1", "x")).ok());
  struct Case {
    std::function<void(PlaceJobRequest&)> change;
    const char* says;
  };
  const Case cases[] = {
      {[](auto& it) { it.set_id("short"); }, "32 hex digits"},
      {[](auto& it) { it.set_job_id("../../etc"); }, "32 hex digits"},
      {[](auto& it) { it.mutable_job()->set_gpus(0); }, "--gpus 0"},
      {[](auto& it) { it.mutable_job()->set_gpus(65); }, "--gpus 65"},
      {[](auto& it) { it.mutable_job()->set_nodes(-1); }, "--nodes -1"},
      {[](auto& it) { it.mutable_job()->set_memory_bytes(~0ull); }, "more than any GPU has"},
      {[](auto& it) { it.mutable_job()->set_max_slowdown(0.5); }, "above 1"},
      {[](auto& it) { it.mutable_job()->set_max_slowdown(std::nan("")); }, "above 1"},
      {[](auto& it) { it.mutable_job()->set_name(""); }, "a user and a name"},
      {[](auto& it) { it.mutable_job()->set_team(std::string(1000, 'x')); }, "above 512 bytes"},
      {[](auto& it) { it.mutable_job()->add_only_gpus(""); }, "no name"},
  };
  for (const Case& one : cases) {
    PlaceJobRequest request = fake_request("1", "x");
    one.change(request);
    const absl::Status status = Placements::check(request);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << one.says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.says));
  }
  PlaceJobRequest many = fake_request("1", "x");
  for (int i = 0; i < 65; ++i) many.mutable_job()->add_apart_from("y");
  EXPECT_FALSE(Placements::check(many).ok());
}

TEST_F(PlacementsTest, AJobEndsWhenItsNodeNoLongerTellsOfIt) {
  add(fake_request("1", "x"), Placement::RUNNING, kJob);
  auto report = fake_report("a1", 1);
  *report.add_jobs() = test::fake_job("", "x");
  report.mutable_jobs(0)->set_id(kJob);
  EXPECT_TRUE(placements.ended_by(report, 5).empty());
  EXPECT_TRUE(placements.ended_by(fake_report("a2", 1), 5).empty());
  const Placements::Records over = placements.ended_by(fake_report("a1", 1), 5);
  ASSERT_EQ(over.size(), 1);
  EXPECT_EQ(over[0].state(), Placement::ENDED);
  EXPECT_EQ(over[0].ended_unix_ns(), 5);
}

TEST_F(PlacementsTest, AReportThatWasMadeBeforeTheJobBeganEndsNothing) {
  add(fake_request("1", "x"), Placement::RUNNING, kJob);
  EXPECT_TRUE(placements.ended_by(fake_report("a1", 1), 5).empty());
  EXPECT_EQ(placements.ended_by(fake_report("a1", 1), 5).size(), 1);
}

TEST_F(PlacementsTest, OneThatDoesNotRunYetIsGivenUpWithItsRequester) {
  const std::string waiting = add(fake_request("1", "x"), Placement::QUEUED);
  const std::string placed = add(fake_request("2", "x"), Placement::PLACED);
  add(fake_request("3", "x"), Placement::RUNNING, kJob);
  EXPECT_TRUE(placements.given_up(9s, 5).empty());
  placements.heard(placed, 5s);
  Placements::Records over = placements.given_up(10s, 5);
  ASSERT_EQ(over.size(), 1);
  EXPECT_EQ(over[0].id(), waiting);
  EXPECT_EQ(placements.given_up(15s, 5).size(), 2);
}

TEST_F(PlacementsTest, JobsAreLostWithTheirNode) {
  add(fake_request("1", "x"), Placement::RUNNING, kJob);
  add(fake_request("2", "x"), Placement::QUEUED);
  EXPECT_TRUE(placements.lost_with("a2", 5).empty());
  ASSERT_EQ(placements.lost_with("a1", 5).size(), 1);
  EXPECT_EQ(placements.lost_with("a1", 5)[0].ended_reason(), "node a1 is lost");
}

TEST_F(PlacementsTest, OneThatWaitsCanBeOvertakenOnlySoOften) {
  const std::string waiting = add(fake_request("f", "large"), Placement::QUEUED);
  for (std::uint32_t i = 0; i < Placements::kMostOvertaken; ++i) {
    EXPECT_FALSE(placements.has_waited_enough());
    add(fake_request("a" + std::to_string(i) + "b", "small"), Placement::PLACED);
  }
  EXPECT_TRUE(placements.has_waited_enough());
  EXPECT_EQ(placements.find(waiting)->record.overtaken(), Placements::kMostOvertaken);
}

TEST_F(PlacementsTest, TheQueueIsInTheOrderOfArrival) {
  const std::string first = add(fake_request("f", "x"), Placement::QUEUED);
  const std::string second = add(fake_request("1", "x"), Placement::QUEUED);
  EXPECT_THAT(placements.queue(), ::testing::ElementsAre(first, second));
}

TEST_F(PlacementsTest, AJobIsFoundByIdBeginningOrName) {
  const std::string first = add(fake_request("abcd1", "x"), Placement::RUNNING, kJob);
  const std::string second = add(fake_request("abcd2", "x"), Placement::REFUSED);
  EXPECT_EQ(placements.find_job("x")->id(), first);  // the one that lives
  EXPECT_EQ(placements.find_job(second)->id(), second);
  EXPECT_EQ(placements.find_job(kJob)->id(), first);
  EXPECT_EQ(placements.find_job("eeee")->id(), first);
  EXPECT_EQ(placements.find_job("abcd2")->id(), second);
  EXPECT_TRUE(absl::IsInvalidArgument(placements.find_job("abcd").status()));
  EXPECT_TRUE(absl::IsNotFound(placements.find_job("y").status()));
  EXPECT_TRUE(absl::IsNotFound(placements.find_job("").status()));
}

TEST_F(PlacementsTest, OldOnesAreForgottenTheLastEndedStay) {
  Placement record;
  for (std::size_t i = 0; i <= Placements::kMostEnded; ++i) {
    record = placements.newcomer(fake_request(std::to_string(1000 + i), "x"), 0).value();
    placements.put(Placements::ended(record, "over", static_cast<std::int64_t>(1000 - i)), 0s);
  }
  const std::vector<std::string> old = placements.too_old();
  ASSERT_EQ(old.size(), 1);
  EXPECT_EQ(old[0], record.id());
}

}  // namespace
}  // namespace plexrl::clustermgr
