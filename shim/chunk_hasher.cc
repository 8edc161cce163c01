#include "shim/chunk_hasher.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "interpose/driver.h"
#include "shim/chunk_hash.h"
#include "shim/log.h"
#include "shim/stream_end.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "chunk_hasher";

/// What a chunk's hash ends as: in host memory, where the kernel writes it, because a copy of it
/// would queue behind those of whole chunks.
struct Slot {
  ChunkHasher::Digest digest;
  chunk_hash::Repeat repeat;
  std::uint64_t padding[3];
};
static_assert(sizeof(Slot) == 64);

// The device memory: keys, and the outputs of the levels but the last.
constexpr std::size_t kAligned = 256;
constexpr std::size_t kKeyStride =
    (chunk_hash::kKeyBytes + kAligned - 1) / kAligned * kAligned;  // by level
constexpr std::size_t kKeysBytes = kKeyStride * chunk_hash::kMostLevels;
constexpr std::size_t kSlotsBytes = ChunkHasher::kSlots * sizeof(Slot);
constexpr std::size_t kFirstOut =
    chunk_hash::blocks(ChunkHasher::kLargestBytes) * chunk_hash::kOutBytes;
constexpr std::size_t kLevelsBytes =
    2 * kFirstOut;  // each level is less than half of the one before
constexpr std::size_t kMemoryBytes = kKeysBytes + kLevelsBytes;
static_assert(kMemoryBytes < std::size_t{2} << 20);

/// The same in every context of the process, never shown. Null: no random numbers.
const std::byte* keys() noexcept {
  static std::byte* const made = []() -> std::byte* {
    static std::byte bytes[kKeysBytes];
    const int saved_errno = errno;
    std::size_t done = 0;
    while (done < sizeof bytes) {
      const ssize_t got = ::getrandom(bytes + done, sizeof bytes - done, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    errno = saved_errno;
    return done == sizeof bytes ? bytes : nullptr;
  }();
  return made;
}

}  // namespace

bool ChunkHasher::open() noexcept {
  if (module_ != nullptr) return true;
  if (prepare()) return true;
  close();
  PLEXRL_INFO(kFile, "can't hash chunks on the device, copying all of them");
  return false;
}

bool ChunkHasher::prepare() noexcept {
  const std::byte* const key = keys();
  if (key == nullptr) return false;
  if (driver.cuModuleLoadData(&module_, chunk_hash::kPtx) != CUDA_SUCCESS) {
    module_ = nullptr;
    return false;
  }
  void* host = nullptr;
  if (driver.cuModuleGetFunction(&kernel_, module_, chunk_hash::kName) != CUDA_SUCCESS ||
      driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
      driver.cuMemAlloc_v2(&memory_, kMemoryBytes) != CUDA_SUCCESS ||
      driver.cuMemHostAlloc(&host, kKeysBytes + kSlotsBytes, CU_MEMHOSTALLOC_DEVICEMAP) !=
          CUDA_SUCCESS) {
    return false;
  }
  host_ = static_cast<std::byte*>(host);
  if (driver.cuMemHostGetDevicePointer_v2(&slots_, host_ + kKeysBytes, 0) != CUDA_SUCCESS) {
    return false;
  }
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    if (driver.cuEventCreate(&events_[slot], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC) !=
        CUDA_SUCCESS) {
      events_[slot] = nullptr;
      return false;
    }
    free_slots_.push_back(slot);
  }
  std::memcpy(host_, key, kKeysBytes);
  return driver.cuMemcpyHtoDAsync_v2(memory_, host_, kKeysBytes, stream_) == CUDA_SUCCESS &&
         wait_for(stream_) == CUDA_SUCCESS;
}

void ChunkHasher::close() noexcept {
  for (CUevent& event : events_) {
    if (event != nullptr) driver.cuEventDestroy_v2(event);
    event = nullptr;
  }
  free_slots_.clear();
  if (stream_ != nullptr) driver.cuStreamDestroy_v2(stream_);
  if (host_ != nullptr) driver.cuMemFreeHost(host_);
  if (memory_ != 0) driver.cuMemFree_v2(memory_);
  if (module_ != nullptr) driver.cuModuleUnload(module_);
  stream_ = nullptr;
  host_ = nullptr;
  memory_ = 0;
  module_ = nullptr;
  kernel_ = nullptr;
}

std::optional<std::size_t> ChunkHasher::start(CUdeviceptr address, std::size_t bytes) noexcept {
  if (bytes > kLargestBytes || free_slots_.empty()) return std::nullopt;
  const std::size_t slot = free_slots_.back();
  if (!enqueue(address, bytes, slot)) {
    wait_for(stream_);  // a part of it may be reading the chunk
    return std::nullopt;
  }
  free_slots_.pop_back();
  return slot;
}

bool ChunkHasher::enqueue(CUdeviceptr address, std::size_t bytes, std::size_t slot) noexcept {
  std::memset(host_ + kKeysBytes + slot * sizeof(Slot), 0, sizeof(Slot));
  const std::uint64_t result = slots_ + slot * sizeof(Slot);
  std::uint64_t differs = result + offsetof(Slot, repeat);
  std::uint64_t in = address;
  std::uint64_t length = bytes;
  std::uint64_t scratch = memory_ + kKeysBytes;
  for (std::size_t level = 0;; ++level) {
    const std::size_t blocks = chunk_hash::blocks(length);
    const bool is_last = blocks == 1;
    std::uint64_t key = memory_ + level * kKeyStride;
    std::uint64_t out = is_last ? result : scratch;
    void* arguments[] = {&in, &length, &key, &out, &differs};
    const auto grid = static_cast<unsigned>((blocks + chunk_hash::kWarpsPerGridBlock - 1) /
                                            chunk_hash::kWarpsPerGridBlock);
    if (driver.cuLaunchKernel(kernel_, grid, 1, 1, chunk_hash::kThreads, 1, 1, 0, stream_,
                              arguments, nullptr) != CUDA_SUCCESS) {
      return false;
    }
    if (is_last) break;
    in = out;
    length = blocks * chunk_hash::kOutBytes;
    scratch += length;
    differs = 0;
  }
  return driver.cuEventRecord(events_[slot], stream_) == CUDA_SUCCESS;
}

CUresult ChunkHasher::wait(std::size_t slot, Result* result) noexcept {
  const CUresult waited = wait_for(events_[slot], stream_);
  free_slots_.push_back(slot);
  if (waited != CUDA_SUCCESS) return waited;
  Slot found;
  std::memcpy(&found, host_ + kKeysBytes + slot * sizeof(Slot), sizeof found);
  *result = {found.digest, found.repeat.differs == 0, found.repeat.first};
  return CUDA_SUCCESS;
}

}  // namespace plexrl::shim
