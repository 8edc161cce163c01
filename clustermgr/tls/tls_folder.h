#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clustermgr/tls/authority.h"

/// Files of certificates: `ca.pem`, `cert.pem`, `key.pem` in one folder (docs/contract.md, row
/// "network").
namespace plexrl::clustermgr::tls {

struct TlsFiles {
  std::string authorities;
  KeyPair own;
};

/// Reads the three. Errors name the file and say what to do; a key that others may read is one.
[[nodiscard]] absl::StatusOr<TlsFiles> read_tls_folder(const std::string& folder);

/// The whole file. Errors name it.
[[nodiscard]] absl::StatusOr<std::string> read_file(const std::string& path);

/// Written whole or not at all (a new file beside it, renamed), with `mode`.
[[nodiscard]] absl::Status write_file(const std::string& path, const std::string& text,
                                      unsigned mode);

}  // namespace plexrl::clustermgr::tls
