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

}  // namespace

bool RangeTable::pin(std::uint64_t address, std::size_t bytes, const char* reason,
                     std::uint64_t* fresh) {
  const std::lock_guard lock(mutex_);
  Range* const range = around(address);
  if (range == nullptr || range->backing == Backing::kImported || bytes == 0 ||
      bytes > range->start + range->mapped_bytes - address) {
    return false;
  }
  bool is_there = true;
  for_chunks(*range, address, bytes, [&](const Chunk& chunk) {
    // kMoving: somebody has claimed all of it to change where it is mapped; with the gate open
    // nothing leaves.
    is_there =
        is_there && (chunk.state == ChunkState::kResident || chunk.state == ChunkState::kMoving);
  });
  if (!is_there) return false;
  *fresh = 0;
  for_chunks(*range, address, bytes, [&](Chunk& chunk) {
    if (chunk.pins++ == 0) *fresh += chunk.bytes;
  });
  totals_of(*range).pinned += *fresh;
  if (range->pin_reason == nullptr) range->pin_reason = reason;
  return true;
}

std::uint64_t RangeTable::unpin(std::uint64_t address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Range* const range = around(address);
  if (range == nullptr) return 0;
  std::uint64_t loose = 0;
  for_chunks(*range, address, bytes, [&](Chunk& chunk) {
    if (chunk.pins == 0 || --chunk.pins != 0) return;
    loose += chunk.bytes;
    chunk.written = true;  // by whomever it was pinned for, whether or not a gate was open
  });
  totals_of(*range).pinned -= loose;
  const bool is_pinned = std::any_of(range->chunks.begin(), range->chunks.end(),
                                     [](const Chunk& chunk) { return chunk.pins != 0; });
  if (!is_pinned) range->pin_reason = nullptr;
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
    const char* const reason = range->pin_reason;
    if (range->device != device || reason == nullptr) continue;
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) {
      reasons.push_back(reason);
    }
  }
  return reasons;
}

}  // namespace plexrl::shim
