#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clustermgr/tls/identity.h"

namespace plexrl::ctl {

/// What `plexrl-ctl tls init DIR` shall make.
struct TlsRequest {
  std::string folder;
  std::vector<std::string> manager_hosts;  ///< names and addresses that it is reached by
  std::vector<clustermgr::tls::Identity> others;
  std::time_t valid_s = 0;
};

/// An authority in DIR (`ca.pem`, `ca-key.pem`) unless there is one, and for each identity a folder
/// `ROLE-NAME/` with ca.pem, cert.pem, key.pem that can be copied as it is; one that is there
/// is replaced. Returns these folders.
[[nodiscard]] absl::StatusOr<std::vector<std::string>> make_certificates(const TlsRequest& request,
                                                                         std::time_t now);

/// The verb with its command line, `argv[0]` the program. Returns the exit status.
int run_tls(int argc, char** argv);

}  // namespace plexrl::ctl
