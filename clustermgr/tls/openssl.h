#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <string_view>

/// Owners of openssl's objects, and its last error as words.
namespace plexrl::clustermgr::tls {

template <auto kFree>
struct Freed {
  template <typename Object>
  void operator()(Object* object) const {
    kFree(object);
  }
};

using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;

/// The oldest error of this thread, and forgets the rest.
std::string last_error();

Bio reader_of(std::string_view text);

}  // namespace plexrl::clustermgr::tls
