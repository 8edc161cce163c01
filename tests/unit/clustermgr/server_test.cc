#include "clustermgr/server.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <thread>

#include "tests/unit/clustermgr/cluster_fixture.h"

namespace plexrl::clustermgr {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using ServerTest = ClusterFixture;

TEST_F(ServerTest, TellsEveryRoleHowItIs) {
  for (const tls::Role role : {tls::Role::kNode, tls::Role::kUser, tls::Role::kAdmin}) {
    cluster::v1::GetStatusReply reply;
    ASSERT_TRUE(ask_status(channel({role, "x"}), reply).ok());
    EXPECT_EQ(reply.caller(), tls::text_of({role, "x"}));
    EXPECT_EQ(reply.cluster_id().size(), 32);
    EXPECT_EQ(reply.generation(), 1);
    EXPECT_EQ(reply.not_ready_reason(), "");
  }
}

TEST_F(ServerTest, AnExpiredCertificateIsToldSoInTheAnswer) {
  const tls::KeyPair expired =
      tls::issue(authority, {tls::Role::kUser, "ann"}, {}, {now - 2 * kDay, now - kDay}).value();
  const grpc::Status status = ask_status(channel(expired));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("the certificate of user/ann expired at 20"),
                                            HasSubstr("plexrl-ctl tls init DIR --user ann")));
}

TEST_F(ServerTest, ACallerWithoutACertificateIsToldWhereToPutOne) {
  const grpc::Status status = ask_status(channel(tls::KeyPair{}));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(status.error_message(), HasSubstr("PLEXRL_TLS_DIR"));
}

TEST_F(ServerTest, ACertificateOfAnotherAuthorityIsRefusedOnEveryService) {
  const tls::KeyPair other = tls::make_authority(valid).value();
  const auto eve = channel(tls::issue(other, {tls::Role::kAdmin, "eve"}, {}, valid).value());
  const grpc::Status status = ask_status(eve);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(status.error_message(), HasSubstr("is not one of this cluster's authority"));
  std::string reply;
  EXPECT_EQ(ask_raw(eve, "/grpc.health.v1.Health/Check", "", reply).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ask_raw(eve, "/no.such/Method", "", reply).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(ServerTest, ANodesCertificateCannotPassAsAManager) {
  start(make({tls::Role::kNode, "a1"}));
  EXPECT_EQ(ask_status(channel({tls::Role::kUser, "ann"})).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServerTest, HealthTellsLifeFromReadiness) {
  // HealthCheckRequest{service = 1: string}, HealthCheckResponse{status = 1: SERVING 1, not 2}.
  const std::string name(cluster::v1::Cluster::service_full_name());
  const std::string readiness = "\n" + std::string(1, static_cast<char>(name.size())) + name;
  const auto client = channel({tls::Role::kNode, "a1"});
  std::string reply;
  ASSERT_TRUE(ask_raw(client, "/grpc.health.v1.Health/Check", readiness, reply).ok());
  EXPECT_EQ(reply, "\x08\x01");
  server->set_ready(false);
  ASSERT_TRUE(ask_raw(client, "/grpc.health.v1.Health/Check", readiness, reply).ok());
  EXPECT_EQ(reply, "\x08\x02");
  ASSERT_TRUE(ask_raw(client, "/grpc.health.v1.Health/Check", "", reply).ok());
  EXPECT_EQ(reply, "\x08\x01");
}

TEST_F(ServerTest, ARequestOf100MBIsRefusedWithTheSizes) {
  const auto client = channel({tls::Role::kUser, "ann"});
  std::string reply;
  const grpc::Status status =
      ask_raw(client, "/plexrl.cluster.v1.Cluster/GetStatus", std::string(100'000'000, 'x'), reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("100000000"), HasSubstr("4194304")));
  EXPECT_TRUE(ask_status(client).ok());
}

TEST_F(ServerTest, BytesThatAreNoRequestAreAnError) {
  std::string reply;
  const auto client = channel({tls::Role::kUser, "ann"});
  EXPECT_FALSE(ask_raw(client, "/plexrl.cluster.v1.Cluster/GetStatus", "\xff\xff", reply).ok());
  EXPECT_TRUE(ask_status(client).ok());
}

TEST_F(ServerTest, ATakenPortIsAnError) {
  ServerOptions options;
  options.listen = {"127.0.0.1", server->port()};
  const auto second = Server::start(std::move(options), *cluster, *metrics);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("can't listen on 127.0.0.1:"));
}

TEST_F(ServerTest, AThousandClientsAreAnsweredWhileAllStayConnected) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < 4096) GTEST_SKIP() << "both ends of 1000 connections need 4096 descriptors";
  constexpr int kClients = 1000;
  const tls::KeyPair own = make({tls::Role::kUser, "ann"});
  std::vector<std::shared_ptr<grpc::Channel>> clients;
  for (int i = 0; i < kClients; ++i) clients.push_back(channel(own));
  std::atomic<int> answered{0};
  std::vector<std::thread> threads;
  constexpr int kThreads = 8;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < 2 * kClients; i += kThreads) {
        answered += ask_status(clients[static_cast<std::size_t>(i % kClients)]).ok() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, 2 * kClients);
}

