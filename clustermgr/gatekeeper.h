#pragma once

#include <grpcpp/grpcpp.h>

#include <initializer_list>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "clustermgr/metrics.h"
#include "clustermgr/tls/tls_folder.h"
#include "clustermgr/tls/verifier.h"

namespace plexrl::clustermgr {

/// Who may call. The handshake asks for a certificate and proves that the caller has its key, but
/// takes any: whether it is one of ours and holds is checked at every request instead, of every
/// service, so that the caller gets the reason as the call's error.
class Gatekeeper {
 public:
  /// Without `tls` everyone who connects is an admin.
  [[nodiscard]] static absl::StatusOr<Gatekeeper> make(const std::optional<tls::TlsFiles>& tls,
                                                       Metrics& metrics);

  const std::shared_ptr<grpc::ServerCredentials>& credentials() const { return credentials_; }

  bool has_tls() const { return has_tls_; }

  /// Who makes this request, if one of `roles` may; else PERMISSION_DENIED says who is needed.
  [[nodiscard]] absl::StatusOr<tls::Identity> admit(const grpc::ServerContext& context,
                                                    std::initializer_list<tls::Role> roles) const;

 private:
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  bool has_tls_ = false;
};

}  // namespace plexrl::clustermgr
