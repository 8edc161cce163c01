#include "clustermgr/tls/verifier.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <ctime>

#include "clustermgr/tls/openssl.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::clustermgr::tls {
namespace {

using nodemgr::cat;
using nodemgr::failed;

template <typename... Parts>
absl::Status unauthenticated(const Parts&... parts) {
  return absl::UnauthenticatedError(cat(parts...));
}

Certificate read_certificate(const std::string& text) {
  Certificate certificate(PEM_read_bio_X509(reader_of(text).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

std::time_t unix_time_of(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? ::timegm(&parts) : 0;
}

std::string utc(std::time_t time) {
  std::tm parts{};
  char text[32];
  ::gmtime_r(&time, &parts);
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

absl::StatusOr<Identity> identity_in(X509* certificate) {
  constexpr char kNeeds[] =
      "the certificate has no role: it needs one URI plexrl:ROLE/NAME in its alternative names, as "
      "`plexrl-ctl tls init` writes it";
  const std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::string uri;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    if (!uri.empty()) return unauthenticated(kNeeds, ", and has several");
    const ASN1_STRING* const text = name->d.uniformResourceIdentifier;
    uri.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
               static_cast<std::size_t>(ASN1_STRING_length(text)));
  }
  if (uri.empty()) return unauthenticated(kNeeds);
  absl::StatusOr<Identity> identity = parse_uri(uri);
  if (!identity.ok()) return unauthenticated(kNeeds, ": ", nodemgr::message_of(identity.status()));
  return identity;
}

std::string remedy(const Identity& who) {
  return cat("make a new one with `plexrl-ctl tls init DIR --", name_of(who.role), " ", who.name,
             "` where the authority's key is, and put it in place of the old one");
}

absl::Status explain(int error, X509* certificate, std::time_t now) {
  const absl::StatusOr<Identity> who = identity_in(certificate);
  const std::string whose =
      who.ok() ? cat("the certificate of ", text_of(*who)) : "the certificate";
  const std::string fix = who.ok() ? remedy(*who) : "make one with `plexrl-ctl tls init DIR`";
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return unauthenticated(whose, " expired at ",
                             utc(unix_time_of(X509_get0_notAfter(certificate))),
                             " (the cluster manager's clock says ", utc(now), "): ", fix);
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return unauthenticated(whose, " holds only from ",
                             utc(unix_time_of(X509_get0_notBefore(certificate))), " on, and it is ",
                             utc(now), " by the cluster manager's clock: set the clocks right");
    default:
      return unauthenticated(whose, " is not one of this cluster's authority (",
                             X509_verify_cert_error_string(error), "): ", fix);
  }
}

}  // namespace

struct Verifier::Store {
  std::unique_ptr<X509_STORE, Freed<X509_STORE_free>> trusted;
};

Verifier::Verifier(std::unique_ptr<Store> store) : store_(std::move(store)) {}
Verifier::Verifier(Verifier&&) noexcept = default;
Verifier& Verifier::operator=(Verifier&&) noexcept = default;
Verifier::~Verifier() = default;

absl::StatusOr<Verifier> Verifier::make(const std::string& authorities) {
  auto store = std::make_unique<Store>();
  store->trusted.reset(X509_STORE_new());
  const Bio reader = reader_of(authorities);
  int count = 0;
  for (;; ++count) {
    const Certificate authority(PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr));
    if (authority == nullptr) break;
    if (X509_STORE_add_cert(store->trusted.get(), authority.get()) != 1) {
      return failed("can't use an authority's certificate: ", last_error());
    }
  }
  ERR_clear_error();
  if (count == 0) return nodemgr::invalid("holds no certificate in PEM form");
  return Verifier(std::move(store));
}

absl::StatusOr<Identity> Verifier::check(const std::string& text, std::time_t now) const {
  const Certificate certificate = read_certificate(text);
  if (certificate == nullptr) return unauthenticated("the certificate can't be read");
  const std::unique_ptr<X509_STORE_CTX, Freed<X509_STORE_CTX_free>> context(X509_STORE_CTX_new());
  if (context == nullptr ||
      X509_STORE_CTX_init(context.get(), store_->trusted.get(), certificate.get(), nullptr) != 1) {
    return failed("can't check a certificate: ", last_error());
  }
  X509_STORE_CTX_set_purpose(context.get(), X509_PURPOSE_SSL_CLIENT);
  X509_STORE_CTX_set_time(context.get(), 0, now);
  const bool good = X509_verify_cert(context.get()) == 1;
  ERR_clear_error();
  if (!good) return explain(X509_STORE_CTX_get_error(context.get()), certificate.get(), now);
  return identity_in(certificate.get());
}

absl::StatusOr<Identity> identity_of(const std::string& text) {
  const Certificate certificate = read_certificate(text);
  if (certificate == nullptr) return unauthenticated("the certificate can't be read");
  return identity_in(certificate.get());
}

absl::StatusOr<std::time_t> expiry_of(const std::string& text) {
  const Certificate certificate = read_certificate(text);
  if (certificate == nullptr) return nodemgr::invalid("holds no certificate in PEM form");
  return unix_time_of(X509_get0_notAfter(certificate.get()));
}

absl::Status check_key(const std::string& text, const std::string& key_text) {
  const Certificate certificate = read_certificate(text);
  if (certificate == nullptr) return nodemgr::invalid("the certificate can't be read");
  const Key key(PEM_read_bio_PrivateKey(reader_of(key_text).get(), nullptr, nullptr, nullptr));
  const bool good = key != nullptr && X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  return good ? absl::OkStatus()
              : nodemgr::invalid("the private key is not that of the certificate");
}

}  // namespace plexrl::clustermgr::tls
