#include <cstdio>
#include <cstring>

#include "tools/simgpu/ptx/act.h"
#include "tools/simgpu/ptx/launch.h"

namespace plexrl::simgpu::ptx {
namespace {

/// Host address in a window of `limit` bytes, or nullptr.
std::byte* in_window(std::byte* memory, std::uint64_t limit, std::uint64_t offset,
                     std::size_t bytes) {
  return memory != nullptr && offset <= limit && bytes <= limit - offset ? memory + offset
                                                                         : nullptr;
}

}  // namespace

std::byte* slow_address(Warp& warp, std::uint64_t address, std::size_t bytes, int lane) {
  if (address - kSharedWindow < kWindowBytes) {
    return in_window(warp.shared, warp.shared_bytes, address - kSharedWindow, bytes);
  }
  if (address - kLocalWindow < kWindowBytes) {
    std::byte* const own = warp.local + static_cast<std::uint64_t>(lane) * warp.local_stride;
    return in_window(own, warp.local_stride, address - kLocalWindow, bytes);
  }
  if (address - kParamWindow < kWindowBytes) {
    return in_window(const_cast<std::byte*>(warp.kernel_params), warp.kernel_param_bytes,
                     address - kParamWindow, bytes);
  }
  if (address - kGridWindow < kGridWindowBytes) {
    return in_window(warp.grid_memory, kGridWindowBytes, address - kGridWindow, bytes);
  }
  const AddressSpace& memory = *warp.memory;
  return memory.host_range != nullptr ? memory.host_range(memory.context, address, bytes) : nullptr;
}

std::byte* generic_address(Warp& warp, std::uint64_t address, std::size_t bytes, int lane) {
  const AddressSpace& memory = *warp.memory;
  const std::uint64_t offset = address - memory.arena_base;
  if (offset >= memory.arena_bytes) return slow_address(warp, address, bytes, lane);
  const std::uint64_t page_bytes = 1ull << memory.page_shift;
  const std::uint64_t in_page = offset & (page_bytes - 1);
  if (in_page + bytes > page_bytes) return nullptr;
  std::byte* const host = memory.pages[offset >> memory.page_shift].load(std::memory_order_acquire);
  return host != nullptr ? host + in_page : nullptr;
}

std::string read_string(Warp& warp, std::uint64_t address, int lane) {
  std::string text;
  while (text.size() < 65536) {
    const std::byte* const at = generic_address(warp, address + text.size(), 1, lane);
    if (at == nullptr || *at == std::byte{0}) break;
    text += static_cast<char>(*at);
  }
  return text;
}

void raise_fault(Warp& warp, const Op* op, Fault::Kind kind, std::uint64_t address) {
  if (warp.event == Event::kFault) return;
  static constexpr const char* kNames[] = {"none", "illegal address",     "misaligned address",
                                           "trap", "illegal instruction", "assertion failed"};
  Fault& fault = warp.launch->fault;
  fault.kind = kind;
  fault.address = address;
  fault.line = op->line;
  fault.text = kNames[static_cast<int>(kind)];
  if (kind == Fault::Kind::kIllegalAddress || kind == Fault::Kind::kMisalignedAddress) {
    char digits[32];
    std::snprintf(digits, sizeof(digits), " 0x%llx", static_cast<unsigned long long>(address));
    fault.text += digits;
  }
  const Block& block = *warp.block;
  fault.text += " in kernel '" + warp.launch->entry->name + "', line " + std::to_string(op->line) +
                ", block (" + std::to_string(block.index[0]) + "," +
                std::to_string(block.index[1]) + "," + std::to_string(block.index[2]) + "), warp " +
                std::to_string(warp.index);
  warp.event = Event::kFault;
  warp.next = nullptr;
}

std::uint64_t clock_ns(const Warp& warp) {
  if (warp.clock_is_frozen) return warp.frozen_ns;
  const LaunchConfig& config = warp.launch->config;
  return config.now_ns != nullptr ? config.now_ns(config.now_context) : warp.instructions;
}

}  // namespace plexrl::simgpu::ptx
