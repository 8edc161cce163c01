#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "interpose/handlers.h"
#include "shim/wire.h"

namespace plexrl::shim {

/// Memory of this process that stays the driver's and in HBM: pools, arrays, managed memory, the
/// job's own VMM handles, imports. It passes through, and is counted by kind so that plexrl-ctl can
/// show it.
///
/// Keys are what names a thing in its kind: a pointer or a handle. Threads: any.
class Unpageable {
 public:
  struct Entry {
    CUdevice device = 0;
    std::uint64_t bytes = 0;
  };

  void add(wire::MemoryKind kind, std::uint64_t key, Entry entry);
  /// What was counted under the key; bytes 0 when nothing was.
  Entry remove(wire::MemoryKind kind, std::uint64_t key);

  /// Adds the bytes of `device` to `kinds`, by kind.
  void sums(CUdevice device, std::uint64_t (&kinds)[wire::kMemoryKinds]) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<wire::MemoryKind, std::uint64_t>, Entry> entries_;
  std::map<std::pair<CUdevice, wire::MemoryKind>, std::uint64_t> sums_;
};

wire::MemoryKind to_wire(interpose::UnpageableKind kind) noexcept;

}  // namespace plexrl::shim
