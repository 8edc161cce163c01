#include "shim/unpageable.h"

namespace plexrl::shim {

wire::MemoryKind to_wire(interpose::UnpageableKind kind) noexcept {
  using interpose::UnpageableKind;
  switch (kind) {
    case UnpageableKind::kPool:
      return wire::MemoryKind::kPool;
    case UnpageableKind::kVmm:
      return wire::MemoryKind::kVmm;
    case UnpageableKind::kIpc:
      return wire::MemoryKind::kIpc;
    case UnpageableKind::kGraph:
      return wire::MemoryKind::kGraph;
    case UnpageableKind::kManaged:
      return wire::MemoryKind::kManaged;
    case UnpageableKind::kArray:
      return wire::MemoryKind::kArray;
    case UnpageableKind::kHostRegistered:
      return wire::MemoryKind::kHostRegistered;
    case UnpageableKind::kOther:
      break;
  }
  return wire::MemoryKind::kOther;
}

void Unpageable::add(wire::MemoryKind kind, std::uint64_t key, Entry entry) {
  const std::lock_guard lock(mutex_);
  // Retaining or importing a thing again may give the same key; it takes its memory once.
  const auto [it, is_new] = entries_.try_emplace({kind, key}, entry);
  if (is_new) sums_[{entry.device, kind}] += entry.bytes;
}

Unpageable::Entry Unpageable::remove(wire::MemoryKind kind, std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find({kind, key});
  if (it == entries_.end()) return {};
  const Entry entry = it->second;
  entries_.erase(it);
  sums_[{entry.device, kind}] -= entry.bytes;
  return entry;
}

void Unpageable::sums(CUdevice device, std::uint64_t (&kinds)[wire::kMemoryKinds]) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, bytes] : sums_) {
    if (key.first == device) kinds[static_cast<int>(key.second)] += bytes;
  }
}

}  // namespace plexrl::shim
