#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "clustermgr/etcd/etcd_url.h"
#include "clustermgr/store.h"

namespace plexrl::clustermgr {

/// A store in etcd, for several cluster managers of which one leads at a time.
///
/// Who leads has the key PREFIX/leader, bound to a lease of etcd's that is kept alive while this
/// object lives. Every write is one transaction that holds only while the key is ours, so one who
/// leads no more writes nothing, however late it notices; and only if PREFIX/sequence is what the
/// write before left, so one that is done late (its answer was lost) overwrites nothing newer.
/// Entries are PREFIX/entry/KEY; they are read when the lead is taken, and as nobody else writes
/// them, from memory afterwards.
///
/// Where etcd does not answer, a write may have been done all the same; it is undone with the next
/// one that succeeds, or by nobody if another leads before that.
///
/// Any thread, after `try_to_lead` has returned true.
class EtcdStore final : public Store {
 public:
  explicit EtcdStore(EtcdOptions options);
  /// Gives the lead up, if etcd can be reached.
  ~EtcdStore() override;

  /// True: this manager leads from now on. False: another one does (`leader`). Errors: Unavailable
  /// (no endpoint answers, or their majority is gone), FailedPrecondition (a newer version wrote
  /// there). To be called again then.
  [[nodiscard]] absl::StatusOr<bool> try_to_lead();
  /// Who did at the last try; "" if nobody.
  std::string leader() const { return leader_; }
  /// Whether the lease is known to hold. Once false, it stays so.
  bool leads() const;

  absl::Status apply(std::span<const Change> changes) override;
  absl::StatusOr<std::optional<std::string>> get(const std::string& key) override;
  absl::StatusOr<std::map<std::string, std::string>> list(const std::string& prefix) override;

 private:
  struct Endpoint;
  /// Makes `call` with one endpoint after the other, again and again, until one answers or patience
  /// ends.
  absl::Status ask(const char* doing, const std::function<absl::Status(Endpoint&)>& call);
  absl::Status load();
  /// One transaction of entries, done or not; Unavailable: not known.
  absl::Status write(const std::map<std::string, std::optional<std::string>>& entries);
  absl::Status give_up_lease();
  void keep_alive_loop();
  absl::Status keep_alive();
  std::string leader_key() const { return options_.prefix + "/leader"; }
  std::string version_key() const { return options_.prefix + "/version"; }
  std::string sequence_key() const { return options_.prefix + "/sequence"; }
  std::string entry_key(const std::string& key) const { return options_.prefix + "/entry/" + key; }

  const EtcdOptions options_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::atomic<std::size_t> current_{0};  ///< the endpoint that answered last
  std::string leader_;
  std::int64_t lease_ = 0;
  std::int64_t led_since_ = 0;  ///< the revision at which the key became ours
  std::atomic<std::chrono::steady_clock::duration> leads_until_{};
  std::atomic<bool> deposed_{false};

  std::mutex mu_;  // guards what follows
  std::map<std::string, std::string> entries_;
  std::string sequence_;  ///< what the last write that is known of has left there
  std::uint64_t writes_ = 0;
  std::set<std::string> unsettled_;  ///< keys of writes of which etcd did not say what became of

  std::mutex stop_mu_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread keeper_;
};

}  // namespace plexrl::clustermgr
