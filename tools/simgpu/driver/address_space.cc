#include "tools/simgpu/driver/address_space.h"

#include <sys/mman.h>

#include <algorithm>

#include "tools/simgpu/driver/texture_object.h"
#include "tools/simgpu/driver/vmm.h"

namespace plexrl::simgpu {
namespace {

constexpr unsigned kPageShift = 21;
static_assert(kFrameBytes == 1ull << kPageShift);

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

bool Addresses::initialise(int devices) {
  void* arena = mmap(nullptr, kArenaBytes + kFrameBytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) return false;
  arena_ = round_up(reinterpret_cast<std::uint64_t>(arena), kFrameBytes);
  free_[arena_] = kArenaBytes;
  constexpr std::size_t kTableBytes = (kArenaBytes >> kPageShift) * sizeof(std::atomic<std::byte*>);
  for (int i = 0; i < devices; ++i) {
    void* table = mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED) return false;
    tables_.push_back(static_cast<std::atomic<std::byte*>*>(table));
    ptx::AddressSpace view;
    view.arena_base = arena_;
    view.arena_bytes = kArenaBytes;
    view.page_shift = kPageShift;
    view.pages = tables_.back();
    view.host_range = host_range;
    view.find_texture = [](void*, std::uint64_t number) {
      const auto found = find_texture(number);
      return std::shared_ptr<const ptx::Texture>(found, found ? &found->texture : nullptr);
    };
    view.find_surface = [](void*, std::uint64_t number) {
      const auto found = find_surface(number);
      return std::shared_ptr<const ptx::TexelArray>(found, found ? &found->texels : nullptr);
    };
    view.find_replicas = [](void*, int device, std::uint64_t address, std::size_t bytes,
                            std::byte** out) { return find_replicas(device, address, bytes, out); };
    view.device = i;
    view.context = this;
    views_.push_back(view);
  }
  return true;
}

std::uint64_t Addresses::reserve(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t hint) {
  const std::uint64_t size = round_up(bytes, kFrameBytes);
  const std::uint64_t unit = std::max(alignment, kFrameBytes);
  const std::unique_lock lock(mutex_);
  auto take = [&](std::map<std::uint64_t, std::uint64_t>::iterator hole, std::uint64_t base) {
    const std::uint64_t start = hole->first;
    const std::uint64_t end = start + hole->second;
    free_.erase(hole);
    if (base > start) free_[start] = base - start;
    if (base + size < end) free_[base + size] = end - base - size;
    return base;
  };
  if (hint != 0 && hint % unit == 0) {
    auto hole = free_.upper_bound(hint);
    if (hole != free_.begin()) {
      --hole;
      if (hint + size <= hole->first + hole->second) return take(hole, hint);
    }
  }
  for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
    const std::uint64_t base = round_up(hole->first, unit);
    if (base + size <= hole->first + hole->second) return take(hole, base);
  }
  return 0;
}

void Addresses::unreserve(std::uint64_t base, std::uint64_t bytes) {
  std::uint64_t start = base;
  std::uint64_t end = base + round_up(bytes, kFrameBytes);
  const std::unique_lock lock(mutex_);
  auto next = free_.lower_bound(start);
  if (next != free_.end() && next->first == end) {
    end += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == start) {
      start = before->first;
      free_.erase(before);
    }
  }
  free_[start] = end - start;
}

bool Addresses::is_reserved(std::uint64_t base, std::uint64_t bytes) const {
  if (base < arena_ || bytes > kArenaBytes || base + bytes > arena_ + kArenaBytes) return false;
  const std::shared_lock lock(mutex_);
  const auto after = free_.lower_bound(base + 1);
  if (after != free_.end() && after->first < base + bytes) return false;
  if (after == free_.begin()) return true;
  const auto before = std::prev(after);
  return before->first + before->second <= base;
}

void Addresses::map(int device, std::uint64_t base, const std::vector<std::byte*>& frames) {
  std::atomic<std::byte*>* entry =
      tables_[static_cast<std::size_t>(device)] + ((base - arena_) >> kPageShift);
  for (std::byte* frame : frames) (entry++)->store(frame, std::memory_order_release);
}

