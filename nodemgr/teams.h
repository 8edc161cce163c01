#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nodemgr/quotas.h"

namespace plexrl::nodemgr {

/// One `[[team]]` of the settings file.
struct Team {
  std::string name;
  double weight = 1;                 ///< of GPU time, against the other teams that want it
  std::vector<std::string> members;  ///< names of users (or uids); empty: everybody
  int priority_max = 100;            ///< of its jobs
  double max_slowdown = 0;           ///< for jobs that ask for none; 0: none
  Quotas quotas;                     ///< of what its jobs are promised, together

  bool has_member(std::string_view user) const;
};

/// The teams of a node.
///
/// Where the file names none, every name is a team of weight 1, open to all. Where it does, a job
/// names one of them, of which its user is a member; or none, and then belongs to the first that
/// lists its user, and otherwise to no team: together these jobs weigh as much as a team of 1.
class Teams {
 public:
  /// Reads `[[team]]` of a settings file. Errors name the file and the line: an unknown key, a name
  /// that is missing, too long or there twice, a value outside its range.
  [[nodiscard]] static absl::StatusOr<Teams> from_file(const std::string& path);

  /// The team of a new job that asks for `team` ("": none) and this priority. Errors say who may
  /// what: no such team, not a member, a priority above the team's.
  [[nodiscard]] absl::StatusOr<std::string> assign(const std::string& team, std::string_view user,
                                                   int priority) const;

  const Team* find(std::string_view name) const;
  const std::vector<Team>& all() const { return teams_; }
  /// Weights for the policy: of these teams, and 1 again for those of `before` that are gone.
  std::map<std::string, double> weights_after(const Teams& before) const;

 private:
  std::vector<Team> teams_;
};

}  // namespace plexrl::nodemgr
