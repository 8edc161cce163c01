#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nodemgr/policy/types.h"

/// Words that placement uses. Times are nanoseconds unless the name ends in `_s`; nothing here
/// reads a clock.
namespace plexrl::clustermgr::placement {

using nodemgr::policy::Duration;
using nodemgr::policy::Figure;
using nodemgr::policy::GangId;
using nodemgr::policy::GpuMask;
using nodemgr::policy::Instant;
using nodemgr::policy::kNever;

enum class JobId : std::uint64_t {};
enum class NodeId : std::uint32_t {};
/// A set of GPUs that one gang after the other runs on.
enum class SlotId : std::uint32_t {};

inline constexpr double seconds(Duration duration) {
  return static_cast<double>(duration.count()) * 1e-9;
}
inline constexpr Duration from_seconds(double s) {
  return Duration(static_cast<std::int64_t>(s * 1e9));
}

/// One stretch of work of a gang, as its node's agent saw it.
struct Burst {
  Instant wanted{0};  ///< first submission
  Instant ended{0};   ///< everything submitted had finished
  Duration work{0};   ///< time in between in which the gang had its lease and ran

  bool operator==(const Burst&) const = default;
};

/// What a gang has been like on the whole: all that is known of it where its bursts are not.
struct UsualRound {
  Duration burst{0};  ///< mean
  Duration gap{0};    ///< mean, to the next burst
  double cv = 0;      ///< coefficient of variation of burst and gap together

  bool operator==(const UsualRound&) const = default;
};

/// What a node manager has learned of one gang.
struct GangProfile {
  std::string pool;              ///< kind of GPU it runs on
  int gpus = 1;                  ///< all at once
  bool shareable = true;         ///< false: exclusive, by its own wish or because it can't be cut
  std::int64_t hbm_bytes = 0;    ///< promise per GPU; it can be paged out
  std::int64_t fixed_bytes = 0;  ///< per GPU, always there (contexts, driver-owned memory)
  std::vector<Burst> bursts;     ///< recent ones, oldest first, not overlapping
  std::optional<UsualRound> usual;  ///< for an estimate where there are too few bursts

  bool operator==(const GangProfile&) const = default;
};

/// A job as placement sees it: its gangs and what was recorded of them. Nothing of its future.
struct JobProfile {
  JobId id{};
  std::string name;
  std::string team;
  double max_slowdown = 1.5;  ///< predicted step time over step time alone must not exceed it
  std::vector<std::string> apart_from;  ///< names of jobs that must not share a slot with it
  std::vector<GangProfile> gangs;

  bool operator==(const JobProfile&) const = default;
};

}  // namespace plexrl::clustermgr::placement