cluster::v1::ReportNodeRequest report_of(const std::string& node) {
  cluster::v1::ReportNodeRequest report;
  report.set_node(node);
  report.mutable_inventory()->add_gpus()->set_total_bytes(1 << 30);
  report.add_jobs()->set_id(std::string(32, 'a'));
  return report;
}

grpc::Status send_report(const std::shared_ptr<grpc::Channel>& channel,
                         const cluster::v1::ReportNodeRequest& report) {
  grpc::ClientContext context;
  cluster::v1::ReportNodeReply reply;
  return cluster::v1::Cluster::NewStub(channel)->ReportNode(&context, report, &reply);
}

grpc::Status list(const std::shared_ptr<grpc::Channel>& channel,
                  cluster::v1::ListNodesReply& reply) {
  grpc::ClientContext context;
  return cluster::v1::Cluster::NewStub(channel)->ListNodes(&context, {}, &reply);
}

TEST_F(ServerTest, ARoleThatMayNotIsToldWhichMay) {
  const grpc::Status status = send_report(channel({tls::Role::kUser, "a1"}), report_of("a1"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("the certificate is of user/a1, and this needs the role node"),
                    HasSubstr("plexrl-ctl tls init DIR --node")));
  cluster::v1::ListNodesReply nodes;
  EXPECT_THAT(list(channel({tls::Role::kNode, "a1"}), nodes).error_message(),
              HasSubstr("needs the role user or admin"));
}

TEST_F(ServerTest, ANodeReportsOnlyOfItself) {
  const auto a1 = channel({tls::Role::kNode, "a1"});
  const grpc::Status status = send_report(a1, report_of("a2"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("of node/a1, and the report of node a2"));
  EXPECT_TRUE(send_report(a1, report_of("a1")).ok());
  cluster::v1::ReportNodeRequest lie = report_of("a1");
  lie.mutable_inventory()->mutable_gpus(0)->set_usable_bytes(2u << 30);
  EXPECT_EQ(send_report(a1, lie).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  cluster::v1::ListNodesReply nodes;
  ASSERT_TRUE(list(channel({tls::Role::kUser, "ann"}), nodes).ok());
  ASSERT_EQ(nodes.nodes_size(), 1);
  EXPECT_EQ(nodes.nodes(0).inventory().gpus(0).usable_bytes(), 0);
}

TEST_F(ServerTest, NodesAndTheirJobsOutliveTheManager) {
  ASSERT_TRUE(send_report(channel({tls::Role::kNode, "a1"}), report_of("a1")).ok());
  server.reset();
  cluster.reset();
  store.reset();
  store = SqliteStore::open(folder + "/cluster.sqlite").value();
  cluster = Cluster::open(*store, *metrics).value();
  const cluster::v1::ListNodesReply nodes = cluster->nodes();
  ASSERT_EQ(nodes.nodes_size(), 1);
  EXPECT_EQ(nodes.nodes(0).jobs(0).id(), std::string(32, 'a'));
}

TEST_F(ServerTest, ARestartKeepsTheClusterAndCountsItself) {
  const std::string id = cluster->status().cluster_id;
  server.reset();
  cluster.reset();
  store.reset();
  store = SqliteStore::open(folder + "/cluster.sqlite").value();
  cluster = Cluster::open(*store, *metrics).value();
  EXPECT_EQ(cluster->status().cluster_id, id);
  EXPECT_EQ(cluster->status().generation, 2);
}

}  // namespace
}  // namespace plexrl::clustermgr
