#include "clustermgr/chooser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/clustermgr/fake_cluster.h"

namespace plexrl::clustermgr {
namespace {

using cluster::v1::PlaceJobRequest;
using cluster::v1::Placement;
using test::fake_job;
using test::fake_report;
using test::fake_request;
using test::kGiB;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct ChooserTest : ::testing::Test {
  Nodes nodes{NodesConfig{}};
  Placements placements{std::chrono::seconds(30)};
  JobRecords records;
  ChooserConfig config;

  Placement choose(const PlaceJobRequest& request) {
    Chooser chooser(config);
    chooser.look(nodes, placements, records);
    return chooser.choose(placements.newcomer(request, 0).value());
  }
  /// And it counts from then on.
  Placement place(const PlaceJobRequest& request) {
    Placement record = choose(request);
    placements.put(record, Placements::Instant{0});
    return record;
  }
  void learn(const cluster::v1::Job& job) { records.remember(*records.news(job, 1)); }
};

TEST_F(ChooserTest, AFirstJobGetsTheFirstGpuOfANode) {
  test::accept(nodes, fake_report("a1", 2));
  const Placement record = choose(fake_request("1", "x"));
  EXPECT_EQ(record.state(), Placement::PLACED);
  EXPECT_EQ(record.node(), "a1");
  EXPECT_THAT(record.gpus(), ElementsAre("a1-0"));
  EXPECT_EQ(record.decision().reason(), "no history: profiled on its own");
  ASSERT_EQ(record.decision().choices_size(), 1);
  EXPECT_TRUE(record.decision().choices(0).chosen());
  EXPECT_EQ(record.decision().choices(0).basis(), "nothing known");
  EXPECT_THAT(record.decision().choices(0).beside(), IsEmpty());
}

TEST_F(ChooserTest, JobsOfWhichNothingIsKnownGetGpusOfTheirOwn) {
  test::accept(nodes, fake_report("a1", 2));
  EXPECT_THAT(place(fake_request("1", "x")).gpus(), ElementsAre("a1-0"));
  EXPECT_THAT(place(fake_request("2", "y")).gpus(), ElementsAre("a1-1"));
  const Placement third = place(fake_request("3", "z"));
  EXPECT_EQ(third.state(), Placement::PLACED);
  EXPECT_EQ(third.decision().reason(), "no history, no free GPUs: shares");
}

TEST_F(ChooserTest, JobsWithGapsShareThoughGpusAreFree) {
  test::accept(nodes, fake_report("a1", 2));
  learn(fake_job("e", "x", 10, 90));
  learn(fake_job("e", "y", 10, 90));
  place(fake_request("1", "x"));
  const Placement second = place(fake_request("2", "y"));
  EXPECT_THAT(second.gpus(), ElementsAre("a1-0"));
  const auto& chosen = second.decision().choices(0);
  EXPECT_TRUE(chosen.chosen());
  EXPECT_THAT(chosen.beside(), ElementsAre("ann/x"));
  EXPECT_EQ(chosen.basis(), "estimate");
}

TEST_F(ChooserTest, BusyJobsDoNotShareWhileGpusAreFree) {
  test::accept(nodes, fake_report("a1", 2));
  learn(fake_job("e", "x", 90, 10));
  learn(fake_job("e", "y", 90, 10));
  place(fake_request("1", "x"));
  EXPECT_THAT(place(fake_request("2", "y")).gpus(), ElementsAre("a1-1"));
}

TEST_F(ChooserTest, WhatRunsWithoutHavingBeenPlacedIsSeen) {
  auto report = fake_report("a1", 2);
  *report.add_jobs() = fake_job("e", "started by hand", 90, 10);
  test::accept(nodes, report);
  learn(fake_job("e", "x", 90, 10));
  EXPECT_THAT(choose(fake_request("1", "x")).gpus(), ElementsAre("a1-1"));
}

TEST_F(ChooserTest, GpusThatRunningJobsShareInPartAreOneSet) {
  auto report = fake_report("a1", 3);
  cluster::v1::Job wide = fake_job("e", "wide");
  wide.mutable_gangs(0)->add_gpus(1);
  *report.add_jobs() = wide;
  cluster::v1::Job narrow = fake_job("f", "narrow");
  narrow.mutable_gangs(0)->set_gpus(0, 1);
  *report.add_jobs() = narrow;
  test::accept(nodes, report);
  EXPECT_THAT(choose(fake_request("1", "x")).gpus(), ElementsAre("a1-2"));
}

TEST_F(ChooserTest, AJobThatHasNotToldItsIdYetCountsOnce) {
  config.max_sharers = 2;
  test::accept(nodes, fake_report("a1", 1));
  place(fake_request("1", "x"));
  auto report = fake_report("a1", 1);
  *report.add_jobs() = fake_job("e", "x");
  test::accept(nodes, report);
  EXPECT_EQ(choose(fake_request("2", "y")).state(), Placement::PLACED);
}

TEST_F(ChooserTest, BoundsAreKept) {
  test::accept(nodes, fake_report("a1", 1));
  learn(fake_job("e", "x", 60, 40));
  learn(fake_job("e", "y", 60, 40));
  PlaceJobRequest careful = fake_request("1", "x");
  careful.mutable_job()->set_max_slowdown(1.05);
  place(careful);
  const Placement second = place(fake_request("2", "y"));
  EXPECT_EQ(second.state(), Placement::QUEUED);
  EXPECT_THAT(second.decision().reason(), HasSubstr("beyond its bound"));
  EXPECT_EQ(second.decision().when(), "when one of these ends: ann/x on a1");
}

TEST_F(ChooserTest, ApartIsApart) {
  test::accept(nodes, fake_report("a1", 1));
  place(fake_request("1", "x"));
  PlaceJobRequest other = fake_request("2", "y");
  other.mutable_job()->add_apart_from("x");
  const Placement second = choose(other);
  EXPECT_EQ(second.state(), Placement::QUEUED);
  EXPECT_EQ(second.decision().reason(), "must be apart from a job there");
  other.mutable_job()->set_user("bob");  // whose "x" is another
  EXPECT_EQ(choose(other).state(), Placement::PLACED);
}

TEST_F(ChooserTest, SharersAreLimitedAndWhoDoesNotWaitIsRefused) {
  config.max_sharers = 1;
  test::accept(nodes, fake_report("a1", 1));
  place(fake_request("1", "x"));
  PlaceJobRequest second = fake_request("2", "y");
  EXPECT_EQ(choose(second).state(), Placement::QUEUED);
  second.mutable_job()->set_no_wait(true);
  EXPECT_EQ(choose(second).state(), Placement::REFUSED);
}

TEST_F(ChooserTest, WhatCouldNeverBePlacedIsRefusedWithFigures) {
  test::accept(nodes, fake_report("a1", 2));
  const Placement wide = choose(fake_request("1", "x", 3));
  EXPECT_EQ(wide.state(), Placement::REFUSED);
  EXPECT_THAT(wide.decision().reason(),
              HasSubstr("asks for 3 GPUs on a node, and no node has more than 2"));
  EXPECT_EQ(wide.decision().figures(0).value(), 2);
  PlaceJobRequest large = fake_request("1", "x");
  large.mutable_job()->set_memory_bytes(100 * kGiB);
  EXPECT_THAT(choose(large).decision().reason(), HasSubstr("lower --memory"));
  PlaceJobRequest several = fake_request("1", "x");
  several.mutable_job()->set_nodes(2);
  EXPECT_THAT(choose(several).decision().reason(), HasSubstr("several nodes can't be placed yet"));
}

TEST_F(ChooserTest, WithoutNodesItWaits) {
  const Placement record = choose(fake_request("1", "x"));
  EXPECT_EQ(record.state(), Placement::QUEUED);
  EXPECT_EQ(record.decision().reason(), "no node has joined");
  EXPECT_EQ(record.decision().when(), "when a node with enough GPUs joins");
}

TEST_F(ChooserTest, ADrainingNodeTakesNothing) {
  auto report = fake_report("a1", 1);
  report.mutable_inventory()->set_draining(true);
  test::accept(nodes, report);
  const Placement record = choose(fake_request("1", "x"));
  EXPECT_EQ(record.state(), Placement::QUEUED);
  EXPECT_THAT(record.decision().when(), HasSubstr("plexrl-ctl undrain"));
}

TEST_F(ChooserTest, ALostNodeTakesNothing) {
  test::accept(nodes, fake_report("a1", 1));
  nodes.look(std::chrono::hours(1));
  test::accept(nodes, fake_report("a2", 1), std::chrono::hours(1));
  EXPECT_EQ(choose(fake_request("1", "x")).node(), "a2");
}

TEST_F(ChooserTest, OnlyNamedGpusAreChosenFrom) {
  test::accept(nodes, fake_report("a1", 4));
  PlaceJobRequest request = fake_request("1", "x");
  request.mutable_job()->add_only_gpus("a1-3");
  EXPECT_THAT(place(request).gpus(), ElementsAre("a1-3"));
  request = fake_request("2", "y", 2);
  request.mutable_job()->add_only_gpus("a1-3");
  EXPECT_THAT(choose(request).decision().reason(),
              HasSubstr("of those that CUDA_VISIBLE_DEVICES names"));
  request.mutable_job()->add_only_gpus("elsewhere");
  EXPECT_THAT(choose(request).decision().reason(), HasSubstr("GPU elsewhere"));
}

TEST_F(ChooserTest, OneChoiceAfterAnotherCountsWithoutALook) {
  test::accept(nodes, fake_report("a1", 3));
  Chooser chooser(config);
  chooser.look(nodes, placements, records);
  const auto next = [&](const char* id, const char* only) {
    PlaceJobRequest request = fake_request(id, id);
    if (*only != '\0') request.mutable_job()->add_only_gpus(only);
    Placement record = chooser.choose(placements.newcomer(request, 0).value());
    placements.put(record, Placements::Instant{0});
    return std::string(record.gpus(0));
  };
  EXPECT_EQ(next("1", ""), "a1-0");
  EXPECT_EQ(next("2", "a1-2"), "a1-2");
  EXPECT_EQ(next("3", ""), "a1-1");
}

TEST_F(ChooserTest, TeamsHaveQuotas) {
  config.team_gpus = {{"red", 1}};
  test::accept(nodes, fake_report("a1", 2));
  PlaceJobRequest request = fake_request("1", "x");
  request.mutable_job()->set_team("red");
  place(request);
  request.set_id(std::string(32, '2'));
  EXPECT_EQ(choose(request).decision().reason(), "quota of its team is used up");
  request.mutable_job()->set_gpus(2);
  EXPECT_EQ(choose(request).state(), Placement::REFUSED);
}

TEST_F(ChooserTest, OfTwoKindsOfGpuTheOneThatCostsLessIsTaken) {
  test::accept(nodes, fake_report("a1", 1, "A100"));
  test::accept(nodes, fake_report("h1", 1, "H200"));
  learn(fake_job("e", "x", 10, 90));
  learn(fake_job("e", "y", 10, 90));
  PlaceJobRequest first = fake_request("1", "x");
  first.mutable_job()->add_only_gpus("h1-0");
  place(first);
  EXPECT_EQ(place(fake_request("2", "y")).node(), "h1");
}

TEST_F(ChooserTest, WhatWasEstimatedIsReplayedForTheNextDecision) {
  test::accept(nodes, fake_report("a1", 1));
  learn(test::fake_recorded_job("x", 10, 90));
  learn(test::fake_recorded_job("y", 10, 90));
  place(fake_request("1", "x"));
  Chooser chooser(config);
  const auto choose_y = [&](const char* id) {
    chooser.look(nodes, placements, records);
    return chooser.choose(placements.newcomer(fake_request(id, "y"), 0).value())
        .decision()
        .choices(0);
  };
  const cluster::v1::Choice first = choose_y("2");
  EXPECT_EQ(first.basis(), "estimate");
  EXPECT_TRUE(chooser.replay_one());
  EXPECT_FALSE(chooser.replay_one());
  EXPECT_EQ(choose_y("3").basis(), "replay");
  // Two clocks that tick alike: at the best lag they never meet.
  EXPECT_DOUBLE_EQ(first.best_overlap_ratio(), 0);
  EXPECT_GT(first.lag_rounds(), 20);
}

TEST_F(ChooserTest, ALagThatDoesNotHoldIsNotTold) {
  test::accept(nodes, fake_report("a1", 1));
  learn(test::fake_recorded_job("x", 10, 90));
  learn(test::fake_recorded_job("y", 10, 70));
  place(fake_request("1", "x"));
  EXPECT_EQ(choose(fake_request("2", "y")).decision().choices(0).lag_rounds(), 0);
}

}  // namespace
}  // namespace plexrl::clustermgr
