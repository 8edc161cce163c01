#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "clustermgr/cluster.h"
#include "clustermgr/server.h"
#include "clustermgr/sqlite_store.h"
#include "proto/cluster.grpc.pb.h"

namespace plexrl::clustermgr {

/// A cluster manager on a port of its own, with certificates that hold now.
struct ClusterFixture : ::testing::Test {
  static constexpr std::time_t kDay = 24 * 60 * 60;
  const std::time_t now = std::time(nullptr);
  const tls::Validity valid = {now - kDay, now + kDay};
  const tls::KeyPair authority = tls::make_authority(valid).value();
  const std::string folder = ::testing::TempDir() + "/cluster_" + std::to_string(::getpid());
  std::unique_ptr<Metrics> metrics = Metrics::serve("off").value();
  std::unique_ptr<Store> store;
  std::unique_ptr<Cluster> cluster;
  std::unique_ptr<Server> server;

  ClusterFixture() {
    std::filesystem::create_directories(folder);
    store = SqliteStore::open(folder + "/cluster.sqlite").value();
    cluster = Cluster::open(*store, *metrics).value();
    start(make({tls::Role::kManager, "head"}, {"127.0.0.1"}));
  }
  ~ClusterFixture() override {
    server.reset();
    std::filesystem::remove_all(folder);
  }

  tls::KeyPair make(const tls::Identity& who, const std::vector<std::string>& hosts = {}) const {
    return tls::issue(authority, who, hosts, valid).value();
  }

  void start(const tls::KeyPair& own) {
    ServerOptions options;
    options.listen = {"127.0.0.1", 0};
    options.tls = tls::TlsFiles{authority.certificate, own};
    server = Server::start(std::move(options), *cluster, *metrics).value();
  }

  /// A connection of its own; without a certificate where `own` is empty.
  std::shared_ptr<grpc::Channel> channel(const tls::KeyPair& own) const {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = authority.certificate;
    options.pem_private_key = own.key;
    options.pem_cert_chain = own.certificate;
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server->port()),
                                     grpc::SslCredentials(options), arguments);
  }
  std::shared_ptr<grpc::Channel> channel(const tls::Identity& who) const {
    return channel(make(who));
  }
};

inline grpc::Status ask_status(const std::shared_ptr<grpc::Channel>& channel,
                               cluster::v1::GetStatusReply& reply) {
  grpc::ClientContext context;
  return cluster::v1::Cluster::NewStub(channel)->GetStatus(&context, {}, &reply);
}

inline grpc::Status ask_status(const std::shared_ptr<grpc::Channel>& channel) {
  cluster::v1::GetStatusReply reply;
  return ask_status(channel, reply);
}

/// Any method with any bytes.
inline grpc::Status ask_raw(const std::shared_ptr<grpc::Channel>& channel, const char* method,
                            const std::string& request, std::string& reply) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->StartCall();
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool done = false;
  queue.Next(&tag, &done);
  grpc::Slice whole;
  if (status.ok() && answer.DumpToSingleSlice(&whole).ok()) {
    reply.assign(reinterpret_cast<const char*>(whole.begin()), whole.size());
  }
  return status;
}

}  // namespace plexrl::clustermgr
