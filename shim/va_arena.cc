#include "shim/va_arena.h"

#include <iterator>

namespace plexrl::shim {

void VaArena::add(std::uint64_t start, std::size_t bytes) { put(start, bytes); }

std::optional<std::uint64_t> VaArena::take(std::size_t bytes) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < bytes) continue;
    const std::uint64_t start = it->first;
    const std::size_t rest = it->second - bytes;
    free_.erase(it);
    if (rest != 0) free_.emplace(start + bytes, rest);
    return start;
  }
  return std::nullopt;
}

bool VaArena::take_at(std::uint64_t start, std::size_t bytes) {
  auto it = free_.upper_bound(start);
  if (it == free_.begin()) return false;
  --it;
  const std::uint64_t before = start - it->first;
  if (before >= it->second || it->second - before < bytes) return false;
  const std::size_t after = it->second - before - bytes;
  if (before != 0) {
    it->second = before;
  } else {
    free_.erase(it);
  }
  if (after != 0) free_.emplace(start + bytes, after);
  return true;
}

void VaArena::put(std::uint64_t start, std::size_t bytes) {
  auto next = free_.lower_bound(start);
  if (next != free_.end() && start + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == start) {
      previous->second += bytes;
      return;
    }
  }
  free_.emplace(start, bytes);
}

std::size_t VaArena::free_bytes() const noexcept {
  std::size_t sum = 0;
  for (const auto& [start, bytes] : free_) sum += bytes;
  return sum;
}

}  // namespace plexrl::shim
