#include <gmock/gmock.h>

#include "tests/unit/clustermgr/cluster_fixture.h"
#include "tests/unit/clustermgr/fake_cluster.h"

namespace plexrl::clustermgr {
namespace {

using cluster::v1::Placement;
using test::fake_report;
using test::fake_request;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct ServerPlacementTest : ClusterFixture {
  std::shared_ptr<grpc::Channel> ann = channel({tls::Role::kUser, "ann"});

  static grpc::Status place(const std::shared_ptr<grpc::Channel>& who,
                            const cluster::v1::PlaceJobRequest& request,
                            cluster::v1::PlaceJobReply& reply) {
    grpc::ClientContext context;
    return cluster::v1::Cluster::NewStub(who)->PlaceJob(&context, request, &reply);
  }
  static grpc::Status end(const std::shared_ptr<grpc::Channel>& who, const std::string& id) {
    grpc::ClientContext context;
    cluster::v1::EndPlacementRequest request;
    request.set_id(id);
    request.set_reason("enough");
    cluster::v1::EndPlacementReply reply;
    return cluster::v1::Cluster::NewStub(who)->EndPlacement(&context, request, &reply);
  }
  Placement get(const std::string& job) const { return cluster->placement(job).value(); }
  void join(const cluster::v1::ReportNodeRequest& report) const {
    ASSERT_TRUE(cluster->report(report).ok());
  }
  void restart() {
    server.reset();
    cluster.reset();
    store.reset();
    store = SqliteStore::open(folder + "/cluster.sqlite").value();
    cluster = Cluster::open(*store, *metrics).value();
    start(make({tls::Role::kManager, "head"}, {"127.0.0.1"}));
    ann = channel({tls::Role::kUser, "ann"});
  }
};

const std::string kJob(32, 'e');

TEST_F(ServerPlacementTest, AJobIsPlacedRunsAndEnds) {
  join(fake_report("a1", 1));
  auto request = fake_request("1", "x");
  cluster::v1::PlaceJobReply reply;
  ASSERT_TRUE(place(ann, request, reply).ok());
  EXPECT_EQ(reply.placement().state(), Placement::PLACED);
  EXPECT_THAT(reply.placement().gpus(), ElementsAre("a1-0"));
  EXPECT_GT(reply.ask_again_s(), 0);

  request.set_job_id(kJob);
  ASSERT_TRUE(place(ann, request, reply).ok());
  EXPECT_EQ(reply.placement().state(), Placement::RUNNING);
  auto report = fake_report("a1", 1);
  *report.add_jobs() = test::fake_job("", "x");
  report.mutable_jobs(0)->set_id(kJob);
  join(report);
  EXPECT_EQ(get(kJob).state(), Placement::RUNNING);
  join(fake_report("a1", 1));
  EXPECT_EQ(get(kJob).state(), Placement::ENDED);
  EXPECT_EQ(get("x").ended_reason(), "the job has ended");
}

TEST_F(ServerPlacementTest, AskingAgainIsNoSecondRequest) {
  join(fake_report("a1", 2));
  cluster::v1::PlaceJobReply first;
  cluster::v1::PlaceJobReply second;
  ASSERT_TRUE(place(ann, fake_request("1", "x"), first).ok());
  ASSERT_TRUE(place(ann, fake_request("1", "x"), second).ok());
  EXPECT_EQ(first.placement().SerializeAsString(), second.placement().SerializeAsString());
}

TEST_F(ServerPlacementTest, OneThatWaitsIsPlacedWhenThereIsRoom) {
  cluster::v1::PlaceJobReply reply;
  ASSERT_TRUE(place(ann, fake_request("1", "x"), reply).ok());
  EXPECT_EQ(reply.placement().state(), Placement::QUEUED);
  join(fake_report("a1", 1));
  EXPECT_EQ(get("x").state(), Placement::PLACED);
}

TEST_F(ServerPlacementTest, TheNextInTheQueueGetsWhatIsGivenBack) {
  auto first = fake_request("1", "x", 2);
  auto second = fake_request("2", "y", 2);
  second.mutable_job()->add_apart_from("x");
  join(fake_report("a1", 2));
  cluster::v1::PlaceJobReply reply;
  ASSERT_TRUE(place(ann, first, reply).ok());
  ASSERT_TRUE(place(ann, second, reply).ok());
  EXPECT_EQ(reply.placement().state(), Placement::QUEUED);
  EXPECT_THAT(reply.placement().decision().when(), HasSubstr("ann/x on a1"));
  ASSERT_TRUE(end(ann, first.id()).ok());
  EXPECT_EQ(get("x").ended_reason(), "enough");
  EXPECT_EQ(get("y").state(), Placement::PLACED);
  EXPECT_TRUE(end(ann, first.id()).ok());  // once more changes nothing
}

TEST_F(ServerPlacementTest, UsersPlaceTheirOwnJobsAdminsAnybodys) {
  cluster::v1::PlaceJobReply reply;
  const auto bob = channel({tls::Role::kUser, "bob"});
  grpc::Status status = place(bob, fake_request("1", "x"), reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("of user/bob, and the job of user ann"),
                                            HasSubstr("tls init DIR --user ann")));
  EXPECT_EQ(place(channel({tls::Role::kNode, "ann"}), fake_request("1", "x"), reply).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  ASSERT_TRUE(place(channel({tls::Role::kAdmin, "root"}), fake_request("1", "x"), reply).ok());
  auto his = fake_request("1", "x");
  his.mutable_job()->set_user("bob");
  EXPECT_EQ(place(bob, his, reply).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(end(bob, fake_request("1", "x").id()).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(end(channel({tls::Role::kNode, "a1"}), his.id()).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(get("x").state(), Placement::QUEUED);
}

TEST_F(ServerPlacementTest, AnExpiredCertificatePlacesNothing) {
  const auto expired = channel(
      tls::issue(authority, {tls::Role::kUser, "ann"}, {}, {now - 2 * kDay, now - kDay}).value());
  cluster::v1::PlaceJobReply reply;
  const grpc::Status status = place(expired, fake_request("1", "x"), reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(status.error_message(), HasSubstr("expired at"));
}

TEST_F(ServerPlacementTest, BadRequestsAreToldWhatIsWrong) {
  cluster::v1::PlaceJobReply reply;
  auto bad = fake_request("1", "x");
  bad.mutable_job()->set_gpus(-1);
  EXPECT_EQ(place(ann, bad, reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  auto unknown = fake_request("1", "x");
  unknown.set_job_id(kJob);
  EXPECT_EQ(place(ann, unknown, reply).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServerPlacementTest, PlacesAndDecisionsOutliveTheManager) {
  join(fake_report("a1", 1));
  cluster::v1::PlaceJobReply before;
  auto request = fake_request("1", "x");
  ASSERT_TRUE(place(ann, request, before).ok());
  restart();
  EXPECT_EQ(get("x").SerializeAsString(), before.placement().SerializeAsString());
  request.set_job_id(kJob);
  cluster::v1::PlaceJobReply after;
  ASSERT_TRUE(place(ann, request, after).ok());
  EXPECT_EQ(after.placement().state(), Placement::RUNNING);
  // And it still has its GPU: another one that can't share waits.
  auto other = fake_request("2", "y");
  other.mutable_job()->add_apart_from("x");
  ASSERT_TRUE(place(ann, other, after).ok());
  EXPECT_EQ(after.placement().state(), Placement::QUEUED);
}

TEST_F(ServerPlacementTest, WhatRunsHaveShownIsKnownAfterARestart) {
  auto report = fake_report("a1", 2);
  *report.add_jobs() = test::fake_job("e", "x", 10, 90);
  join(report);
  report = fake_report("a1", 2);
  *report.add_jobs() = test::fake_job("f", "y", 10, 90);
  join(report);
  restart();
  join(fake_report("a1", 2));
  cluster::v1::PlaceJobReply reply;
  ASSERT_TRUE(place(ann, fake_request("1", "x"), reply).ok());
  ASSERT_TRUE(place(ann, fake_request("2", "y"), reply).ok());
  EXPECT_THAT(reply.placement().gpus(), ElementsAre("a1-0"));
  EXPECT_EQ(reply.placement().decision().choices(0).basis(), "estimate");
}

TEST_F(ServerPlacementTest, ItsSlurmJobIsKnownFromWhenItWaitsThere) {
  join(fake_report("a1", 1));
  auto request = fake_request("1", "x");
  cluster::v1::PlaceJobReply reply;
  ASSERT_TRUE(place(ann, request, reply).ok());
  request.set_slurm_job_id(12);
  ASSERT_TRUE(place(ann, request, reply).ok());
  EXPECT_EQ(reply.placement().state(), Placement::PLACED);
  EXPECT_EQ(get("slurm:12").id(), request.id());
  request.set_job_id(kJob);
  ASSERT_TRUE(place(ann, request, reply).ok());
  restart();
  EXPECT_EQ(get("slurm:12").job_id(), kJob);
  EXPECT_FALSE(cluster->placement("slurm:1").ok());
  EXPECT_FALSE(cluster->placement("slurm:0").ok());
}

TEST_F(ServerPlacementTest, WhoKeptThePlaceOfOneThatHasEndedBeginsNoOther) {
  join(fake_report("a1", 1));
  const auto request = fake_request("1", "x");
  auto begun = request;
  begun.set_job_id(kJob);
  cluster::v1::PlaceJobReply reply;
  ASSERT_TRUE(place(ann, request, reply).ok());
  ASSERT_TRUE(place(ann, begun, reply).ok());
  ASSERT_TRUE(end(ann, request.id()).ok());
  ASSERT_TRUE(place(ann, request, reply).ok());
  EXPECT_EQ(reply.placement().state(), Placement::ENDED);
  EXPECT_EQ(get("x").ended_reason(), "enough");
}

TEST_F(ServerPlacementTest, OneThatWasGivenUpMayBeAskedForAgain) {
  join(fake_report("a1", 1));
  cluster::v1::PlaceJobReply reply;
  ASSERT_TRUE(place(ann, fake_request("1", "x"), reply).ok());
  cluster::v1::EndPlacementRequest silent;
  silent.set_id(fake_request("1", "x").id());
  silent.set_reason(Placements::kRequesterGone);
  ASSERT_TRUE(cluster->end_placement(silent, "ann").ok());
  // Its requester asks again, as one that was stopped for long does: a new request.
  ASSERT_TRUE(place(ann, fake_request("1", "x"), reply).ok());
  EXPECT_EQ(reply.placement().state(), Placement::PLACED);
}

TEST_F(ServerPlacementTest, ANodeThatHasLeftIsNotLostAndTakesNothing) {
  join(fake_report("a1", 1));
  auto request = fake_request("1", "x");
  cluster::v1::PlaceJobReply reply;
  ASSERT_TRUE(place(ann, request, reply).ok());
  request.set_job_id(kJob);
  ASSERT_TRUE(place(ann, request, reply).ok());
  cluster::v1::ReportNodeRequest leaving;
  leaving.set_node("a1");
  leaving.set_leaving(true);
  join(leaving);
  join(leaving);
  EXPECT_EQ(cluster->nodes().nodes(0).state(), cluster::v1::Node::LEFT);
  EXPECT_EQ(get("x").state(), Placement::ENDED);
  ASSERT_TRUE(place(ann, fake_request("2", "y"), reply).ok());
  EXPECT_EQ(reply.placement().state(), Placement::QUEUED);
  EXPECT_THAT(reply.placement().decision().when(), HasSubstr("a1 is back (it has left)"));
  restart();
  EXPECT_EQ(cluster->nodes().nodes(0).state(), cluster::v1::Node::LEFT);
  join(fake_report("a1", 1));
  EXPECT_EQ(cluster->nodes().nodes(0).state(), cluster::v1::Node::JOINED);
  EXPECT_EQ(get("y").state(), Placement::PLACED);
  leaving.set_node("nobody");
  join(leaving);
  EXPECT_EQ(cluster->nodes().nodes_size(), 1);
}

}  // namespace
}  // namespace plexrl::clustermgr
