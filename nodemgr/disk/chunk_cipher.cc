#include "nodemgr/disk/chunk_cipher.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr::disk {
namespace {

constexpr std::size_t kPageBytes = 4096;

absl::Status openssl_error(const char* what) {
  char text[256] = {};
  ERR_error_string_n(ERR_get_error(), text, sizeof text);
  return absl::InternalError(cat(what, ": ", text));
}

unsigned char* bytes_of(std::byte* data) { return reinterpret_cast<unsigned char*>(data); }

}  // namespace

absl::StatusOr<std::unique_ptr<ChunkKey>> ChunkKey::make() {
  void* const page =
      ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        cat("no memory for a key: ", std::generic_category().message(errno)));
  }
  std::unique_ptr<ChunkKey> key(new ChunkKey(static_cast<std::uint8_t*>(page)));
  key->is_locked_ = ::mlock(page, kPageBytes) == 0;
  ::madvise(page, kPageBytes, MADV_DONTDUMP);
  ::madvise(page, kPageBytes, MADV_WIPEONFORK);
  return key;
}

absl::StatusOr<std::unique_ptr<ChunkKey>> ChunkKey::random() {
  auto key = make();
  if (!key.ok()) return key;
  // So few bytes come whole, once the kernel has any.
  while (::getrandom((*key)->page_, kBytes, 0) != static_cast<ssize_t>(kBytes)) {
    if (errno != EINTR)
      return absl::InternalError(cat("getrandom: ", std::generic_category().message(errno)));
  }
  return key;
}

absl::StatusOr<std::unique_ptr<ChunkKey>> ChunkKey::copy_of(std::span<const std::uint8_t> bytes) {
  if (bytes.size() != kBytes) return absl::InvalidArgumentError("a key has 32 bytes");
  auto key = make();
  if (key.ok()) std::copy(bytes.begin(), bytes.end(), (*key)->page_);
  return key;
}

ChunkKey::~ChunkKey() {
  OPENSSL_cleanse(page_, kPageBytes);
  ::munmap(page_, kPageBytes);
}

absl::StatusOr<ChunkCipher> ChunkCipher::begin(Way way, const ChunkKey& key, const Seal& seal,
                                               std::uint64_t place) {
  EVP_CIPHER_CTX* const context = EVP_CIPHER_CTX_new();
  if (context == nullptr) return openssl_error("AES-GCM");
  ChunkCipher cipher(context);
  std::uint8_t name[sizeof place];
  std::memcpy(name, &place, sizeof name);
  int ignored = 0;
  const bool ready = EVP_CipherInit_ex(context, EVP_aes_256_gcm(), nullptr, key.bytes().data(),
                                       seal.nonce.data(), way == Way::kSeal ? 1 : 0) == 1 &&
                     EVP_CipherUpdate(context, nullptr, &ignored, name, sizeof name) == 1;
  if (!ready) return openssl_error("AES-GCM");
  return cipher;
}

ChunkCipher::ChunkCipher(ChunkCipher&& other) noexcept
    : context_(std::exchange(other.context_, nullptr)) {}

ChunkCipher::~ChunkCipher() { EVP_CIPHER_CTX_free(context_); }

absl::Status ChunkCipher::update(std::span<std::byte> piece) {
  int done = 0;
  const int bytes = static_cast<int>(piece.size());
  if (EVP_CipherUpdate(context_, bytes_of(piece.data()), &done, bytes_of(piece.data()), bytes) !=
          1 ||
      done != bytes) {
    return openssl_error("AES-GCM");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::array<std::uint8_t, 16>> ChunkCipher::tag() {
  std::array<std::uint8_t, 16> tag{};
  int done = 0;
  if (EVP_CipherFinal_ex(context_, tag.data(), &done) != 1 ||
      EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_GCM_GET_TAG, static_cast<int>(tag.size()),
                          tag.data()) != 1) {
    return openssl_error("AES-GCM");
  }
  return tag;
}

bool ChunkCipher::is_genuine(const Seal& seal) {
  Seal expected = seal;  // OpenSSL takes it as writable
  std::uint8_t rest[16];
  int done = 0;
  return EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_GCM_SET_TAG, static_cast<int>(expected.tag.size()),
                             expected.tag.data()) == 1 &&
         EVP_CipherFinal_ex(context_, rest, &done) == 1;
}

}  // namespace plexrl::nodemgr::disk
