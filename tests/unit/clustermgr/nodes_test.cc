#include "clustermgr/nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/clustermgr/fake_cluster.h"

namespace plexrl::clustermgr {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace v1 = cluster::v1;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr char kJob[] = "0123456789abcdef0123456789abcdef";

v1::ReportNodeRequest report_of(const std::string& node, bool with_job = true) {
  v1::ReportNodeRequest report;
  report.set_node(node);
  report.set_sent_unix_ns(5'000'000'000);
  v1::Gpu& gpu = *report.mutable_inventory()->add_gpus();
  gpu.set_total_bytes(80 * kGiB);
  gpu.set_usable_bytes(79 * kGiB);
  report.mutable_inventory()->set_host_budget_bytes(512 * kGiB);
  if (!with_job) return report;
  v1::Job& job = *report.add_jobs();
  job.set_id(kJob);
  job.set_name("ppo");
  job.set_promised_bytes(70 * kGiB);
  job.add_gangs()->add_gpus(0);
  return report;
}

struct NodesTest : ::testing::Test {
  Nodes nodes{NodesConfig{30s, 5min}};
  void report(const v1::ReportNodeRequest& told, Nodes::Instant now) {
    nodes.accept(told, nodes.outcome_of(told).record, now, 3'000'000'000);
  }
  v1::Node only(Nodes::Instant now) const { return nodes.list(now).nodes(0); }
};

TEST_F(NodesTest, ANodeIsShownAsItReports) {
  report(report_of("a1"), 100s);
  const v1::Node node = only(101s);
  EXPECT_EQ(node.name(), "a1");
  EXPECT_EQ(node.state(), v1::Node::JOINED);
  EXPECT_EQ(node.silent_s(), 1);
  EXPECT_EQ(node.clock_ahead_s(), 2);
  EXPECT_EQ(node.inventory().gpus(0).total_bytes(), 80 * kGiB);
  EXPECT_EQ(node.jobs(0).name(), "ppo");
}

TEST_F(NodesTest, ASilentNodeIsLostAndItsJobsOnlyAfterTheGraceTime) {
  report(report_of("a1"), 100s);
  EXPECT_THAT(nodes.look(129s).lost, IsEmpty());
  const auto lost = nodes.look(130s);
  EXPECT_THAT(lost.lost, ElementsAre("a1"));
  EXPECT_THAT(lost.jobs_lost, IsEmpty());
  EXPECT_EQ(only(200s).state(), v1::Node::LOST);
  EXPECT_FALSE(only(200s).jobs_lost());
  EXPECT_THAT(nodes.look(429s).jobs_lost, IsEmpty());
  EXPECT_THAT(nodes.look(430s).jobs_lost, ElementsAre("a1"));
  EXPECT_TRUE(only(431s).jobs_lost());
  EXPECT_THAT(nodes.look(500s).jobs_lost, IsEmpty());  // told once
}

TEST_F(NodesTest, ANodeThatComesBackIsNoLongerLostNorAreItsJobs) {
  report(report_of("a1"), 0s);
  nodes.look(31s);
  nodes.look(400s);
  ASSERT_TRUE(only(400s).jobs_lost());
  report(report_of("a1"), 401s);
  EXPECT_EQ(only(401s).state(), v1::Node::JOINED);
  EXPECT_FALSE(only(401s).jobs_lost());
  EXPECT_EQ(nodes.count_lost(), 0);
}

TEST_F(NodesTest, OnlyWhatLastsIsWorthAWrite) {
  v1::ReportNodeRequest told = report_of("a1");
  EXPECT_TRUE(nodes.outcome_of(told).changes);
  report(told, 0s);
  told.mutable_jobs(0)->set_hbm_bytes(kGiB);
  told.mutable_jobs(0)->set_state("running");
  told.mutable_inventory()->mutable_gpus(0)->set_in_bytes_s(5e9);
  told.set_sent_unix_ns(9);
  EXPECT_FALSE(nodes.outcome_of(told).changes);
  EXPECT_TRUE(nodes.outcome_of(report_of("a1", false)).changes);
  told.mutable_inventory()->set_host_budget_bytes(kGiB);
  EXPECT_TRUE(nodes.outcome_of(told).changes);
}

TEST_F(NodesTest, ARestartedManagerGivesANodeItsTimeAnew) {
  nodes.remember(nodes.outcome_of(report_of("a1")).record, 0s);
  EXPECT_EQ(only(10s).jobs(0).name(), "ppo");
  EXPECT_THAT(nodes.look(29s).lost, IsEmpty());
  EXPECT_THAT(nodes.look(30s).lost, ElementsAre("a1"));
}

TEST(NodeReport, WhatCanNotBeIsRefusedWithFigures) {
  EXPECT_TRUE(Nodes::check(report_of("a1")).ok());
  const auto refused = [](auto change) {
    v1::ReportNodeRequest report = report_of("a1");
    change(report);
    const absl::Status status = Nodes::check(report);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(
      refused([](auto& r) { r.mutable_inventory()->mutable_gpus(0)->set_usable_bytes(81 * kGiB); }),
      HasSubstr("GPU 0 of 80GiB has 81GiB for jobs"));
  EXPECT_THAT(refused([](auto& r) { r.mutable_jobs(0)->set_promised_bytes(90 * kGiB); }),
              HasSubstr("has been promised 90GiB"));
  EXPECT_THAT(refused([](auto& r) { r.mutable_jobs(0)->set_hbm_bytes(90 * kGiB); }),
              HasSubstr("90GiB in HBM"));
  EXPECT_THAT(refused([](auto& r) { r.mutable_jobs(0)->mutable_gangs(0)->add_gpus(3); }),
              HasSubstr("runs on GPU 3"));
  EXPECT_THAT(refused([](auto& r) { *r.mutable_inventory()->add_gpus() = r.inventory().gpus(0); }),
              HasSubstr("is there twice"));
  EXPECT_THAT(refused([](auto& r) { r.mutable_inventory()->set_host_budget_bytes(1ull << 60); }),
              HasSubstr("can't be"));
  EXPECT_THAT(refused([](auto& r) { r.mutable_inventory()->clear_gpus(); }), HasSubstr("0 GPUs"));
  EXPECT_THAT(refused([](auto& r) { r.mutable_jobs(0)->set_id("1"); }), HasSubstr("32 digits"));
}

TEST(NodesReports, BurstsThatCannotBeAreRefused) {
  const auto status_of = [](auto change) {
    cluster::v1::ReportNodeRequest report = test::fake_report("a1", 1);
    *report.add_jobs() = test::fake_recorded_job("x", 10, 90);
    change(*report.mutable_jobs(0)->mutable_gangs(0));
    return Nodes::check(report);
  };
  EXPECT_TRUE(status_of([](auto&) {}).ok());
  EXPECT_FALSE(status_of([](auto& gang) { gang.mutable_recent(3)->set_ended_ns(1); }).ok());
  EXPECT_FALSE(status_of([](auto& gang) { gang.mutable_recent(3)->set_work_ns(-1); }).ok());
  EXPECT_FALSE(status_of([](auto& gang) { gang.mutable_recent(3)->set_work_ns(1ll << 60); }).ok());
  EXPECT_FALSE(status_of([](auto& gang) { gang.mutable_recent(0)->set_wanted_ns(-5); }).ok());
  EXPECT_FALSE(status_of([](auto& gang) { gang.set_period_s(std::nan("")); }).ok());
  EXPECT_FALSE(status_of([](auto& gang) {
                 for (int i = 0; i < 300; ++i) *gang.add_recent() = gang.recent(11);
               }).ok());
}

}  // namespace
}  // namespace plexrl::clustermgr
