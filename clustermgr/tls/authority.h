#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clustermgr/tls/identity.h"

/// Making certificates: an authority (CA) of a cluster's own, and what it signs. Keys are of curve
/// P-256, signatures SHA-256, everything PEM text. No files here; any thread.
namespace plexrl::clustermgr::tls {

/// A certificate and its private key. The key is a secret.
struct KeyPair {
  std::string certificate;
  std::string key;
};

/// Unix seconds.
struct Validity {
  std::time_t from = 0;
  std::time_t until = 0;
};

/// A new authority with a key of its own.
[[nodiscard]] absl::StatusOr<KeyPair> make_authority(const Validity& validity);

/// A certificate for `who`. `hosts` (names or addresses) are what clients may reach it by: for the
/// role manager at least one, for others none, so that nobody else can pass as a manager.
[[nodiscard]] absl::StatusOr<KeyPair> issue(const KeyPair& authority, const Identity& who,
                                            const std::vector<std::string>& hosts,
                                            const Validity& validity);

}  // namespace plexrl::clustermgr::tls
