#include "shim/pool_space.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "shim/allocation_ends.h"

namespace plexrl::shim {

std::size_t PoolSpace::rounded(std::size_t bytes) noexcept {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void PoolSpace::add_segment(std::uint64_t start, std::size_t bytes) {
  Segment& segment = segments_[start];
  segment.bytes = bytes;
  segment.free_space.add(start, bytes);
  reserved_ += bytes;
  reserved_high_ = std::max(reserved_high_, reserved_);
}

std::uint64_t PoolSpace::note(std::uint64_t address, std::size_t bytes) {
  living_[address] = {address, bytes, next_identifier_++};
  used_ += rounded(bytes);
  used_high_ = std::max(used_high_, used_);
  return address;
}

std::optional<std::uint64_t> PoolSpace::take_free(std::size_t bytes) {
  for (auto& [start, segment] : segments_) {
    const auto address = segment.free_space.take(rounded(bytes));
    if (address) return note(*address, bytes);
  }
  return std::nullopt;
}

std::uint64_t PoolSpace::take_piece(std::list<Pending>::iterator from, std::size_t size) {
  const std::uint64_t address = from->address;
  from->address += size;
  from->bytes -= size;
  if (from->bytes == 0) pending_.erase(from);
  return address;
}

std::optional<std::uint64_t> PoolSpace::take_following(std::size_t bytes, const StreamKey& stream) {
  const std::size_t size = rounded(bytes);
  for (auto it = pending_.begin(); it != pending_.end(); ++it) {
    if (it->bytes < size || !it->mark->follows || it->mark->where != stream) continue;
    return note(take_piece(it, size), bytes);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> PoolSpace::take_after(std::size_t bytes, FreeMarkPtr* after) {
  const std::size_t size = rounded(bytes);
  for (auto it = pending_.begin(); it != pending_.end(); ++it) {
    // Without an event there is nothing that a stream could wait for.
    if (it->bytes < size || it->mark->event == nullptr || it->mark->is_frozen) continue;
    *after = it->mark;
    return note(take_piece(it, size), bytes);
  }
  return std::nullopt;
}

bool PoolSpace::take_at(std::uint64_t address, std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  const std::uint64_t end = address + size;
  const auto next_segment = segments_.upper_bound(address);
  if (next_segment == segments_.begin()) return false;
  auto& [start, segment] = *std::prev(next_segment);
  if (end > start + segment.bytes) return false;
  const auto next = living_.lower_bound(address);
  if (next != living_.end() && next->first < end) return false;
  if (next != living_.begin()) {
    const Allocation& before = std::prev(next)->second;
    if (before.start + rounded(before.bytes) > address) return false;
  }
  for (auto it = pending_.begin(); it != pending_.end();) {
    const std::uint64_t first = std::max(it->address, address);
    const std::uint64_t last = std::min(it->address + it->bytes, end);
    if (first >= last) {
      ++it;
      continue;
    }
    const Pending whole = *it;
    segment.free_space.put(first, last - first);
    it = pending_.erase(it);
    if (last < whole.address + whole.bytes) {
      it = pending_.insert(it, {last, whole.address + whole.bytes - last, whole.mark});
    }
    if (whole.address < first) {
      it = pending_.insert(it, {whole.address, first - whole.address, whole.mark});
    }
    // What was put in again is outside: the loop passes over it.
  }
  if (!segment.free_space.take_at(address, size)) return false;
  note(address, bytes);
  return true;
}

std::optional<PoolSpace::Allocation> PoolSpace::find(std::uint64_t address) const {
  auto it = living_.upper_bound(address);
  if (it == living_.begin()) return std::nullopt;
  --it;
  if (address >= it->first + it->second.bytes) return std::nullopt;
  return it->second;
}

bool PoolSpace::free(std::uint64_t address, FreeMarkPtr mark) {
  const auto it = living_.find(address);
  if (it == living_.end()) return false;
  const std::size_t size = rounded(it->second.bytes);
  living_.erase(it);
  note_allocation_end();
  used_ -= size;
  if (mark != nullptr && !mark->is_over) {
    pending_.push_back({address, size, std::move(mark)});
  } else {
    std::prev(segments_.upper_bound(address))->second.free_space.put(address, size);
  }
  return true;
}

void PoolSpace::settle() {
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (!it->mark->is_over) {
      ++it;
      continue;
    }
    std::prev(segments_.upper_bound(it->address))->second.free_space.put(it->address, it->bytes);
    it = pending_.erase(it);
  }
}

std::vector<FreeMarkPtr> PoolSpace::marks() const {
  std::vector<FreeMarkPtr> marks;
  for (const Pending& pending : pending_) {
    if (marks.empty() || marks.back() != pending.mark) marks.push_back(pending.mark);
  }
  return marks;
}

bool PoolSpace::has_unused(std::size_t keep_bytes) const {
  return std::any_of(segments_.begin(), segments_.end(), [&](const auto& entry) {
    const auto& [start, segment] = entry;
    const auto living = living_.lower_bound(start);
    return reserved_ >= keep_bytes + segment.bytes &&
           (living == living_.end() || living->first >= start + segment.bytes);
  });
}

std::vector<std::uint64_t> PoolSpace::trim(std::size_t keep_bytes) {
  std::vector<std::uint64_t> unused;
  for (auto it = segments_.begin(); it != segments_.end() && reserved_ > keep_bytes;) {
    const bool is_empty = it->second.free_space.free_bytes() == it->second.bytes;
    if (!is_empty || reserved_ - it->second.bytes < keep_bytes) {
      ++it;
      continue;
    }
    reserved_ -= it->second.bytes;
    unused.push_back(it->first);
    it = segments_.erase(it);
  }
  return unused;
}

}  // namespace plexrl::shim
