#include "shim/suballocator.h"

#include <algorithm>
#include <iterator>

#include "shim/allocation_ends.h"

namespace plexrl::shim {
namespace {

std::size_t rounded(std::size_t bytes) noexcept {
  const std::size_t mask = Suballocator::kAlignment - 1;
  return (std::max<std::size_t>(bytes, 1) + mask) & ~mask;
}

}  // namespace

std::optional<Suballocator::Allocation> Suballocator::allocate(std::size_t bytes) {
  for (auto& [start, block] : blocks_) {
    const auto address = block.space.take(rounded(bytes));
    if (!address) continue;
    const Allocation allocation{*address, bytes, start, next_identifier_++};
    allocations_.emplace(*address, allocation);
    ++block.allocations;
    return allocation;
  }
  return std::nullopt;
}

void Suballocator::add_block(std::uint64_t start) { blocks_[start].space.add(start, kBlockBytes); }

std::optional<Suballocator::Allocation> Suballocator::find(std::uint64_t address) const {
  auto it = allocations_.upper_bound(address);
  if (it == allocations_.begin()) return std::nullopt;
  --it;
  if (address >= it->first + it->second.bytes) return std::nullopt;
  return it->second;
}

std::optional<std::uint64_t> Suballocator::free(std::uint64_t address, bool* found) {
  const auto it = allocations_.find(address);
  *found = it != allocations_.end();
  if (!*found) return std::nullopt;
  const Allocation allocation = it->second;
  allocations_.erase(it);
  note_allocation_end();
  Block& block = blocks_.at(allocation.block);
  block.space.put(address, rounded(allocation.bytes));
  if (--block.allocations != 0) return std::nullopt;
  blocks_.erase(allocation.block);
  return allocation.block;
}

}  // namespace plexrl::shim
