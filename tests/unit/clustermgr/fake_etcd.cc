#include "tests/unit/clustermgr/fake_etcd.h"

namespace plexrl::clustermgr::test {

struct FakeEtcd::Kv final : etcdserverpb::KV::Service {
  FakeEtcd* etcd = nullptr;

  grpc::Status Range(grpc::ServerContext*, const etcdserverpb::RangeRequest* request,
                     etcdserverpb::RangeResponse* response) override {
    const std::lock_guard lock(etcd->mu_);
    etcd->range(*request, response);
    return grpc::Status::OK;
  }
  grpc::Status Txn(grpc::ServerContext*, const etcdserverpb::TxnRequest* request,
                   etcdserverpb::TxnResponse* response) override {
    const std::lock_guard lock(etcd->mu_);
    const grpc::Status lost(grpc::StatusCode::UNAVAILABLE, "etcdserver: request timed out");
    switch (etcd->next_) {
      case Next::kAnswers:
        etcd->transact(*request, response);
        return grpc::Status::OK;
      case Next::kIsDown:
        return lost;
      case Next::kLosesAnswer:
        etcd->transact(*request, response);
        return lost;
      case Next::kIsLate:
        etcd->late_ = *request;
        return lost;
    }
    return lost;
  }
};

struct FakeEtcd::Lease final : etcdserverpb::Lease::Service {
  FakeEtcd* etcd = nullptr;

  grpc::Status LeaseGrant(grpc::ServerContext*, const etcdserverpb::LeaseGrantRequest* request,
                          etcdserverpb::LeaseGrantResponse* response) override {
    const std::lock_guard lock(etcd->mu_);
    response->set_id(++etcd->last_lease_);
    response->set_ttl(request->ttl());
    return grpc::Status::OK;
  }
  grpc::Status LeaseRevoke(grpc::ServerContext*, const etcdserverpb::LeaseRevokeRequest* request,
                           etcdserverpb::LeaseRevokeResponse*) override {
    const std::lock_guard lock(etcd->mu_);
    std::erase_if(etcd->pairs_,
                  [&](const auto& entry) { return entry.second.lease == request->id(); });
    ++etcd->revision_;
    return grpc::Status::OK;
  }
};

FakeEtcd::FakeEtcd() : kv_(std::make_unique<Kv>()), lease_(std::make_unique<Lease>()) {
  kv_->etcd = this;
  lease_->etcd = this;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(kv_.get());
  builder.RegisterService(lease_.get());
  server_ = builder.BuildAndStart();
}

FakeEtcd::~FakeEtcd() { server_->Shutdown(); }

void FakeEtcd::set_next(Next next) {
  const std::lock_guard lock(mu_);
  next_ = next;
}

void FakeEtcd::catch_up() {
  const std::lock_guard lock(mu_);
  etcdserverpb::TxnResponse nobody_hears;
  if (late_) transact(*late_, &nobody_hears);
  late_.reset();
}

void FakeEtcd::depose(const std::string& leader_key) {
  const std::lock_guard lock(mu_);
  pairs_.erase(leader_key);
  write(leader_key, "another", 0);
}

void FakeEtcd::put(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mu_);
  write(key, value, 0);
}

std::optional<std::string> FakeEtcd::value(const std::string& key) {
  const std::lock_guard lock(mu_);
  const auto found = pairs_.find(key);
  return found == pairs_.end() ? std::nullopt : std::optional(found->second.value);
}

void FakeEtcd::write(const std::string& key, const std::string& value, std::int64_t lease) {
  ++revision_;
  Pair& pair = pairs_[key];
  if (pair.created == 0) pair.created = revision_;
  pair.value = value;
  pair.lease = lease;
}

bool FakeEtcd::holds(const etcdserverpb::Compare& compare) const {
  const auto found = pairs_.find(compare.key());
  if (compare.target() == etcdserverpb::Compare::VALUE) {
    return found != pairs_.end() && found->second.value == compare.value();
  }
  return (found == pairs_.end() ? 0 : found->second.created) == compare.create_revision();
}

void FakeEtcd::transact(const etcdserverpb::TxnRequest& request,
                        etcdserverpb::TxnResponse* response) {
  bool all_hold = true;
  for (const auto& compare : request.compare()) all_hold = all_hold && holds(compare);
  response->set_succeeded(all_hold);
  // All of a transaction is one revision.
  const std::int64_t next = revision_ + 1;
  for (const auto& one : all_hold ? request.success() : request.failure()) {
    etcdserverpb::ResponseOp& answer = *response->add_responses();
    if (one.has_request_range()) range(one.request_range(), answer.mutable_response_range());
    if (one.has_request_delete_range()) pairs_.erase(one.request_delete_range().key());
    if (one.has_request_put()) {
      const auto& put = one.request_put();
      revision_ = next - 1;
      write(put.key(), put.value(), put.lease());
    }
  }
  response->mutable_header()->set_revision(revision_);
}

void FakeEtcd::range(const etcdserverpb::RangeRequest& request,
                     etcdserverpb::RangeResponse* response) const {
  for (auto it = pairs_.lower_bound(request.key()); it != pairs_.end(); ++it) {
    const bool is_in =
        request.range_end().empty() ? it->first == request.key() : it->first < request.range_end();
    if (!is_in) break;
    if (request.limit() != 0 && response->kvs_size() == request.limit()) {
      response->set_more(true);
      break;
    }
    etcdserverpb::KeyValue& pair = *response->add_kvs();
    pair.set_key(it->first);
    pair.set_value(it->second.value);
    pair.set_create_revision(it->second.created);
  }
  response->mutable_header()->set_revision(revision_);
}

}  // namespace plexrl::clustermgr::test
