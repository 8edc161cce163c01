#include "tools/simgpu/driver/native_kernel.h"

#include <algorithm>
#include <cstring>

#include "shim/chunk_hash.h"
#include "tools/simgpu/driver/context.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/operation.h"
#include "tools/simgpu/driver/process_kernel.h"

namespace plexrl::simgpu {
namespace {

namespace chunk_hash = shim::chunk_hash;

/// Copies between host memory and what the device sees at `address`; false where that is nothing.
bool copy(int device, std::uint64_t address, std::byte* out, const std::byte* in,
          std::uint64_t bytes) {
  while (bytes > 0) {
    std::uint64_t contiguous = 0;
    std::byte* const memory = driver()->addresses.translate(device, address, &contiguous);
    if (memory == nullptr) return false;
    const std::uint64_t part = std::min(bytes, contiguous);
    if (out != nullptr) {
      std::memcpy(out, memory, part);
      out += part;
    } else {
      std::memcpy(memory, in, part);
      in += part;
    }
    address += part;
    bytes -= part;
  }
  return true;
}

struct HashParameters {
  std::uint64_t in, bytes, key, out, differs;
};

CUresult hash_chunk(const RunScope& scope, const ptx::LaunchConfig& config, NativeTime* time) {
  const int device = scope.context->device;
  HashParameters parameters;
  if (config.parameters.size() != sizeof parameters) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(&parameters, config.parameters.data(), sizeof parameters);
  const auto& [in, bytes, key_address, out, differs_address] = parameters;
  const std::size_t warps = std::size_t{config.grid[0]} * (config.block[0] / 32);
  const std::size_t blocks = std::min(chunk_hash::blocks(bytes), warps);
  std::byte key[chunk_hash::kKeyBytes];
  std::uint32_t first = 0;
  auto* const first_bytes = reinterpret_cast<std::byte*>(&first);
  if (!copy(device, key_address, key, nullptr, sizeof key) ||
      !copy(device, in, first_bytes, nullptr, sizeof first)) {
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  bool differs = false;
  std::byte split[chunk_hash::kBlockBytes];
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::uint64_t at = in + block * chunk_hash::kBlockBytes;
    const std::size_t length =
        std::min<std::size_t>(chunk_hash::kBlockBytes, bytes - block * chunk_hash::kBlockBytes);
    std::uint64_t contiguous = 0;
    const std::byte* memory = driver()->addresses.translate(device, at, &contiguous);
    if (memory == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (contiguous < length) {
      if (!copy(device, at, split, nullptr, length)) return CUDA_ERROR_ILLEGAL_ADDRESS;
      memory = split;
    }
    std::uint64_t sums[chunk_hash::kStreams];
    differs |= chunk_hash::hash_block(memory, length, key, first, sums);
    if (!copy(device, out + block * sizeof sums, nullptr, reinterpret_cast<std::byte*>(sums),
              sizeof sums)) {
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
  }
  time->bytes = bytes + blocks * chunk_hash::kOutBytes;
  if (differs_address == 0) return CUDA_SUCCESS;
  const std::uint32_t one = 1;
  const bool told = copy(device, differs_address + offsetof(chunk_hash::Repeat, first), nullptr,
                         first_bytes, sizeof first) &&
                    (!differs || copy(device, differs_address, nullptr,
                                      reinterpret_cast<const std::byte*>(&one), sizeof one));
  return told ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

std::byte* memory_of(int device, std::uint64_t address, std::uint64_t* contiguous) {
  const Addresses& addresses = driver()->addresses;
  if (addresses.in_arena(address)) return addresses.translate(device, address, contiguous);
  const auto range = addresses.find(address);
  if (!range) return nullptr;
  *contiguous = range->base + range->bytes - address;
  return reinterpret_cast<std::byte*>(address);
}

CUresult run_body(const RunScope& scope, const ptx::LaunchConfig& config, NativeTime* time) {
  ProcessKernelParameters parameters;
  if (config.parameters.size() != sizeof parameters) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(&parameters, config.parameters.data(), sizeof parameters);
  const ProcessKernelScope given{
      sizeof given,
      scope.context->device,
      scope.start_ns,
      &memory_of,
      [] { return !is_ready(); },
      [](int device, bool leaves, std::uint64_t bytes, std::uint64_t earliest) {
        const Direction direction = leaves ? Direction::kToHost : Direction::kToDevice;
        return driver()->machine->book_transfer(device, direction, bytes, earliest);
      }};
  return parameters.body(given, parameters.state, &time->waited_ns);
}

}  // namespace

const NativeKernel* native_kernel(const std::vector<std::string>& sources) {
  static constexpr NativeKernel kHash{&hash_chunk};
  static constexpr NativeKernel kProcess{&run_body};
  if (sources.size() != 1) return nullptr;
  // A text may end with the NUL that it came with.
  if (std::strcmp(sources[0].c_str(), chunk_hash::kPtx) == 0) return &kHash;
  return std::strcmp(sources[0].c_str(), kProcessKernelPtx) == 0 ? &kProcess : nullptr;
}

}  // namespace plexrl::simgpu
