#include "tools/simgpu/driver/small_blocks.h"

#include <iterator>

#include "tools/simgpu/driver/machine.h"

namespace plexrl::simgpu {

SmallBlocks::SmallBlocks(std::function<std::uint64_t()> make,
                         std::function<void(std::uint64_t)> drop)
    : make_(std::move(make)), drop_(std::move(drop)) {}

std::uint64_t SmallBlocks::allocate(std::uint64_t bytes) {
  const std::uint64_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const auto take = [&](Block& block) -> std::uint64_t {
    for (auto hole = block.holes.begin(); hole != block.holes.end(); ++hole) {
      if (hole->second < size) continue;
      const std::uint64_t address = hole->first;
      const std::uint64_t left = hole->second - size;
      block.holes.erase(hole);
      if (left > 0) block.holes[address + size] = left;
      block.used += size;
      living_[address] = size;
      return address;
    }
    return 0;
  };
  for (auto& [base, block] : blocks_) {
    if (const std::uint64_t address = take(block); address != 0) return address;
  }
  const std::uint64_t base = make_();
  if (base == 0) return 0;
  Block& block = blocks_[base];
  block.holes[base] = kFrameBytes;
  return take(block);
}

bool SmallBlocks::free(std::uint64_t address) {
  const auto found = living_.find(address);
  if (found == living_.end()) return false;
  std::uint64_t start = address;
  std::uint64_t end = address + found->second;
  const auto owner = std::prev(blocks_.upper_bound(address));
  Block& block = owner->second;
  block.used -= found->second;
  living_.erase(found);
  if (block.used == 0) {
    const std::uint64_t base = owner->first;
    blocks_.erase(owner);
    drop_(base);
    return true;
  }
  auto next = block.holes.lower_bound(start);
  if (next != block.holes.end() && next->first == end) {
    end += next->second;
    next = block.holes.erase(next);
  }
  if (next != block.holes.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == start) {
      start = before->first;
      block.holes.erase(before);
    }
  }
  block.holes[start] = end - start;
  return true;
}

}  // namespace plexrl::simgpu
