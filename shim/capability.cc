#include "shim/capability.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace plexrl::shim {
namespace {

constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

std::optional<Capability> checked(const Capability& capability) noexcept {
  if (capability.magic != Capability::kMagic || capability.id == 0) return std::nullopt;
  return capability;
}

template <typename T>
ScopedFd seal(const char* name, const T& contents) noexcept {
  const int saved_errno = errno;
  ScopedFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool made =
      fd.valid() &&
      ::write(fd.get(), &contents, sizeof contents) == static_cast<ssize_t>(sizeof contents) &&
      ::fcntl(fd.get(), F_ADD_SEALS, kSeals) == 0;
  errno = saved_errno;
  return made ? std::move(fd) : ScopedFd{};
}

/// What `seal` made of a T, or of something else.
template <typename T>
std::optional<T> unseal(int fd) noexcept {
  const int saved_errno = errno;
  T contents;
  const bool is_sealed =
      ::fcntl(fd, F_GET_SEALS) == kSeals &&
      ::pread(fd, &contents, sizeof contents, 0) == static_cast<ssize_t>(sizeof contents);
  errno = saved_errno;
  return is_sealed && contents.magic == T::kMagic ? std::optional(contents) : std::nullopt;
}

template <typename T>
T to_bytes(const Capability& capability) noexcept {
  T bytes;
  std::memcpy(&bytes, &capability, sizeof bytes);
  return bytes;
}

template <typename T>
std::optional<Capability> from_bytes(const T& bytes) noexcept {
  Capability capability;
  std::memcpy(static_cast<void*>(&capability), &bytes, sizeof capability);
  return checked(capability);
}

}  // namespace

CUipcMemHandle to_handle(const Capability& capability) noexcept {
  return to_bytes<CUipcMemHandle>(capability);
}

std::optional<Capability> from_handle(const CUipcMemHandle& handle) noexcept {
  return from_bytes(handle);
}

CUmemPoolPtrExportData to_export_data(const Capability& capability) noexcept {
  return to_bytes<CUmemPoolPtrExportData>(capability);
}

std::optional<Capability> from_export_data(const CUmemPoolPtrExportData& data) noexcept {
  return from_bytes(data);
}

ScopedFd to_descriptor(const Capability& capability) noexcept {
  return seal("plexrl-memory", capability);
}

ScopedFd to_descriptor(const PoolName& pool) noexcept { return seal("plexrl-pool", pool); }

std::optional<Capability> from_descriptor(int fd) noexcept {
  const auto capability = unseal<Capability>(fd);
  return capability ? checked(*capability) : std::nullopt;
}

std::optional<PoolName> pool_from_descriptor(int fd) noexcept { return unseal<PoolName>(fd); }

}  // namespace plexrl::shim
