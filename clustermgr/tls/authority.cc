#include "clustermgr/tls/authority.h"

#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "clustermgr/tls/openssl.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::clustermgr::tls {
namespace {

using nodemgr::cat;
using nodemgr::failed;
using nodemgr::invalid;

constexpr long kVersion3 = 2;  // X.509 counts from 0

std::string written(const Bio& memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

absl::StatusOr<KeyPair> as_pem(X509* certificate, EVP_PKEY* key) {
  const Bio certificate_text(BIO_new(BIO_s_mem()));
  const Bio key_text(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(certificate_text.get(), certificate) != 1 ||
      PEM_write_bio_PrivateKey(key_text.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return failed("can't write a certificate: ", last_error());
  }
  return KeyPair{written(certificate_text), written(key_text)};
}

bool add_extension(X509* certificate, X509V3_CTX* context, int nid, const std::string& value) {
  const std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, context, nid, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

/// What every certificate has: a random serial number, times, subject, key.
bool begin(X509* certificate, EVP_PKEY* key, const std::string& name, const Validity& validity) {
  constexpr int kSerialBits = 127;
  const std::unique_ptr<BIGNUM, Freed<BN_free>> serial(BN_new());
  X509_NAME* const subject = X509_get_subject_name(certificate);
  return X509_set_version(certificate, kVersion3) == 1 && serial != nullptr &&
         BN_rand(serial.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate)) != nullptr &&
         ASN1_TIME_set(X509_getm_notBefore(certificate), validity.from) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), validity.until) != nullptr &&
         X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_ASC,
                                    reinterpret_cast<const unsigned char*>("PlexRL"), -1, -1,
                                    0) == 1 &&
         X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                                    reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                                    0) == 1 &&
         X509_set_pubkey(certificate, key) == 1;
}

bool is_address(const std::string& host) {
  const std::unique_ptr<ASN1_OCTET_STRING, Freed<ASN1_OCTET_STRING_free>> address(
      a2i_IPADDRESS(host.c_str()));
  return address != nullptr;
}

/// Subject alternative names. All parts are checked, so none can smuggle in another entry.
absl::StatusOr<std::string> names_of(const Identity& who, const std::vector<std::string>& hosts) {
  absl::Status status = check_name(who.name);
  if (!status.ok()) return status;
  if (hosts.empty() == (who.role == Role::kManager)) {
    return invalid(text_of(who), ": a manager needs names or addresses of hosts, others none");
  }
  std::string names = cat("URI:", uri_of(who));
  for (const std::string& host : hosts) {
    const bool address = is_address(host);
    if (status = check_name(host); !address && !status.ok()) return status;
    names += cat(address ? ",IP:" : ",DNS:", host);
  }
  ERR_clear_error();
  return names;
}

absl::StatusOr<Certificate> read_certificate(const std::string& text) {
  Certificate certificate(PEM_read_bio_X509(reader_of(text).get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) return failed("is no certificate: ", last_error());
  return certificate;
}

}  // namespace

std::string last_error() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "unknown error";
  char text[256];
  ERR_error_string_n(code, text, sizeof text);
  return text;
}

Bio reader_of(std::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

absl::StatusOr<KeyPair> make_authority(const Validity& validity) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  if (key == nullptr || certificate == nullptr ||
      !begin(certificate.get(), key.get(), "cluster authority", validity) ||
      X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get())) != 1) {
    return failed("can't make an authority: ", last_error());
  }
  X509V3_CTX context;
  X509V3_set_ctx(&context, certificate.get(), certificate.get(), nullptr, nullptr, 0);
  if (!add_extension(certificate.get(), &context, NID_basic_constraints,
                     "critical,CA:TRUE,pathlen:0") ||
      !add_extension(certificate.get(), &context, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !add_extension(certificate.get(), &context, NID_subject_key_identifier, "hash") ||
      X509_sign(certificate.get(), key.get(), EVP_sha256()) == 0) {
    return failed("can't make an authority: ", last_error());
  }
  return as_pem(certificate.get(), key.get());
}

absl::StatusOr<KeyPair> issue(const KeyPair& authority, const Identity& who,
                              const std::vector<std::string>& hosts, const Validity& validity) {
  const absl::StatusOr<std::string> names = names_of(who, hosts);
  if (!names.ok()) return names.status();
  const absl::StatusOr<Certificate> issuer = read_certificate(authority.certificate);
  if (!issuer.ok()) return failed("the authority: ", nodemgr::message_of(issuer.status()));
  const Key issuer_key(
      PEM_read_bio_PrivateKey(reader_of(authority.key).get(), nullptr, nullptr, nullptr));
  if (issuer_key == nullptr) return failed("the authority's key can't be read: ", last_error());
  if (X509_check_private_key(issuer->get(), issuer_key.get()) != 1) {
    ERR_clear_error();
    return failed("the authority's key does not belong to its certificate");
  }
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  const std::string use = who.role == Role::kManager ? "serverAuth,clientAuth" : "clientAuth";
  if (key == nullptr || certificate == nullptr ||
      !begin(certificate.get(), key.get(), text_of(who), validity) ||
      X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer->get())) != 1) {
    return failed("can't make a certificate for ", text_of(who), ": ", last_error());
  }
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer->get(), certificate.get(), nullptr, nullptr, 0);
  if (!add_extension(certificate.get(), &context, NID_basic_constraints, "critical,CA:FALSE") ||
      !add_extension(certificate.get(), &context, NID_key_usage, "critical,digitalSignature") ||
      !add_extension(certificate.get(), &context, NID_ext_key_usage, use) ||
      !add_extension(certificate.get(), &context, NID_subject_key_identifier, "hash") ||
      !add_extension(certificate.get(), &context, NID_authority_key_identifier, "keyid") ||
      !add_extension(certificate.get(), &context, NID_subject_alt_name, *names) ||
      X509_sign(certificate.get(), issuer_key.get(), EVP_sha256()) == 0) {
    return failed("can't make a certificate for ", text_of(who), ": ", last_error());
  }
  return as_pem(certificate.get(), key.get());
}

}  // namespace plexrl::clustermgr::tls
