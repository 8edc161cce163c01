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

}  // namespace

CUipcMemHandle to_handle(const Capability& capability) noexcept {
  CUipcMemHandle handle;
  std::memcpy(&handle, &capability, sizeof handle);
  return handle;
}

std::optional<Capability> from_handle(const CUipcMemHandle& handle) noexcept {
  Capability capability;
  std::memcpy(static_cast<void*>(&capability), &handle, sizeof capability);
  return checked(capability);
}

ScopedFd to_descriptor(const Capability& capability) noexcept {
  const int saved_errno = errno;
  ScopedFd fd(::memfd_create("plexrl-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool made = fd.valid() &&
                    ::write(fd.get(), &capability, sizeof capability) ==
                        static_cast<ssize_t>(sizeof capability) &&
                    ::fcntl(fd.get(), F_ADD_SEALS, kSeals) == 0;
  errno = saved_errno;
  return made ? std::move(fd) : ScopedFd{};
}

std::optional<Capability> from_descriptor(int fd) noexcept {
  const int saved_errno = errno;
  Capability capability;
  const bool is_ours =
      ::fcntl(fd, F_GET_SEALS) == kSeals &&
      ::pread(fd, &capability, sizeof capability, 0) == static_cast<ssize_t>(sizeof capability);
  errno = saved_errno;
  return is_ours ? checked(capability) : std::nullopt;
}

}  // namespace plexrl::shim
