#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plexrl::clustermgr {

/// One entry that is set, or with no value removed.
struct Change {
  std::string key;
  std::optional<std::string> value;
};

/// What the cluster manager must still know after it was killed: keys and values. Keys are paths
/// ("node/a1"), values serialised messages of proto/.
///
/// `apply` returns OK when the changes are durable, all of them; otherwise none counts, and what
/// was there before is still there: so write here first, then change what is in memory. After an
/// error the next `apply` may succeed.
///
/// One process at a time; any thread.
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  [[nodiscard]] virtual absl::Status apply(std::span<const Change> changes) = 0;
  [[nodiscard]] virtual absl::StatusOr<std::optional<std::string>> get(const std::string& key) = 0;
  /// Every entry whose key begins with `prefix`, by key.
  [[nodiscard]] virtual absl::StatusOr<std::map<std::string, std::string>> list(
      const std::string& prefix) = 0;
};

}  // namespace plexrl::clustermgr