void Addresses::unmap(int device, std::uint64_t base, std::uint64_t bytes) {
  std::atomic<std::byte*>* entry =
      tables_[static_cast<std::size_t>(device)] + ((base - arena_) >> kPageShift);
  for (std::uint64_t done = 0; done < bytes; done += kFrameBytes)
    (entry++)->store(nullptr, std::memory_order_release);
}

void Addresses::hide_from_host(std::uint64_t base, std::uint64_t bytes) {
  mmap(reinterpret_cast<void*>(base), bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void Addresses::share(int from, int to, std::uint64_t base, std::uint64_t bytes) {
  for (std::uint64_t page = (base - arena_) >> kPageShift;
       page <= (base + bytes - 1 - arena_) >> kPageShift; ++page) {
    tables_[static_cast<std::size_t>(to)][page].store(
        tables_[static_cast<std::size_t>(from)][page].load(), std::memory_order_release);
  }
}

void Addresses::move_frames(int device, const std::map<std::byte*, std::byte*>& moved) {
  for (std::uint64_t page = 0; page < kArenaBytes >> kPageShift; ++page) {
    std::atomic<std::byte*>& entry = tables_[static_cast<std::size_t>(device)][page];
    std::byte* const frame = entry.load(std::memory_order_relaxed);
    if (frame == nullptr) continue;
    const auto found = moved.find(frame);
    if (found != moved.end()) entry.store(found->second, std::memory_order_release);
  }
}

bool Addresses::has(Range::Kind kind) const {
  const std::shared_lock lock(mutex_);
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const auto& entry) { return entry.second.kind == kind; });
}

void Addresses::add(const Range& range) {
  const std::unique_lock lock(mutex_);
  ranges_[range.base] = range;
}

bool Addresses::remove(std::uint64_t base, Range* removed) {
  const std::unique_lock lock(mutex_);
  const auto found = ranges_.find(base);
  if (found == ranges_.end()) return false;
  if (removed != nullptr) *removed = found->second;
  ranges_.erase(found);
  return true;
}

std::optional<Range> Addresses::find(std::uint64_t address) const {
  const std::shared_lock lock(mutex_);
  auto found = ranges_.upper_bound(address);
  if (found == ranges_.begin()) return std::nullopt;
  --found;
  if (address - found->second.base >= found->second.bytes) return std::nullopt;
  return found->second;
}

std::vector<Range> Addresses::ranges_of(const void* context) const {
  const std::shared_lock lock(mutex_);
  std::vector<Range> result;
  for (const auto& [base, range] : ranges_) {
    if (range.context == context) result.push_back(range);
  }
  return result;
}

std::byte* Addresses::host_range(void* self, std::uint64_t address, std::size_t bytes) {
  const auto range = static_cast<Addresses*>(self)->find(address);
  if (!range || (range->kind != Range::Kind::kHost && range->kind != Range::Kind::kHostRegistered))
    return nullptr;
  if (address + bytes > range->base + range->bytes) return nullptr;
  return reinterpret_cast<std::byte*>(address);
}

std::byte* Addresses::translate(int device, std::uint64_t address,
                                std::uint64_t* contiguous) const {
  if (in_arena(address)) {
    const std::uint64_t page = (address - arena_) >> kPageShift;
    std::byte* host =
        tables_[static_cast<std::size_t>(device)][page].load(std::memory_order_acquire);
    if (host == nullptr) return nullptr;
    const std::uint64_t offset = address & (kFrameBytes - 1);
    *contiguous = kFrameBytes - offset;
    return host + offset;
  }
  const auto range = find(address);
  if (!range || (range->kind != Range::Kind::kHost && range->kind != Range::Kind::kHostRegistered))
    return nullptr;
  *contiguous = range->base + range->bytes - address;
  return reinterpret_cast<std::byte*>(address);
}

}  // namespace plexrl::simgpu
