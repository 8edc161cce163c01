#include "tools/simgpu/driver/occupancy.h"

#include <algorithm>

namespace plexrl::simgpu {
namespace {

constexpr int kRegistersPerWarpUnit = 256;

constexpr Architecture kSm75 = {1024, 16, 65536, 64 << 10, 48 << 10, 64 << 10, 0, 256};
constexpr Architecture kSm80 = {2048, 32, 65536, 164 << 10, 48 << 10, 163 << 10, 1 << 10, 128};
constexpr Architecture kSm90 = {2048, 32, 65536, 228 << 10, 48 << 10, 227 << 10, 1 << 10, 128};

template <typename T>
T round_up(T value, T unit) {
  return (value + unit - 1) / unit * unit;
}

int warps_of(int threads) { return (threads + kWarp - 1) / kWarp; }

}  // namespace

const Architecture& architecture(int sm) { return sm >= 90 ? kSm90 : sm >= 80 ? kSm80 : kSm75; }

int registers_of(const ptx::KernelInfo& kernel, const Architecture& device) {
  const int threads = std::clamp(kernel.max_threads, 1, kMaxThreadsPerBlock);
  const int most = device.registers_per_sm / round_up(threads, kWarp) / 8 * 8;
  return std::min({std::max(kernel.registers, 1), most, 255});
}

int blocks_per_sm(const ptx::KernelInfo& kernel, const Architecture& device, int threads,
                  std::size_t dynamic_shared) {
  if (threads < 1 || threads > std::min(kernel.max_threads, kMaxThreadsPerBlock)) return 0;
  const int warps = warps_of(threads);
  int blocks = std::min(device.blocks_per_sm, device.threads_per_sm / (warps * kWarp));
  const int per_warp = round_up(registers_of(kernel, device) * kWarp, kRegistersPerWarpUnit);
  blocks = std::min(blocks, device.registers_per_sm / per_warp / warps);
  const std::size_t shared = round_up(
      kernel.static_shared_bytes + dynamic_shared + device.shared_reserved, device.shared_unit);
  if (shared > 0)
    blocks = static_cast<int>(std::min<std::size_t>(blocks, device.shared_per_sm / shared));
  return blocks;
}

std::size_t dynamic_shared_for(const ptx::KernelInfo& kernel, const Architecture& device,
                               int blocks, int threads) {
  if (blocks < 1 || blocks_per_sm(kernel, device, threads, 0) < blocks) return 0;
  const std::size_t each = device.shared_per_sm / static_cast<std::size_t>(blocks) /
                           device.shared_unit * device.shared_unit;
  const std::size_t taken = kernel.static_shared_bytes + device.shared_reserved;
  const std::size_t most = device.shared_per_block_opt_in -
                           std::min(device.shared_per_block_opt_in, kernel.static_shared_bytes);
  return each <= taken ? 0 : std::min(each - taken, most);
}

}  // namespace plexrl::simgpu
