#pragma once

#include <cstdint>
#include <optional>

#include "interpose/cuda_api.h"
#include "shim/scoped_fd.h"
#include "shim/wire.h"

namespace plexrl::shim {

/// What a program gets and passes on instead of a driver's handle of shared memory: the 64 bytes of
/// a CUipcMemHandle or a CUmemPoolPtrExportData, or the contents of a sealed memfd in place of a
/// descriptor. It names memory of this job (wire.h, Exported) and keeps nothing alive. Untrusted
/// when it comes back.
struct Capability {
  static constexpr std::uint64_t kMagic = 0x3165726168537850;  // "PxShare1"

  std::uint64_t magic = kMagic;
  std::uint64_t id = 0;
  wire::Id128 tag{};
  std::uint64_t offset = 0;  ///< of the memory in the owner's range, bytes
  std::uint64_t bytes = 0;
  std::uint64_t pool = 0;  ///< tag of the pool that it was allocated from, where that is shared
  std::uint64_t zero = 0;
};
static_assert(sizeof(Capability) == sizeof(CUipcMemHandle));
static_assert(sizeof(Capability) == sizeof(CUmemPoolPtrExportData));

/// What a descriptor of a shared pool holds. It names the pool and keeps nothing alive: memory of
/// it is shared one allocation at a time. Untrusted when it comes back.
struct PoolName {
  static constexpr std::uint64_t kMagic = 0x316c6f6f50687850;  // "PxhPool1"

  std::uint64_t magic = kMagic;
  wire::Id128 job{};
  std::uint64_t tag = 0;
  wire::GpuUuid gpu{};
};

CUipcMemHandle to_handle(const Capability& capability) noexcept;
std::optional<Capability> from_handle(const CUipcMemHandle& handle) noexcept;

CUmemPoolPtrExportData to_export_data(const Capability& capability) noexcept;
std::optional<Capability> from_export_data(const CUmemPoolPtrExportData& data) noexcept;

/// A sealed memfd with what is given; invalid when the system has none to give.
ScopedFd to_descriptor(const Capability& capability) noexcept;
ScopedFd to_descriptor(const PoolName& pool) noexcept;
/// None: `fd` is something else.
std::optional<Capability> from_descriptor(int fd) noexcept;
std::optional<PoolName> pool_from_descriptor(int fd) noexcept;

}  // namespace plexrl::shim
