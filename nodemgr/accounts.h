#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nodemgr/usage.h"

namespace SQLite {
class Database;
}

namespace plexrl::nodemgr {

/// What jobs have used of this node's GPUs, by the hour, over all managers of one state folder: one
/// SQLite file. Hours that are longer ago than kKept are dropped.
///
/// Amounts are booked in memory and written by `write`, all or none; what can't be written stays
/// booked and is tried again. A manager that is killed loses what it has not written. One thread.
class Accounts {
 public:
  static constexpr std::int64_t kKept = std::int64_t{400} * 24 * 3600;  ///< seconds

  /// Of whom a row tells; with `By::kUser` only the user is set, with `By::kTeam` only the team.
  struct Owner {
    std::string job, name, user, team;
  };
  enum class By { kTeam, kUser, kJob };
  struct Row {
    Owner owner;
    std::int64_t jobs = 0;  ///< how many different ones
    Usage::Totals totals;
  };

  /// Makes the file where there is none. Errors: the folder can't be written, the file is damaged
  /// or a newer version's; the text says what to do.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Accounts>> open(const std::string& path,
                                                                      std::int64_t unix_s);
  ~Accounts();

  /// The job's totals under this manager; what has come since the last time belongs to the hour of
  /// `unix_s`.
  void book(const Owner& owner, const Usage::Totals& totals, std::int64_t unix_s);
  /// The job has ended: nothing more is booked of it.
  void forget(const std::string& job) { seen_.erase(job); }
  [[nodiscard]] absl::Status write();

  /// What was written of all hours from that of `since` on, those first who held GPUs longest.
  [[nodiscard]] absl::StatusOr<std::vector<Row>> sums(std::int64_t since, By by);

 private:
  using Hour = std::pair<std::int64_t, std::string>;  ///< its begin, in Unix seconds; job
  explicit Accounts(std::string path);
  absl::Status prepare(std::int64_t unix_s);

  std::string path_;
  std::unique_ptr<SQLite::Database> file_;
  std::map<std::string, Usage::Totals> seen_;
  std::map<Hour, Row> unwritten_;
};

/// The begin of the hour that the time lies in; both in Unix seconds.
std::int64_t hour_of(std::int64_t unix_s);

}  // namespace plexrl::nodemgr
