#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "clustermgr/store.h"

struct sqlite3;
struct sqlite3_stmt;

namespace plexrl::clustermgr {

/// A store in one SQLite file on this machine.
///
/// A full disk is ResourceExhausted. A file that is damaged is DataLoss; it is never written to,
/// repaired or replaced by this class.
class SqliteStore final : public Store {
 public:
  /// Makes the file when there is none. Errors: DataLoss (damaged), FailedPrecondition (another
  /// manager has it open, or a newer version made it), others as the system says.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<SqliteStore>> open(const std::string& path);
  ~SqliteStore() override;

  absl::Status apply(std::span<const Change> changes) override;
  absl::StatusOr<std::optional<std::string>> get(const std::string& key) override;
  absl::StatusOr<std::map<std::string, std::string>> list(const std::string& prefix) override;

 private:
  explicit SqliteStore(std::string path) : path_(std::move(path)) {}
  absl::Status begin_use();
  absl::Status check_version();
  absl::Status check_whole();
  absl::Status run(const char* sql);
  absl::Status write(const Change& change);
  absl::Status error(int code, const char* doing) const;

  std::string path_;
  std::mutex mu_;
  sqlite3* db_ = nullptr;
};

}  // namespace plexrl::clustermgr
