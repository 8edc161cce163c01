#include "clustermgr/gatekeeper.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_metadata_processor.h>

#include <ctime>

#include "nodemgr/settings/cat.h"

namespace plexrl::clustermgr {
namespace {

using nodemgr::cat;

/// The caller's own certificate as PEM; "" when it showed none.
std::string certificate_of(const grpc::AuthContext& context) {
  const std::vector<grpc::string_ref> found =
      context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return found.empty() ? "" : std::string(found.front().data(), found.front().size());
}

class EveryRequest final : public grpc::AuthMetadataProcessor {
 public:
  EveryRequest(tls::Verifier verifier, Metrics& metrics)
      : verifier_(std::move(verifier)), metrics_(metrics) {}

  grpc::Status Process(const InputMetadata&, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const std::string certificate = certificate_of(*context);
    const absl::Status status =
        certificate.empty()
            ? absl::UnauthenticatedError(
                  "the caller showed no certificate: give the folder with ca.pem, cert.pem and "
                  "key.pem (PLEXRL_TLS_DIR); `plexrl-ctl tls init DIR` makes them")
            : verifier_.check(certificate, std::time(nullptr)).status();
    if (status.ok()) return grpc::Status::OK;
    metrics_.count_refused_caller();
    return {grpc::StatusCode::UNAUTHENTICATED, nodemgr::message_of(status)};
  }

 private:
  tls::Verifier verifier_;
  Metrics& metrics_;
};

}  // namespace

absl::StatusOr<Gatekeeper> Gatekeeper::make(const std::optional<tls::TlsFiles>& tls,
                                            Metrics& metrics) {
  Gatekeeper gatekeeper;
  if (!tls) {
    gatekeeper.credentials_ = grpc::InsecureServerCredentials();
    return gatekeeper;
  }
  absl::StatusOr<tls::Verifier> verifier = tls::Verifier::make(tls->authorities);
  if (!verifier.ok()) return verifier.status();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  options.pem_root_certs = tls->authorities;
  options.pem_key_cert_pairs.push_back({tls->own.key, tls->own.certificate});
  gatekeeper.credentials_ = grpc::SslServerCredentials(options);
  gatekeeper.credentials_->SetAuthMetadataProcessor(
      std::make_shared<EveryRequest>(*std::move(verifier), metrics));
  gatekeeper.has_tls_ = true;
  return gatekeeper;
}

absl::StatusOr<tls::Identity> Gatekeeper::admit(const grpc::ServerContext& context,
                                                std::initializer_list<tls::Role> roles) const {
  if (!has_tls_) return tls::Identity{tls::Role::kAdmin, "loopback"};
  absl::StatusOr<tls::Identity> caller = tls::identity_of(certificate_of(*context.auth_context()));
  if (!caller.ok()) return caller.status();
  std::string needed;
  for (const tls::Role role : roles) {
    if (caller->role == role) return caller;
    needed += cat(needed.empty() ? "" : " or ", tls::name_of(role));
  }
  return absl::PermissionDeniedError(
      cat("the certificate is of ", tls::text_of(*caller), ", and this needs the role ", needed,
          ": use a certificate made with `plexrl-ctl tls init DIR --",
          roles.size() > 0 ? tls::name_of(*roles.begin()) : "admin", " NAME`"));
}

}  // namespace plexrl::clustermgr
