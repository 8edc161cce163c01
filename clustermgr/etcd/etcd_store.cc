#include "clustermgr/etcd/etcd_store.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>

#include "nodemgr/settings/cat.h"
#include "proto/etcd.grpc.pb.h"

namespace plexrl::clustermgr {
namespace {

using nodemgr::cat;
using Clock = std::chrono::steady_clock;

/// Raised when older managers could misread what newer ones write.
constexpr char kVersion[] = "1";
/// etcd's default for one transaction (--max-txn-ops).
constexpr std::size_t kMostOperations = 128;
constexpr int kPage = 512;
constexpr int kMostTurns = 4;
constexpr std::chrono::milliseconds kPause{100};

absl::Status as_status(const grpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

/// Another endpoint may answer what this one does not.
bool is_worth_another(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kDeadlineExceeded;
}

/// The end of the keys that begin with `prefix`.
std::string after(std::string prefix) {
  prefix.back() = static_cast<char>(prefix.back() + 1);  // '/' is the last one
  return prefix;
}

void compare_creation(etcdserverpb::TxnRequest& request, const std::string& key,
                      std::int64_t revision) {
  etcdserverpb::Compare& compare = *request.add_compare();
  compare.set_target(etcdserverpb::Compare::CREATE);
  compare.set_key(key);
  compare.set_create_revision(revision);
}

void compare_value(etcdserverpb::TxnRequest& request, const std::string& key,
                   const std::string& value) {
  etcdserverpb::Compare& compare = *request.add_compare();
  compare.set_target(etcdserverpb::Compare::VALUE);
  compare.set_key(key);
  compare.set_value(value);
}

void add_put(etcdserverpb::TxnRequest& request, const std::string& key, const std::string& value,
             std::int64_t lease = 0) {
  etcdserverpb::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(key);
  put.set_value(value);
  put.set_lease(lease);
}

}  // namespace

struct EtcdStore::Endpoint {
  std::string address;
  std::chrono::milliseconds patience;
  std::unique_ptr<etcdserverpb::KV::Stub> kv;
  std::unique_ptr<etcdserverpb::Lease::Stub> lease;

  Endpoint(const HostPort& host_port, const EtcdOptions& options)
      : address(text_of(host_port)), patience(options.patience) {
    std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
    if (options.tls) {
      grpc::SslCredentialsOptions ssl;
      ssl.pem_root_certs = options.tls->authorities;
      ssl.pem_private_key = options.tls->own.key;
      ssl.pem_cert_chain = options.tls->own.certificate;
      credentials = grpc::SslCredentials(ssl);
    }
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    constexpr int kReconnectMs = 250;
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMs);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMs);
    const auto channel = grpc::CreateCustomChannel(address, credentials, arguments);
    kv = etcdserverpb::KV::NewStub(channel);
    lease = etcdserverpb::Lease::NewStub(channel);
  }

  /// A unary call.
  template <typename Stub, typename Request, typename Response>
  absl::Status call(Stub& stub,
                    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + patience);
    response->Clear();
    return as_status((stub.*method)(&context, request, response));
  }
  absl::Status range(const etcdserverpb::RangeRequest& request,
                     etcdserverpb::RangeResponse* response) {
    return call(*kv, &etcdserverpb::KV::Stub::Range, request, response);
  }
  absl::Status transact(const etcdserverpb::TxnRequest& request,
                        etcdserverpb::TxnResponse* response) {
    return call(*kv, &etcdserverpb::KV::Stub::Txn, request, response);
  }
};

EtcdStore::EtcdStore(EtcdOptions options) : options_(std::move(options)) {
  for (const HostPort& one : options_.endpoints) {
    endpoints_.push_back(std::make_unique<Endpoint>(one, options_));
  }
}

EtcdStore::~EtcdStore() {
  {
    const std::lock_guard lock(stop_mu_);
    stop_ = true;
  }
  stopped_.notify_all();
  if (keeper_.joinable()) keeper_.join();
  give_up_lease().IgnoreError();
}

absl::Status EtcdStore::ask(const char* doing, const std::function<absl::Status(Endpoint&)>& call) {
  const auto give_up = Clock::now() + options_.all_patience;
  while (true) {
    std::string tried;
    const std::size_t first = current_.load();
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
      const std::size_t at = (first + i) % endpoints_.size();
      const absl::Status status = call(*endpoints_[at]);
      if (status.ok()) {
        current_.store(at);
        return status;
      }
      if (!is_worth_another(status)) {
        return {status.code(), cat("etcd: can't ", doing, ": ", nodemgr::message_of(status))};
      }
      tried += cat(tried.empty() ? "" : "; ", endpoints_[at]->address, ": ",
                   nodemgr::message_of(status));
    }
    if (Clock::now() >= give_up) {
      return absl::UnavailableError(
          cat("etcd: can't ", doing, ": no endpoint answers (", tried,
              "): is the majority of its members up, and reachable from here?"));
    }
    std::this_thread::sleep_for(kPause);
  }
}

