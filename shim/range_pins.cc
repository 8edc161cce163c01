#include <algorithm>

#include "shim/range_table.h"

/// What keeps chunks in HBM.

namespace plexrl::shim {
namespace {

/// Calls `each` for the chunks that the bytes at `address` lie in.
template <typename Each>
void for_chunks(Range& range, std::uint64_t address, std::size_t bytes, Each each) {
  const std::size_t first = address - range.start;
  for (Chunk& chunk : range.chunks) {
    if (chunk.offset < first + bytes && first < chunk.offset + chunk.bytes) each(chunk);
  }
}

/// How often the range is pinned for this reason.
std::uint32_t& count_of(Range& range, const PinReason& reason) {
  for (auto& [known, count] : range.pin_reasons) {
    if (known == &reason) return count;
  }
  return range.pin_reasons.emplace_back(&reason, 0).second;
}

}  // namespace

std::optional<RangeTable::Pinned> RangeTable::pin(std::uint64_t address, std::size_t bytes,
                                                  const PinReason& reason) {
  const std::lock_guard lock(mutex_);
  Range* const range = around(address);
  if (range == nullptr || range->backing == Backing::kImported || bytes == 0 ||
      bytes > range->start + range->mapped_bytes - address) {
    return std::nullopt;
  }
  bool is_there = true;
  for_chunks(*range, address, bytes, [&](const Chunk& chunk) {
    // kMoving: somebody has claimed all of it to change where it is mapped; with the gate open
    // nothing leaves.
    is_there =
        is_there && (chunk.state == ChunkState::kResident || chunk.state == ChunkState::kMoving);
  });
  if (!is_there) return std::nullopt;
  ++count_of(*range, reason);
  Pinned pinned{range->identifier, 0};
  for_chunks(*range, address, bytes, [&](Chunk& chunk) {
    if (chunk.pins++ == 0) pinned.fresh += chunk.bytes;
  });
  totals_of(*range).pinned += pinned.fresh;
  return pinned;
}

std::uint64_t RangeTable::unpin(std::uint64_t address, std::size_t bytes, std::uint64_t identifier,
                                const PinReason& reason) {
  const std::lock_guard lock(mutex_);
  Range* const range = around(address);
  if (range == nullptr || range->identifier != identifier) return 0;
  std::uint64_t loose = 0;
  for_chunks(*range, address, bytes, [&](Chunk& chunk) {
    if (chunk.pins == 0 || --chunk.pins != 0) return;
    loose += chunk.bytes;
    chunk.written = true;  // by whomever it was pinned for, whether or not a gate was open
  });
  totals_of(*range).pinned -= loose;
  --count_of(*range, reason);
  std::erase_if(range->pin_reasons, [](const auto& pins) { return pins.second == 0; });
  return loose;
}

bool RangeTable::is_pinned(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  Range* const range = around(address);
  if (range == nullptr) return false;
  bool is_pinned = false;
  for_chunks(*range, address, 1, [&](const Chunk& chunk) { is_pinned = chunk.pins != 0; });
  return is_pinned;
}

std::vector<const char*> RangeTable::pin_reasons(CUdevice device) const {
  const std::lock_guard lock(mutex_);
  std::vector<const char*> reasons;
  for (const auto& [start, range] : ranges_) {
    if (range->device != device) continue;
    for (const auto& [reason, count] : range->pin_reasons) {
      if (std::find(reasons.begin(), reasons.end(), reason->text) == reasons.end()) {
        reasons.push_back(reason->text);
      }
    }
  }
  return reasons;
}

std::array<RangeTable::Totals, wire::kMemoryKinds> RangeTable::shown_totals(CUdevice device) const {
  const std::lock_guard lock(mutex_);
  std::array<Totals, wire::kMemoryKinds> shown;
  for (const auto& [key, totals] : totals_) {
    if (key.first == device) shown.at(static_cast<std::size_t>(key.second)) = totals;
  }
  for (const auto& [start, range] : ranges_) {
    if (range->device != device || range->pin_reasons.empty()) continue;
    // The oldest of the reasons that have a kind of their own.
    const auto named = std::find_if(range->pin_reasons.begin(), range->pin_reasons.end(),
                                    [](const auto& pins) { return pins.first->kind.has_value(); });
    if (named == range->pin_reasons.end()) continue;
    Totals& own = shown.at(static_cast<std::size_t>(range->kind));
    Totals& other = shown.at(static_cast<std::size_t>(*named->first->kind));
    for (const Chunk& chunk : range->chunks) {
      if (chunk.pins == 0) continue;
      own.pinned -= chunk.bytes;
      other.pinned += chunk.bytes;
      bucket(own, chunk.state) -= chunk.bytes;
      bucket(other, chunk.state) += chunk.bytes;
    }
  }
  return shown;
}

}  // namespace plexrl::shim
