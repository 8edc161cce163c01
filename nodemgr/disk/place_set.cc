#include "nodemgr/disk/place_set.h"

#include <algorithm>
#include <iterator>

namespace plexrl::nodemgr::disk {

void PlaceSet::add(std::uint64_t offset, std::uint64_t bytes) {
  remove(offset, bytes);
  if (bytes == 0) return;
  ends_[offset] = offset + bytes;
  bytes_ += bytes;
}

void PlaceSet::remove(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t end = offset + bytes;
  auto it = ends_.upper_bound(offset);
  if (it != ends_.begin()) --it;
  while (it != ends_.end() && it->first < end) {
    const auto [start, its_end] = *it;
    if (its_end <= offset) {
      ++it;
      continue;
    }
    it = ends_.erase(it);
    bytes_ -= std::min(its_end, end) - std::max(start, offset);
    if (start < offset) ends_[start] = offset;
    if (its_end > end) ends_[end] = its_end;
  }
}

std::uint64_t PlaceSet::missing(std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t end = offset + bytes;
  std::uint64_t found = 0;
  auto it = ends_.upper_bound(offset);
  if (it != ends_.begin()) --it;
  for (; it != ends_.end() && it->first < end; ++it) {
    const std::uint64_t from = std::max(it->first, offset);
    const std::uint64_t to = std::min(it->second, end);
    if (to > from) found += to - from;
  }
  return bytes - found;
}

}  // namespace plexrl::nodemgr::disk