absl::StatusOr<bool> EtcdStore::try_to_lead() {
  etcdserverpb::RangeRequest question;
  question.set_key(leader_key());
  etcdserverpb::RangeResponse answer;
  absl::Status status =
      ask("see who leads", [&](Endpoint& one) { return one.range(question, &answer); });
  if (!status.ok()) return status;
  leader_ = answer.kvs_size() == 0 ? "" : answer.kvs(0).value();
  if (!leader_.empty()) return false;

  etcdserverpb::LeaseGrantRequest wish;
  wish.set_ttl(options_.lease.count());
  etcdserverpb::LeaseGrantResponse granted;
  const auto asked = Clock::now();
  status = ask("get a lease", [&](Endpoint& one) {
    return one.call(*one.lease, &etcdserverpb::Lease::Stub::LeaseGrant, wish, &granted);
  });
  if (!status.ok()) return status;
  lease_ = granted.id();

  etcdserverpb::TxnRequest request;
  compare_creation(request, leader_key(), 0);
  add_put(request, leader_key(), options_.name, lease_);
  etcdserverpb::TxnResponse response;
  status = ask("take the lead", [&](Endpoint& one) { return one.transact(request, &response); });
  if (status.ok() && response.succeeded()) {
    led_since_ = response.header().revision();
    leads_until_.store((asked + options_.lease).time_since_epoch());
    status = load();
    if (status.ok()) {
      keeper_ = std::thread([this] { keep_alive_loop(); });
      return true;
    }
  }
  // Another was faster, or nobody knows who was: with the lease goes the key, if it became ours.
  give_up_lease().IgnoreError();
  if (!status.ok()) return status;
  return false;
}

absl::Status EtcdStore::load() {
  etcdserverpb::RangeRequest question;
  question.set_key(version_key());
  etcdserverpb::RangeResponse answer;
  absl::Status status =
      ask("read the version", [&](Endpoint& one) { return one.range(question, &answer); });
  if (!status.ok()) return status;
  if (answer.kvs_size() != 0 && answer.kvs(0).value() != kVersion) {
    return absl::FailedPreconditionError(
        cat("etcd: ", version_key(), " is ", answer.kvs(0).value(),
            ", made by a newer cluster manager; this one reads ", kVersion,
            ": install that version again, or give another prefix"));
  }
  etcdserverpb::TxnRequest request;
  compare_creation(request, leader_key(), led_since_);
  add_put(request, version_key(), kVersion);
  const std::string sequence = cat(led_since_, ".0");
  add_put(request, sequence_key(), sequence);
  etcdserverpb::TxnResponse response;
  status =
      ask("write the version", [&](Endpoint& one) { return one.transact(request, &response); });
  if (!status.ok()) return status;
  if (!response.succeeded()) return absl::UnavailableError("etcd: the lead was lost at once");

  // Page by page, all as it was at one moment.
  std::map<std::string, std::string> entries;
  const std::string begin = entry_key("");
  question.set_key(begin);
  question.set_range_end(after(begin));
  question.set_limit(kPage);
  question.set_revision(response.header().revision());
  do {
    status = ask("read the entries", [&](Endpoint& one) { return one.range(question, &answer); });
    if (!status.ok()) return status;
    for (const auto& pair : answer.kvs()) {
      entries[pair.key().substr(begin.size())] = pair.value();
    }
    if (answer.kvs_size() != 0) question.set_key(answer.kvs().rbegin()->key() + '\0');
  } while (answer.more() && answer.kvs_size() != 0);
  const std::lock_guard lock(mu_);
  entries_ = std::move(entries);
  sequence_ = sequence;
  return absl::OkStatus();
}

bool EtcdStore::leads() const {
  return !deposed_.load() && Clock::now().time_since_epoch() < leads_until_.load();
}

absl::Status EtcdStore::apply(std::span<const Change> changes) {
  const std::lock_guard lock(mu_);
  if (!leads()) return absl::UnavailableError("etcd: this manager leads no more");
  // etcd takes each key once in a transaction.
  std::map<std::string, std::optional<std::string>> latest;
  for (const std::string& key : unsettled_) {
    const auto before = entries_.find(key);
    latest[key] = before == entries_.end() ? std::nullopt : std::optional(before->second);
  }
  for (const Change& change : changes) latest[change.key] = change.value;
  const absl::Status status = write(latest);
  if (status.code() == absl::StatusCode::kUnavailable) {
    for (const auto& [key, value] : latest) unsettled_.insert(key);
  }
  if (!status.ok()) return status;
  unsettled_.clear();
  for (auto& [key, value] : latest) {
    if (value) {
      entries_[key] = *std::move(value);
    } else {
      entries_.erase(key);
    }
  }
  return absl::OkStatus();
}

