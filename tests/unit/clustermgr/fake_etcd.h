#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "proto/etcd.grpc.pb.h"

namespace plexrl::clustermgr::test {

/// One member of an etcd, as far as EtcdStore uses it, whose answers can be lost. Leases never run
/// out by themselves.
class FakeEtcd {
 public:
  FakeEtcd();
  ~FakeEtcd();

  int port() const { return port_; }
  enum class Next {
    kAnswers,
    kIsDown,       ///< does nothing and says so
    kLosesAnswer,  ///< does it and says that it has not
    kIsLate,       ///< says that it has not; `catch_up` does it
  };
  /// What becomes of transactions from now on.
  void set_next(Next next);
  void catch_up();
  /// As if the lease of whoever leads had run out, and somebody else had the lead.
  void depose(const std::string& leader_key);
  void put(const std::string& key, const std::string& value);
  std::optional<std::string> value(const std::string& key);

 private:
  struct Pair {
    std::string value;
    std::int64_t created = 0;
    std::int64_t lease = 0;
  };
  struct Kv;
  struct Lease;
  bool holds(const etcdserverpb::Compare& compare) const;
  void write(const std::string& key, const std::string& value, std::int64_t lease);
  void transact(const etcdserverpb::TxnRequest& request, etcdserverpb::TxnResponse* response);
  void range(const etcdserverpb::RangeRequest& request,
             etcdserverpb::RangeResponse* response) const;

  std::mutex mu_;
  std::map<std::string, Pair> pairs_;
  std::int64_t revision_ = 1;
  std::int64_t last_lease_ = 0;
  Next next_ = Next::kAnswers;
  std::optional<etcdserverpb::TxnRequest> late_;
  std::unique_ptr<Kv> kv_;
  std::unique_ptr<Lease> lease_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace plexrl::clustermgr::test
