#include "shim/range_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "interpose/driver.h"

#include "shim/allocation_ends.h"

namespace plexrl::shim {
namespace {

constexpr std::size_t kLargestPiece = std::size_t{1} << 30;
/// Address space costs nothing but page-table roots; a large arena keeps the reservations few.
constexpr std::size_t kArenaBytes = std::size_t{64} << 30;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

bool may_be_exported(const Range& range) {
  return range.properties && range.properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
}

bool is_missing(ChunkState state) {
  return state == ChunkState::kUnbacked || state == ChunkState::kHost ||
         state == ChunkState::kRepeated || state == ChunkState::kDisk;
}

int dearness(const Chunk& chunk) {
  if (!chunk.written) return 0;
  return chunk.has_digest ? 1 : 2;
}

}  // namespace

RangeTable& ranges() {
  static RangeTable& instance = *new RangeTable;
  return instance;
}

std::size_t RangeTable::Claim::bytes() const {
  std::size_t sum = 0;
  for (std::size_t i = first; i < first + count; ++i) sum += range->chunks[i].bytes;
  return sum;
}

void RangeTable::set_geometry(std::size_t chunk_bytes, std::size_t granularity) {
  const std::lock_guard lock(mutex_);
  granularity_ = std::max(granularity_, granularity);
  chunk_bytes_ = round_up(std::max(chunk_bytes, granularity_), granularity_);
}

void RangeTable::set_whole_exports(bool whole) {
  const std::lock_guard lock(mutex_);
  has_whole_exports_ = whole;
}

std::size_t RangeTable::mapped_size(std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return round_up(bytes, granularity_);
}

CUresult RangeTable::grow(std::size_t bytes) {
  CUdeviceptr start = 0;
  for (std::size_t size = std::max(kArenaBytes, bytes); size >= bytes; size /= 2) {
    if (driver.cuMemAddressReserve(&start, size, 0, 0, 0) == CUDA_SUCCESS) {
      const std::lock_guard lock(mutex_);
      arena_.add(start, size);
      reserved_[start] = size;
      lowest_.store(std::min<std::uint64_t>(lowest_, start));
      highest_.store(std::max<std::uint64_t>(highest_, start + size));
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult RangeTable::reserve(CUdevice device, CUcontext context, std::size_t bytes,
                             bool is_shared_block, Range** out, wire::MemoryKind kind,
                             const CUmemAllocationProp* properties) {
  auto range = std::make_unique<Range>();
  range->bytes = bytes;
  range->mapped_bytes = mapped_size(bytes);
  range->device = device;
  range->context = context;
  range->kind = kind;
  if (properties != nullptr) range->properties = *properties;
  range->is_shared_block = is_shared_block;
  std::size_t unit = 0;
  {
    const std::lock_guard lock(mutex_);
    // One descriptor names one piece; unless that would be too large a unit to move.
    const bool is_one_piece =
        may_be_exported(*range) && (has_whole_exports_ || range->mapped_bytes <= kLargestPiece);
    unit = is_one_piece ? range->mapped_bytes : chunk_bytes_;
  }
  return place(std::move(range), unit, out);
}

CUresult RangeTable::reserve_import(CUdevice device, std::size_t bytes, std::size_t chunk_bytes,
                                    const std::vector<CUmemAccessDesc>& access, Range** out) {
  auto range = std::make_unique<Range>();
  range->bytes = bytes;
  range->mapped_bytes = bytes;
  range->device = device;
  range->kind = wire::MemoryKind::kIpc;
  range->backing = Backing::kImported;
  range->access = access;
  return place(std::move(range), chunk_bytes, out);
}

CUresult RangeTable::place(std::unique_ptr<Range> range, std::size_t chunk_bytes, Range** out) {
  for (std::size_t offset = 0; offset < range->mapped_bytes; offset += chunk_bytes) {
    Chunk chunk;
    chunk.offset = offset;
    chunk.bytes = std::min(chunk_bytes, range->mapped_bytes - offset);
    range->chunks.push_back(chunk);
  }
  std::unique_lock lock(mutex_);
  auto start = arena_.take(range->mapped_bytes);
  while (!start) {
    lock.unlock();
    const CUresult result = grow(range->mapped_bytes);
    if (result != CUDA_SUCCESS) return result;
    lock.lock();
    start = arena_.take(range->mapped_bytes);
  }
  range->start = *start;
  range->identifier = next_identifier_++;
  totals_of(*range).unbacked += range->mapped_bytes;
  *out = range.get();
  ranges_.emplace(range->start, std::move(range));
  return CUDA_SUCCESS;
}

Range* RangeTable::at(std::uint64_t start) const {
  const auto it = ranges_.find(start);
  return it == ranges_.end() ? nullptr : it->second.get();
}

std::optional<RangeTable::Layout> RangeTable::layout(std::uint64_t start) const {
  const std::lock_guard lock(mutex_);
  const Range* const range = at(start);
  if (range == nullptr) return std::nullopt;
  return Layout{range->device, range->mapped_bytes, range->chunks[0].bytes, range->chunks.size()};
}

void RangeTable::set_export(std::uint64_t start, std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  if (Range* const range = at(start)) range->export_id = id;
}

void RangeTable::hide(std::uint64_t start) {
  const std::lock_guard lock(mutex_);
  if (Range* const range = at(start)) range->is_hidden = true;
}

std::optional<RangeTable::Description> RangeTable::describe(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return std::nullopt;
  const Range& range = *std::prev(it)->second;
  if (range.is_hidden || address >= range.start + range.bytes) return std::nullopt;
  return Description{range.start,      range.bytes,           range.device, range.context,
                     range.identifier, range.is_shared_block, range.kind};
}

std::vector<std::uint64_t> RangeTable::starts_of(CUcontext context) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> starts;
  for (const auto& [start, range] : ranges_) {
    if (range->context == context) starts.push_back(start);
  }
  return starts;
}

std::vector<std::uint64_t> RangeTable::starts_on(CUdevice device) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> starts;
  for (const auto& [start, range] : ranges_) {
    if (range->device == device) starts.push_back(start);
  }
  return starts;
}

std::unique_ptr<Range> RangeTable::remove(std::uint64_t start, std::size_t* freed_bytes,
                                          std::size_t* pinned_bytes) {
  const std::lock_guard lock(mutex_);
  *freed_bytes = 0;
  if (pinned_bytes != nullptr) *pinned_bytes = 0;
  const auto it = ranges_.find(start);
  if (it == ranges_.end()) return nullptr;
  std::unique_ptr<Range> range = std::move(it->second);
  ranges_.erase(it);
  note_allocation_end();
  *freed_bytes = range->mapped_bytes;
  if (range->is_unsure) --unsure_;
  for (const Chunk& chunk : range->chunks) {
    bucket(totals_of(*range), chunk.state) -= chunk.bytes;
    if (chunk.pins == 0) continue;
    totals_of(*range).pinned -= chunk.bytes;
    if (pinned_bytes != nullptr) *pinned_bytes += chunk.bytes;
  }
  if (range->claims == 0) return range;
  range->doomed = true;
  doomed_.push_back(std::move(range));
  return nullptr;
}

void RangeTable::return_addresses(const Range& range) {
  const std::lock_guard lock(mutex_);
  arena_.put(range.start, range.mapped_bytes);
}

template <typename Wanted>
std::optional<RangeTable::Claim> RangeTable::claim_first(CUdevice device, std::size_t max_chunks,
                                                         Wanted is_wanted) {
  for (auto& [start, range] : ranges_) {
    if (range->device != device || range->backing == Backing::kImported) continue;
    auto& chunks = range->chunks;
    const auto wanted = [&](const Chunk& chunk) { return is_wanted(*range, chunk); };
    const auto first = std::find_if(chunks.begin(), chunks.end(), wanted);
    if (first == chunks.end()) continue;
    Claim claim{range.get(), static_cast<std::size_t>(first - chunks.begin()), 0, {}};
    for (auto it = first; it != chunks.end() && wanted(*it) && claim.count < max_chunks; ++it) {
      claim.came_from.push_back(it->state);
      move(*range, *it, ChunkState::kMoving);
      ++claim.count;
    }
    return claim;
  }
  return std::nullopt;
}

std::optional<RangeTable::Claim> RangeTable::claim_missing(CUdevice device, std::size_t max_chunks,
                                                           const Range* only) {
  const std::lock_guard lock(mutex_);
  return claim_first(device, max_chunks, [only](const Range& range, const Chunk& chunk) {
    return is_missing(chunk.state) && (only == nullptr || only == &range);
  });
}

std::optional<RangeTable::Claim> RangeTable::claim_missing_by_slab(CUdevice device,
                                                                   std::size_t max_chunks) {
  const std::lock_guard lock(mutex_);
  std::map<const HostSlab*, std::size_t> bytes_in;
  for (const auto& [start, range] : ranges_) {
    if (range->device != device || range->backing == Backing::kImported) continue;
    for (const Chunk& chunk : range->chunks) {
      if (chunk.state == ChunkState::kHost) bytes_in[chunk.host.slab] += chunk.bytes;
    }
  }
  const auto fewest = std::min_element(
      bytes_in.begin(), bytes_in.end(),
      [](const auto& one, const auto& other) { return one.second < other.second; });
  return claim_first(device, max_chunks, [&](const Range&, const Chunk& chunk) {
    return fewest == bytes_in.end()
               ? is_missing(chunk.state)
               : chunk.state == ChunkState::kHost && chunk.host.slab == fewest->first;
  });
}

std::vector<RangeTable::Claim> RangeTable::claim_victims(CUdevice device, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  std::vector<Claim> victims;
  for (auto& [start, range] : ranges_) {
    if (range->device != device || range->backing == Backing::kImported) continue;
    for (std::size_t i = 0; i < range->chunks.size(); ++i) {
      if (range->chunks[i].state != ChunkState::kResident || range->chunks[i].pins != 0) continue;
      victims.push_back({range.get(), i, 1, {ChunkState::kResident}});
    }
  }
  std::stable_sort(victims.begin(), victims.end(), [](const Claim& a, const Claim& b) {
    const Chunk& one = a.range->chunks[a.first];
    const Chunk& other = b.range->chunks[b.first];
    return std::pair(dearness(one), one.last_use) < std::pair(dearness(other), other.last_use);
  });
  std::uint64_t sum = 0;
  std::size_t count = 0;
  while (count < victims.size() && sum < bytes) {
    Claim& victim = victims[count++];
    sum += victim.bytes();
    move(*victim.range, victim.range->chunks[victim.first], ChunkState::kMoving);
  }
  victims.resize(count);
  return victims;
}

HostSpan RangeTable::take_oldest_copy() {
  const std::lock_guard lock(mutex_);
  Chunk* oldest = nullptr;
  for (auto& [start, range] : ranges_) {
    if (range->export_id != 0 || range->backing == Backing::kImported) continue;
    for (Chunk& chunk : range->chunks) {
      if (chunk.state != ChunkState::kResident || !chunk.host) continue;
      if (oldest == nullptr || chunk.last_use < oldest->last_use) oldest = &chunk;
    }
  }
  if (oldest == nullptr) return {};
  // Without the copy nobody knows its content any more.
  oldest->written = true;
  oldest->has_digest = false;
  return std::exchange(oldest->host, {});
}

std::optional<RangeTable::Claim> RangeTable::claim_oldest_in_host() {
  const std::lock_guard lock(mutex_);
  std::optional<Claim> oldest;
  std::uint64_t last_use = 0;
  for (auto& [start, range] : ranges_) {
    if (range->export_id != 0 || range->backing == Backing::kImported) continue;
    for (std::size_t i = 0; i < range->chunks.size(); ++i) {
      const Chunk& chunk = range->chunks[i];
      if (chunk.state != ChunkState::kHost || (oldest && chunk.last_use >= last_use)) continue;
      oldest = Claim{range.get(), i, 1, {ChunkState::kHost}};
      last_use = chunk.last_use;
    }
  }
  if (oldest) move(*oldest->range, oldest->range->chunks[oldest->first], ChunkState::kMoving);
  return oldest;
}

std::optional<RangeTable::Claim> RangeTable::claim_all(std::uint64_t start, bool may_wait) {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto it = ranges_.find(start);
    if (it == ranges_.end()) return std::nullopt;
    Range& range = *it->second;
    if (range.claims != 0) {
      if (!may_wait) return std::nullopt;
      settled_.wait(lock);
      continue;
    }
    Claim claim{&range, 0, range.chunks.size(), {}};
    for (Chunk& chunk : range.chunks) {
      claim.came_from.push_back(chunk.state);
      move(range, chunk, ChunkState::kMoving);
    }
    return claim;
  }
}

std::optional<RangeTable::Claim> RangeTable::claim_one(std::uint64_t start, std::size_t index) {
  const std::lock_guard lock(mutex_);
  Range* const range = at(start);
  if (range == nullptr || index >= range->chunks.size()) return std::nullopt;
  Chunk& chunk = range->chunks[index];
  if (chunk.state != ChunkState::kUnbacked) return std::nullopt;
  move(*range, chunk, ChunkState::kMoving);
  return Claim{range, index, 1, {ChunkState::kUnbacked}};
}

std::optional<std::pair<std::size_t, std::size_t>> RangeTable::unbacked_run(
    std::uint64_t start, std::size_t most) const {
  const std::lock_guard lock(mutex_);
  const Range* const range = at(start);
  if (range == nullptr) return std::nullopt;
  const auto& chunks = range->chunks;
  std::size_t first = 0;
  while (first < chunks.size() && chunks[first].state != ChunkState::kUnbacked) ++first;
  std::size_t count = 0;
  while (first + count < chunks.size() && count < most &&
         chunks[first + count].state == ChunkState::kUnbacked) {
    ++count;
  }
  if (count == 0) return std::nullopt;
  return std::pair{first, count};
}

void RangeTable::adopt(const Claim& claim) {
  const std::lock_guard lock(mutex_);
  Range& range = *claim.range;
  range.backing = Backing::kOwnChunks;
  if (range.doomed) return;
  // All of it is claimed, so all of it counts as moving.
  totals_of(range).moving -= range.mapped_bytes;
  range.kind = wire::MemoryKind::kVmm;
  totals_of(range).moving += range.mapped_bytes;
}

void RangeTable::give_up_imports(bool given_up) {
  const std::lock_guard lock(mutex_);
  imports_given_up_ = given_up;
}

bool RangeTable::has_all_imports() const {
  const std::lock_guard lock(mutex_);
  return std::none_of(totals_.begin(), totals_.end(), [&](const auto& one) {
    return one.first.second == wire::MemoryKind::kIpc && lacks_imports(one.second);
  });
}

bool RangeTable::lacks_imports(const Totals& totals) const {
  return !imports_given_up_ && (unsure_ != 0 || totals.unbacked + totals.moving != 0);
}

void RangeTable::set_unsure(std::uint64_t start, bool is_unsure) {
  const std::lock_guard lock(mutex_);
  Range* const range = at(start);
  if (range == nullptr || range->is_unsure == is_unsure) return;
  range->is_unsure = is_unsure;
  is_unsure ? ++unsure_ : --unsure_;
}

bool RangeTable::is_unsure(std::uint64_t start) const {
  const std::lock_guard lock(mutex_);
  const Range* const range = at(start);
  return range != nullptr && range->is_unsure;
}

std::size_t RangeTable::give_up(std::uint64_t start) {
  std::unique_lock lock(mutex_);
  Range* range = at(start);
  while (range != nullptr && range->claims != 0) {
    settled_.wait(lock);
    range = at(start);
  }
  if (range == nullptr || range->backing != Backing::kImported) return 0;
  std::size_t lost = 0;
  for (Chunk& chunk : range->chunks) {
    if (chunk.state == ChunkState::kUnbacked) move(*range, chunk, ChunkState::kLost);
    if (chunk.state == ChunkState::kLost) lost += chunk.bytes;
  }
  return lost;
}

void RangeTable::forget_known(std::uint64_t start) {
  const std::lock_guard lock(mutex_);
  Range* const range = at(start);
  if (range == nullptr) return;
  for (Chunk& chunk : range->chunks) {
    if (chunk.state != ChunkState::kResident) chunk.is_known = false;
  }
}

void RangeTable::note_known(std::uint64_t start, std::size_t index) {
  const std::lock_guard lock(mutex_);
  Range* const range = at(start);
  if (range != nullptr && index < range->chunks.size()) range->chunks[index].is_known = true;
}

std::unique_ptr<Range> RangeTable::settle(const Claim& claim, std::size_t index, ChunkState state) {
  const std::lock_guard lock(mutex_);
  Range& range = *claim.range;
  Chunk& chunk = range.chunks[index];
  if (!range.doomed) {
    move(range, chunk, state);
    if (state == ChunkState::kResident) {
      chunk.last_use = ++clock_;
      chunk.is_known = true;
    }
    return nullptr;
  }
  chunk.state = state;  // a doomed range is in no total
  if (--range.claims != 0) return nullptr;
  settled_.notify_all();
  const auto it = std::find_if(doomed_.begin(), doomed_.end(),
                               [&](const auto& doomed) { return doomed.get() == &range; });
  std::unique_ptr<Range> released = std::move(*it);
  doomed_.erase(it);
  return released;
}

void RangeTable::note_gate_open() {
  for (auto& [start, range] : ranges_) {
    for (Chunk& chunk : range->chunks) {
      if (chunk.state == ChunkState::kResident) chunk.written = true;
    }
  }
}

Range* RangeTable::around(std::uint64_t address) const {
  const auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return nullptr;
  Range& range = *std::prev(it)->second;
  return address < range.start + range.mapped_bytes ? &range : nullptr;
}

bool RangeTable::reserves(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto it = reserved_.upper_bound(address);
  return it != reserved_.begin() && address - std::prev(it)->first < std::prev(it)->second;
}

void RangeTable::note_use(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  Range* const range = around(address);
  if (range == nullptr) return;
  ++clock_;
  for (Chunk& chunk : range->chunks) chunk.last_use = clock_;
}

std::uint64_t& RangeTable::bucket(Totals& totals, ChunkState state) {
  switch (state) {
    case ChunkState::kResident:
      return totals.resident;
    case ChunkState::kHost:
      return totals.host;
    case ChunkState::kDisk:
      return totals.disk;
    case ChunkState::kMoving:
      return totals.moving;
    case ChunkState::kLost:
      return totals.lost;
    case ChunkState::kUnbacked:
    case ChunkState::kRepeated:
      break;
  }
  return totals.unbacked;
}

void RangeTable::move(Range& range, Chunk& chunk, ChunkState to) {
  Totals& totals = totals_of(range);
  bucket(totals, chunk.state) -= chunk.bytes;
  bucket(totals, to) += chunk.bytes;
  if (chunk.state == ChunkState::kMoving && --range.claims == 0) settled_.notify_all();
  if (to == ChunkState::kMoving) ++range.claims;
  chunk.state = to;
}

RangeTable::Totals RangeTable::totals(CUdevice device) const {
  const std::lock_guard lock(mutex_);
  Totals sum;
  for (const auto& [key, totals] : totals_) {
    if (key.first != device || key.second == wire::MemoryKind::kIpc) continue;
    sum.resident += totals.resident;
    sum.host += totals.host;
    sum.disk += totals.disk;
    sum.unbacked += totals.unbacked;
    sum.moving += totals.moving;
    sum.pinned += totals.pinned;
    sum.lost += totals.lost;
  }
  return sum;
}

std::uint64_t RangeTable::charged_bytes(CUdevice device) const {
  const Totals sum = totals(device);
  return sum.resident + sum.host + sum.disk + sum.unbacked + sum.moving + sum.lost;
}

}  // namespace plexrl::shim