absl::Status EtcdStore::write(const std::map<std::string, std::optional<std::string>>& entries) {
  // Again when the write before, of which nothing was heard, turns out to have been done.
  for (int turn = 0; turn < kMostTurns; ++turn) {
    const std::string next = cat(led_since_, ".", ++writes_);
    etcdserverpb::TxnRequest request;
    compare_creation(request, leader_key(), led_since_);
    compare_value(request, sequence_key(), sequence_);
    add_put(request, sequence_key(), next);
    for (const auto& [key, value] : entries) {
      if (value) {
        add_put(request, entry_key(key), *value);
      } else {
        request.add_success()->mutable_request_delete_range()->set_key(entry_key(key));
      }
    }
    for (const std::string& key : {leader_key(), sequence_key()}) {
      request.add_failure()->mutable_request_range()->set_key(key);
    }
    etcdserverpb::TxnResponse response;
    absl::Status status =
        ask("write", [&](Endpoint& one) { return one.transact(request, &response); });
    if (status.code() == absl::StatusCode::kInvalidArgument && entries.size() >= kMostOperations) {
      status = absl::InvalidArgumentError(
          cat(nodemgr::message_of(status), ": start etcd with --max-txn-ops=", 2 * entries.size(),
              " or more"));
    }
    if (!status.ok()) return status;
    const auto found = [&](int place) -> const etcdserverpb::KeyValue* {
      if (response.responses_size() <= place) return nullptr;
      const auto& pairs = response.responses(place).response_range().kvs();
      return pairs.empty() ? nullptr : &pairs.at(0);
    };
    if (!response.succeeded()) {
      const etcdserverpb::KeyValue* const leader = found(0);
      const etcdserverpb::KeyValue* const last = found(1);
      if (leader == nullptr || leader->create_revision() != led_since_ || last == nullptr) {
        deposed_.store(true);
        return absl::FailedPreconditionError("etcd: another cluster manager leads now");
      }
      sequence_ = last->value();
      if (sequence_ != next) continue;
    }
    sequence_ = next;
    return absl::OkStatus();
  }
  return absl::UnavailableError(cat("etcd: something else writes below ", options_.prefix, "/"));
}

absl::StatusOr<std::optional<std::string>> EtcdStore::get(const std::string& key) {
  const std::lock_guard lock(mu_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? std::nullopt : std::optional(found->second);
}

absl::StatusOr<std::map<std::string, std::string>> EtcdStore::list(const std::string& prefix) {
  const std::lock_guard lock(mu_);
  std::map<std::string, std::string> found;
  for (auto it = entries_.lower_bound(prefix);
       it != entries_.end() && it->first.compare(0, prefix.size(), prefix) == 0; ++it) {
    found.insert(*it);
  }
  return found;
}

absl::Status EtcdStore::give_up_lease() {
  if (lease_ == 0) return absl::OkStatus();
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(std::exchange(lease_, 0));
  etcdserverpb::LeaseRevokeResponse response;
  return ask("give the lease back", [&](Endpoint& one) {
    return one.call(*one.lease, &etcdserverpb::Lease::Stub::LeaseRevoke, request, &response);
  });
}

void EtcdStore::keep_alive_loop() {
  std::unique_lock lock(stop_mu_);
  while (!stopped_.wait_for(lock, options_.lease / 4., [this] { return stop_; })) {
    lock.unlock();
    const auto asked = Clock::now();
    const absl::Status status = keep_alive();
    if (status.ok()) leads_until_.store((asked + options_.lease).time_since_epoch());
    if (status.code() == absl::StatusCode::kNotFound) deposed_.store(true);
    lock.lock();
  }
}

absl::Status EtcdStore::keep_alive() {
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(lease_);
  return ask("keep the lease", [&](Endpoint& one) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + one.patience);
    const auto stream = one.lease->LeaseKeepAlive(&context);
    etcdserverpb::LeaseKeepAliveResponse response;
    const bool answered = stream->Write(request) && stream->Read(&response);
    if (answered) context.TryCancel();
    const grpc::Status end = stream->Finish();
    if (!answered) return end.ok() ? absl::UnavailableError("no answer") : as_status(end);
    if (response.ttl() <= 0) return absl::NotFoundError("the lease has expired");
    return absl::OkStatus();
  });
}

}  // namespace plexrl::clustermgr
