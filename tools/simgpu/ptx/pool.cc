#include <cstring>

#include "tools/simgpu/ptx/program.h"

namespace plexrl::simgpu::ptx {

std::size_t Pool::allocate(int width) {
  const std::size_t offset = bytes_.size();
  bytes_.resize(offset + static_cast<std::size_t>(width) * kLanes);
  return offset;
}

void Pool::fill(std::size_t offset, std::uint64_t bits, int width) {
  std::byte* const to = (base_ != nullptr ? base_ + kHeaderBytes : bytes_.data()) + offset;
  for (int lane = 0; lane < kLanes; ++lane) {
    std::memcpy(to + lane * width, &bits, static_cast<std::size_t>(width));
  }
}

std::int32_t Pool::constant(std::uint64_t bits, int width) {
  if (width < 8) bits &= (1ull << (8 * width)) - 1;
  auto [it, is_new] = constants_[width == 8 ? 2 : width == 4 ? 1 : 0].try_emplace(bits, 0);
  if (is_new) {
    const std::size_t offset = allocate(width);
    fill(offset, bits, width);
    it->second = static_cast<std::int32_t>(offset) | kInPool;
  }
  return it->second + kHeaderBytes;
}

std::int32_t Pool::symbol(const std::string& name, std::int64_t addend, int width) {
  for (const SymbolSlot& slot : symbols_[name]) {
    if (slot.addend == addend && slot.width == width) {
      return (static_cast<std::int32_t>(slot.offset) | kInPool) + kHeaderBytes;
    }
  }
  const std::size_t offset = allocate(width);
  symbols_[name].push_back({offset, addend, width});
  return (static_cast<std::int32_t>(offset) | kInPool) + kHeaderBytes;
}

void Pool::freeze() {
  storage_.resize(bytes_.size() + kHeaderBytes + 64);
  auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
  base_ = storage_.data() + ((address + 63) / 64 * 64 - address);
  if (!bytes_.empty()) std::memcpy(base_ + kHeaderBytes, bytes_.data(), bytes_.size());
  bytes_.clear();
  bytes_.shrink_to_fit();
}

void Pool::set_symbol(const std::string& name, std::uint64_t address) {
  const auto it = symbols_.find(name);
  if (it == symbols_.end()) return;
  for (const SymbolSlot& slot : it->second) {
    fill(slot.offset, address + static_cast<std::uint64_t>(slot.addend), slot.width);
  }
}

}  // namespace plexrl::simgpu::ptx
