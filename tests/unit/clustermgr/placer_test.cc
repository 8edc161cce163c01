#include "clustermgr/placement/placer.h"

#include <gtest/gtest.h>

#include "tests/unit/clustermgr/fake_jobs.h"

namespace plexrl::clustermgr::placement {
namespace {

constexpr std::int64_t kGb = 1'000'000'000;

JobProfile job(std::uint64_t id, double rollout_s, double train_s, double bound = 1.2) {
  JobProfile profile = test::two_phases(id, rollout_s, train_s);
  profile.max_slowdown = bound;
  for (GangProfile& gang : profile.gangs) {
    gang.gpus = 8;
    gang.hbm_bytes = 60 * kGb;
  }
  return profile;
}

PlacerConfig phases() {
  PlacerConfig config;
  config.predictor.usable_hbm_bytes = 80 * kGb;
  config.predictor.policy.min_quantum = std::chrono::minutes(30);
  config.predictor.policy.max_wait = std::chrono::minutes(30);
  return config;
}

void add_nodes(Placer& placer, const char* pool, int count, std::uint32_t first,
               std::int64_t tier_bytes = 4000 * kGb) {
  for (int i = 0; i < count; ++i) {
    NodeInfo node;
    node.id = NodeId{first + static_cast<std::uint32_t>(i)};
    node.pool = pool;
    node.tier_bytes = tier_bytes;
    placer.nodes().add_node(node);
  }
}

struct Cluster {
  Placer placer;
  explicit Cluster(int nodes = 4, PlacerConfig config = phases()) : placer(config) {
    add_nodes(placer, "rollout", nodes, 1);
    add_nodes(placer, "train", nodes, 100);
  }
};

TEST(Placer, JobsWhoseGapsInterlockShare) {
  Cluster c;
  PlaceDecision first = c.placer.place(job(1, 50, 50));
  PlaceDecision second = c.placer.place(job(2, 50, 50));
  ASSERT_TRUE(first.placed && second.placed);
  EXPECT_EQ(first.slots, second.slots);
  EXPECT_EQ(second.reason, "shares: least marginal cost");
  EXPECT_LT(c.placer.predicted(JobId{1}), 1.2);
  EXPECT_EQ(c.placer.nodes().open_gpus(), 16);
}

TEST(Placer, NobodyIsSlowedDownBeyondTheBound) {
  Cluster c;
  c.placer.place(job(1, 50, 50));
  c.placer.place(job(2, 50, 50));
  PlaceDecision third = c.placer.place(job(3, 50, 50));
  ASSERT_TRUE(third.placed);
  EXPECT_EQ(third.opened.size(), 2u);
}

TEST(Placer, GangsOfAJobMayShareWithDifferentJobs) {
  Cluster c;
  // Rollouts fill their slots; training slots have room for several.
  for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(c.placer.place(job(id, 80, 20)).placed);
  EXPECT_EQ(c.placer.nodes().open_gpus(), 3 * 8 + 8);
}

TEST(Placer, JobWithoutHistoryIsProfiledOnItsOwn) {
  Cluster c;
  c.placer.place(job(1, 50, 50));
  JobProfile fresh = job(2, 50, 50);
  for (GangProfile& gang : fresh.gangs) gang.bursts.clear();
  PlaceDecision decision = c.placer.place(fresh);
  ASSERT_TRUE(decision.placed);
  EXPECT_EQ(decision.opened.size(), 2u);
  EXPECT_EQ(decision.reason, "no history: profiled on its own");
  // Once it is known, others may join.
  c.placer.learn(job(2, 50, 50));
  c.placer.remove(JobId{1});
  PlaceDecision third = c.placer.place(job(3, 50, 50));
  EXPECT_TRUE(third.opened.empty()) << third.reason;
}

TEST(Placer, FullClusterRefusesWithItsReason) {
  Cluster c(1);
  ASSERT_TRUE(c.placer.place(job(1, 20, 80)).placed);
  PlaceDecision decision = c.placer.place(job(2, 20, 80));
  EXPECT_FALSE(decision.placed);
  EXPECT_FALSE(decision.reason.empty());
  c.placer.remove(JobId{1});
  EXPECT_TRUE(c.placer.place(job(2, 20, 80)).placed);
}

TEST(Placer, MemoryOfAllTiersBoundsSharing) {
  Placer placer(phases());
  add_nodes(placer, "rollout", 2, 1, 0);  // nothing can be paged out there
  add_nodes(placer, "train", 2, 100);
  placer.place(job(1, 50, 50));
  PlaceDecision second = placer.place(job(2, 50, 50));
  ASSERT_TRUE(second.placed);
  EXPECT_NE(placer.slots_of(JobId{1})[0], placer.slots_of(JobId{2})[0]);
}

TEST(Placer, JobsThatMustBeApartAre) {
  Cluster c;
  c.placer.place(job(1, 50, 50));
  JobProfile other = job(2, 50, 50);
  other.apart_from = {"job1"};
  PlaceDecision decision = c.placer.place(other);
  ASSERT_TRUE(decision.placed);
  EXPECT_EQ(decision.opened.size(), 2u);
}

TEST(Placer, ExclusiveGangsShareNothing) {
  Cluster c;
  JobProfile pinned = job(1, 50, 50);
  pinned.gangs[1].shareable = false;
  c.placer.place(pinned);
  PlaceDecision decision = c.placer.place(job(2, 50, 50));
  ASSERT_TRUE(decision.placed);
  EXPECT_NE(c.placer.slots_of(JobId{1})[1], c.placer.slots_of(JobId{2})[1]);
}

TEST(Placer, TeamQuotaIsKept) {
  PlacerConfig config = phases();
  config.team_gpus["a"] = 16;
  Cluster c(4, config);
  JobProfile one = job(1, 50, 50);
  JobProfile two = job(2, 50, 50);
  one.team = two.team = "a";
  ASSERT_TRUE(c.placer.place(one).placed);
  PlaceDecision refused = c.placer.place(two);
  EXPECT_FALSE(refused.placed);
  EXPECT_EQ(refused.reason, "quota of its team is used up");
}

TEST(Placer, OwnersBoundHoldsOnItsNodes) {
  Placer placer(phases());
  for (std::uint32_t i = 0; i < 2; ++i) {
    for (const char* pool : {"rollout", "train"}) {
      NodeInfo node;
      node.id = NodeId{i * 2 + (pool[0] == 'r' ? 0u : 1u) + 1};
      node.pool = pool;
      node.tier_bytes = 4000 * kGb;
      node.owner = "a";
      node.owner_max_slowdown = 1.0001;
      placer.nodes().add_node(node);
    }
  }
  JobProfile owned = job(1, 50, 50, 2.0);
  owned.team = "a";
  placer.place(owned);
  PlaceDecision guest = placer.place(job(2, 60, 55, 2.0));
  ASSERT_TRUE(guest.placed);
  EXPECT_EQ(guest.opened.size(), 2u);
}

TEST(Placer, DrainingNodeTakesNothingNew) {
  Cluster c(1);
  c.placer.place(job(1, 50, 50));
  c.placer.nodes().set_draining(NodeId{100}, true);
  EXPECT_FALSE(c.placer.place(job(2, 50, 50)).placed);
}

TEST(Placer, WithoutReplaysItSaysThatItEstimated) {
  PlacerConfig config = phases();
  config.replays = 0;
  Cluster c(4, config);
  c.placer.place(job(1, 80, 20));
  PlaceDecision decision = c.placer.place(job(2, 80, 20));
  ASSERT_TRUE(decision.placed);
  for (const Figure& figure : decision.figures) {
    EXPECT_FALSE(figure.name == "replayed" && figure.value != 0);
  }
}

TEST(Slots, GangBiggerThanANodeTakesWholeNodes) {
  Slots slots;
  for (std::uint32_t i = 1; i <= 3; ++i) {
    NodeInfo node;
    node.id = NodeId{i};
    node.pool = "train";
    slots.add_node(node);
  }
  GangProfile gang;
  gang.pool = "train";
  gang.gpus = 16;
  ASSERT_TRUE(slots.can_open(gang));
  SlotId slot = slots.open(gang);
  EXPECT_EQ(slots.at(slot).parts.size(), 2u);
  EXPECT_FALSE(slots.can_open(gang));
  EXPECT_EQ(slots.free_gpus("train"), 8);
  slots.close(slot);
  EXPECT_EQ(slots.free_gpus("train"), 24);
}

/// One of which only the figures are known.
JobProfile usual_job(std::uint64_t id, double burst_s, double gap_s) {
  JobProfile profile;
  profile.id = JobId{id};
  profile.name = "usual" + std::to_string(id);
  profile.max_slowdown = 1e9;
  GangProfile& gang = profile.gangs.emplace_back();
  gang.pool = "train";
  if (burst_s > 0) gang.usual = UsualRound{from_seconds(burst_s), from_seconds(gap_s), 0.1};
  return profile;
}

TEST(Placer, FiguresWithoutBurstsAreEnoughForAnEstimate) {
  PlacerConfig config = phases();
  config.slowdown_price = 1;
  Placer placer(config);
  add_nodes(placer, "train", 1, 1);
  ASSERT_TRUE(placer.place(usual_job(1, 10, 90)).placed);
  const PlaceDecision second = placer.place(usual_job(2, 10, 90));
  ASSERT_TRUE(second.placed);
  EXPECT_EQ(second.reason, "shares: least marginal cost");
  EXPECT_FALSE(second.choices.at(0).replayed);

  Placer busy(config);
  add_nodes(busy, "train", 1, 1);
  ASSERT_TRUE(busy.place(usual_job(1, 90, 10)).placed);
  EXPECT_EQ(busy.place(usual_job(2, 90, 10)).reason, "on its own: no cheaper place");
}

TEST(Placer, WithoutHistoryItSharesOnlyWhereNoGpusAreFreeAndAllAcceptIt) {
  PlacerConfig config = phases();
  config.share_unprofiled = true;
  Placer placer(config);
  NodeInfo node;
  node.pool = "train";
  node.gpus = 1;
  node.tier_bytes = 1000 * kGb;
  placer.nodes().add_node(node);
  ASSERT_EQ(placer.place(usual_job(1, 0, 0)).reason, "no history: profiled on its own");
  ASSERT_EQ(placer.place(usual_job(2, 0, 0)).reason, "no history, no free GPUs: shares");
  JobProfile careful = usual_job(3, 0, 0);
  careful.max_slowdown = 2;
  const PlaceDecision third = placer.place(careful);
  EXPECT_FALSE(third.placed);
  EXPECT_EQ(third.reason, "a member would be slowed down beyond its bound");
}

TEST(Placer, WhatRunsSomewhereIsAdoptedThere) {
  Placer placer(phases());
  add_nodes(placer, "train", 2, 1);
  const SlotId slot = placer.nodes().open_at("train", {{NodeId{2}, 1}});
  placer.adopt(usual_job(1, 10, 90), {slot});
  EXPECT_EQ(placer.nodes().free_gpus("train"), 15);
  const PlaceDecision second = placer.place(usual_job(2, 10, 90));
  ASSERT_TRUE(second.placed);
  EXPECT_EQ(second.slots.at(0), slot);

  placer.start_over();
  EXPECT_EQ(placer.jobs(), 0);
  EXPECT_FALSE(placer.place(usual_job(2, 10, 90)).placed);
  add_nodes(placer, "train", 1, 1);
  EXPECT_TRUE(placer.place(usual_job(2, 10, 90)).placed);
}

TEST(Placer, ReplaysOutliveAFreshStart) {
  Cluster c;
  ASSERT_TRUE(c.placer.place(job(1, 50, 50)).placed);
  const std::vector<SlotId> slots = c.placer.place(job(2, 50, 50)).slots;
  const auto replays = c.placer.predictor().replays();
  ASSERT_GT(replays, 0);
  c.placer.start_over();
  add_nodes(c.placer, "rollout", 4, 1);
  add_nodes(c.placer, "train", 4, 100);
  ASSERT_TRUE(c.placer.place(job(1, 50, 50)).placed);
  EXPECT_EQ(c.placer.place(job(2, 50, 50)).slots, slots);
  EXPECT_EQ(c.placer.predictor().replays(), replays);
}

}  // namespace
}  // namespace plexrl::clustermgr::placement
