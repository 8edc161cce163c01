#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// How much of each tier may be promised to the jobs of a team, or to one job: pure arithmetic in
/// bytes, beside the ledger's.
///
/// `hbm`: what the jobs have there when they run. They take turns, so on each GPU the largest of
/// their promises counts, and all GPUs together. (What stays in HBM while nobody needs the room is
/// not counted.) `host` and `disk`: all that the jobs have been promised, on all GPUs, because all
/// of it may have to leave; of the one that has no quota they may have what the node has.
///
/// Quotas are checked when a promise is made. One that was made stays, whatever they become.
namespace plexrl::nodemgr {

/// None: no quota.
struct Quotas {
  std::optional<std::uint64_t> hbm, host, disk;

  bool any() const { return hbm || host || disk; }
};

enum class Tier { kHbm, kHost, kDisk };
inline constexpr Tier kTiers[] = {Tier::kHbm, Tier::kHost, Tier::kDisk};
/// "hbm", "host", "disk".
const char* tier_name(Tier tier);
std::optional<std::uint64_t>& quota_of(Quotas& quotas, Tier tier);

/// What an administrator has set with plexrl-ctl, over the settings file: kept by the journal, and
/// through reloads, until it is taken back. A team is named by its name, each job by none.
class QuotaChanges {
 public:
  using Whose = std::optional<std::string>;
  using Key = std::pair<Whose, Tier>;

  /// `bytes` none: no quota.
  void set(const Whose& whose, Tier tier, std::optional<std::uint64_t> bytes) {
    changes_[{whose, tier}] = bytes;
  }
  /// As the settings file says.
  void take_back(const Whose& whose, Tier tier) { changes_.erase({whose, tier}); }
  Quotas over(const Whose& whose, Quotas of_file) const;
  bool has(const Whose& whose, Tier tier) const { return changes_.count({whose, tier}) != 0; }
  const std::map<Key, std::optional<std::uint64_t>>& all() const { return changes_; }

 private:
  std::map<Key, std::optional<std::uint64_t>> changes_;
};

/// The quotas of one team, or of each job, and what has been promised of them.
class QuotaUse {
 public:
  struct Promise {
    std::uint64_t gpus = 0;   ///< mask
    std::uint64_t bytes = 0;  ///< on each
  };
  /// What the node has outside of HBM; on disk now, and at most.
  struct Node {
    std::uint64_t host = 0;
    std::uint64_t disk = 0;
    std::uint64_t disk_budget = 0;
  };
  /// `team` none: of each job, and then there are no `promises` but the job's own.
  QuotaUse(std::optional<std::string> team, const Quotas& quotas, const Node& node,
           std::vector<Promise> promises)
      : team_(std::move(team)), quotas_(quotas), node_(node), promises_(std::move(promises)) {}

  /// The most that one more job may be promised on each of these GPUs; and if it were the only one,
  /// with all of the disk's budget.
  std::uint64_t most(std::uint64_t gpus) const;
  std::uint64_t most_alone(std::uint64_t gpus) const;
  /// Why one more job can't be promised so much on each of these GPUs: figures, then ": ", then
  /// what to do and who may give more.
  std::string refusal(std::uint64_t gpus, std::uint64_t bytes) const;

  bool any() const { return quotas_.any(); }
  const Quotas& quotas() const { return quotas_; }
  /// What the promises need of HBM, and of all that is outside.
  std::uint64_t in_hbm() const { return in_hbm(promises_); }
  std::uint64_t outside() const { return outside(promises_); }
  /// A line for each quota: how much of it has been promised.
  std::vector<std::string> lines() const;

 private:
  static std::uint64_t in_hbm(const std::vector<Promise>& promises);
  static std::uint64_t outside(const std::vector<Promise>& promises);
  std::uint64_t allowed_outside(std::uint64_t disk) const;
  std::uint64_t most(std::uint64_t gpus, std::vector<Promise> others, std::uint64_t disk) const;
  std::string holder() const;
  std::string outside_words() const;

  std::optional<std::string> team_;
  Quotas quotas_;
  Node node_;
  std::vector<Promise> promises_;
};

}  // namespace plexrl::nodemgr
