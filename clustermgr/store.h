#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace plexrl::clustermgr {

/// One entry that is set, or with no value removed.
struct Change {
  std::string key;
  std::optional<std::string> value;
};

/// What the cluster manager must still know after it was killed: keys and values, in one SQLite
/// file. Keys are paths ("node/a1"), values serialised messages of proto/.
///
/// `apply` returns OK when the changes are on the disk, all of them; otherwise none is, and what
/// was there before is still there: so write here first, then change what is in memory. A full disk
/// is ResourceExhausted, and the next `apply` may succeed. A file that is damaged is DataLoss; it
/// is never written to, repaired or replaced by this class.
///
/// One process at a time; any thread.
class Store {
 public:
  /// Makes the file when there is none. Errors: DataLoss (damaged), FailedPrecondition (another
  /// manager has it open, or a newer version made it), others as the system says.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Store>> open(const std::string& path);

  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  [[nodiscard]] absl::Status apply(std::span<const Change> changes);
  [[nodiscard]] absl::StatusOr<std::optional<std::string>> get(const std::string& key);
  /// Every entry whose key begins with `prefix`, by key.
  [[nodiscard]] absl::StatusOr<std::map<std::string, std::string>> list(const std::string& prefix);

 private:
  explicit Store(std::string path) : path_(std::move(path)) {}
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
