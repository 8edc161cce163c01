#pragma once

#include <ctime>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "clustermgr/tls/identity.h"

namespace plexrl::clustermgr::tls {

/// Says who a peer's certificate is for, after checking that the authority signed it and that it
/// holds now. The handshake has shown that the peer has its private key; the rest is asked here, at
/// each request, so that the peer is told in words what is wrong, and a certificate that expires
/// while a connection lives is seen.
///
/// Any thread, at the same time.
class Verifier {
 public:
  /// `authorities`: PEM, one certificate or several.
  [[nodiscard]] static absl::StatusOr<Verifier> make(const std::string& authorities);

  Verifier(Verifier&&) noexcept;
  Verifier& operator=(Verifier&&) noexcept;
  ~Verifier();

  /// `certificate`: PEM. Errors are Unauthenticated: what is wrong and what to do.
  [[nodiscard]] absl::StatusOr<Identity> check(const std::string& certificate,
                                               std::time_t now) const;

 private:
  struct Store;
  explicit Verifier(std::unique_ptr<Store> store);
  std::unique_ptr<Store> store_;
};

/// Who the certificate says that it is for, unchecked.
[[nodiscard]] absl::StatusOr<Identity> identity_of(const std::string& certificate);

/// Until when it holds, Unix seconds.
[[nodiscard]] absl::StatusOr<std::time_t> expiry_of(const std::string& certificate);

/// OK when the private key is the certificate's.
[[nodiscard]] absl::Status check_key(const std::string& certificate, const std::string& key);

}  // namespace plexrl::clustermgr::tls
