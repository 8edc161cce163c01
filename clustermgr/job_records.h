#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "clustermgr/placement/types.h"
#include "proto/cluster.pb.h"

namespace plexrl::clustermgr {

/// Bursts and gaps of all gangs of a job together, as of one that has all their GPUs: busy while
/// any of them is, at most. Nothing while one of them has shown fewer than three.
std::optional<placement::UsualRound> usual_round(
    const google::protobuf::RepeatedPtrField<cluster::v1::Gang>& gangs);

/// The recent bursts of all gangs of a job together, as of one that has all their GPUs: those that
/// overlap are one. Empty while there are fewer than four. Times begin with the first.
std::vector<placement::Burst> recent_bursts(
    const google::protobuf::RepeatedPtrField<cluster::v1::Gang>& gangs);

/// What runs of jobs have shown, by (user, name), for their next runs. Reads no clock; one thread
/// at a time.
class JobRecords {
 public:
  static constexpr std::size_t kMost = 10'000;

  /// What the report of a running job adds to what is known, when that is worth storing: the first
  /// that can be used, twice as much as before, or something else than before.
  std::optional<cluster::v1::JobRecord> news(const cluster::v1::Job& job,
                                             std::int64_t now_unix_ns) const;
  void remember(cluster::v1::JobRecord record);

  /// Null: nothing is known. Lives until `remember` or `forget`.
  const cluster::v1::JobRecord* find(const std::string& user, const std::string& name) const;

  /// Of the one seen longest ago, when there are more than kMost.
  std::optional<std::pair<std::string, std::string>> too_many() const;
  void forget(const std::string& user, const std::string& name) { records_.erase({user, name}); }

 private:
  std::map<std::pair<std::string, std::string>, cluster::v1::JobRecord> records_;
};

}  // namespace plexrl::clustermgr
