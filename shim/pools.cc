#include "shim/pools.h"

#include <algorithm>

#include "interpose/driver.h"
#include "shim/driver_scope.h"
#include "shim/gate.h"

namespace plexrl::shim {
namespace {

bool is_over(CUresult query) noexcept { return query != CUDA_ERROR_NOT_READY; }

}  // namespace

// ---- which pools there are

Pools::Pool* Pools::find_pool(CUmemoryPool handle) {
  for (const auto& pool : pools_) {
    if (pool->handle == handle && !pool->is_leaving) return pool.get();
  }
  return nullptr;
}

void Pools::add(CUmemoryPool handle, CUdevice device, std::size_t max_bytes, std::uint64_t tag) {
  const std::lock_guard lock(mutex_);
  if (find_pool(handle) != nullptr) return;
  auto pool = std::make_unique<Pool>();
  pool->handle = handle;
  pool->device = device;
  pool->max_bytes = max_bytes;
  pool->tag = tag;
  pool->number = next_number_++;
  pools_.push_back(std::move(pool));
}

bool Pools::is_ours(CUmemoryPool handle) {
  {
    const std::lock_guard lock(mutex_);
    if (find_pool(handle) != nullptr) return true;
  }
  // A device's default pool can be used before the device has a context.
  int count = 0;
  if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS) return false;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    CUmemoryPool standard = nullptr;
    if (driver.cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
        driver.cuDeviceGetDefaultMemPool(&standard, device) != CUDA_SUCCESS || standard != handle) {
      continue;
    }
    if (devices_.attach(device) != Devices::Attach::kAttached) return false;
    const auto attached = devices_.find(device);
    if (!attached || !attached->has_vmm) return false;
    add(handle, device, 0);
    return true;
  }
  return false;
}

void Pools::destroy(CUmemoryPool handle) {
  {
    const std::lock_guard lock(mutex_);
    if (Pool* const pool = find_pool(handle)) {
      pool->is_leaving = true;
      pool->threshold = 0;  // there is no later to keep anything for
    }
  }
  sweep_leaving();
}

void Pools::sweep_leaving() {
  Unused unused(*this);
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(pools_, [&](const auto& pool) {
      if (!pool->is_leaving) return false;
      settle(*pool);
      if (!pool->space.is_unused()) return false;
      trim_locked(*pool, 0, &unused);
      return true;
    });
  }
  drop(unused);
}

// ---- allocating

CUresult Pools::allocate(CUmemoryPool handle, std::size_t bytes, const StreamKey& stream,
                         std::uint64_t* out) {
  std::optional<std::uint64_t> address;
  FreeMarkPtr after;
  bool waited = false;
  while (true) {
    CUdevice device = 0;
    {
      const std::lock_guard lock(mutex_);
      Pool* const pool = find_pool(handle);
      if (pool == nullptr || pool->is_import) return CUDA_ERROR_INVALID_VALUE;
      device = pool->device;
      if (pool->reuse[kOpportunistic] != 0 || waited) settle(*pool);
      address = pool->space.take_free(bytes);
      if (!address) address = pool->space.take_following(bytes, stream);
    }
    if (address) break;
    if (grow(handle, bytes) == CUDA_SUCCESS) continue;
    {
      const std::lock_guard lock(mutex_);
      Pool* const pool = find_pool(handle);
      if (pool != nullptr && pool->reuse[kInternalDependencies] != 0) {
        address = pool->space.take_after(bytes, &after);
      }
    }
    if (address) break;
    if (waited) return CUDA_ERROR_OUT_OF_MEMORY;
    waited = true;
    wait_for_marks(device);
  }
  if (after != nullptr) {
    const CUresult result = wait_in_stream(stream, after);
    if (result != CUDA_SUCCESS) {
      const std::lock_guard lock(mutex_);
      if (Pool* const pool = pool_of(*address)) pool->space.free(*address, after);
      return result;
    }
  }
  *out = *address;
  return CUDA_SUCCESS;
}

CUresult Pools::grow(CUmemoryPool handle, std::size_t bytes) {
  CUdevice device = 0;
  std::size_t bound = 0;
  std::size_t reserved = 0;
  {
    const std::lock_guard lock(mutex_);
    const Pool* const pool = find_pool(handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    device = pool->device;
    bound = pool->max_bytes;
    reserved = pool->space.reserved_bytes();
  }
  const std::size_t mapped = memory_.mapped_size(bytes);
  if (mapped < bytes || (bound != 0 && reserved + mapped > bound)) return CUDA_ERROR_OUT_OF_MEMORY;
  std::uint64_t start = 0;
  const CUresult result = memory_.take_range(device, bytes, wire::MemoryKind::kPool, &start);
  if (result != CUDA_SUCCESS) return result;
  std::vector<CUmemAccessDesc> access;
  {
    const std::lock_guard lock(mutex_);
    Pool* const pool = find_pool(handle);
    if (pool != nullptr) access = pool->access;
  }
  if (!access.empty()) memory_.set_access(start, access);
  {
    const std::lock_guard lock(mutex_);
    Pool* const pool = find_pool(handle);
    if (pool != nullptr) {
      pool->space.add_segment(start, mapped);
      segments_[start] = pool;
      return CUDA_SUCCESS;
    }
  }
  memory_.drop_range(start, device);  // destroyed meanwhile
  return CUDA_ERROR_INVALID_VALUE;
}

/// What uses memory of another stream comes after the work that freed it: a submission, so it
/// passes the gate.
CUresult Pools::wait_in_stream(const StreamKey& stream, const FreeMarkPtr& after) {
  gate.enter(stream.stream);
  const RelaxedCapture relaxed;
  const CUresult result = driver.cuStreamWaitEvent(stream.stream, after->event, 0);
  gate.leave();
  return result;
}

/// The last resort before out of memory: all that is being freed on `device` is waited for, and
/// every pool gives back what it does not use.
void Pools::wait_for_marks(CUdevice device) {
  std::vector<FreeMarkPtr> marks;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& pool : pools_) {
      if (pool->device != device) continue;
      const auto of_pool = pool->space.marks();
      marks.insert(marks.end(), of_pool.begin(), of_pool.end());
    }
  }
  {
    const RelaxedCapture relaxed;
    for (const FreeMarkPtr& mark : marks) {
      if (mark->is_over || mark->is_frozen || mark->event == nullptr) continue;
      const PushedContext pushed(mark->where.context);
      driver.cuEventSynchronize(mark->event);
    }
  }
  Unused unused(*this);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& pool : pools_) {
      if (pool->device != device) continue;
      settle(*pool);
      trim_locked(*pool, 0, &unused);
    }
  }
  drop(unused);
}

// ---- freeing

Pools::Pool* Pools::pool_of(std::uint64_t address) {
  auto it = segments_.upper_bound(address);
  return it == segments_.begin() ? nullptr : std::prev(it)->second;
}

CUevent Pools::take_event(CUcontext context) {
  {
    const std::lock_guard lock(events_mutex_);
    const auto it = std::find_if(spare_events_.begin(), spare_events_.end(),
                                 [&](const auto& spare) { return spare.first == context; });
    if (it != spare_events_.end()) {
      const CUevent event = it->second;
      *it = spare_events_.back();
      spare_events_.pop_back();
      return event;
    }
  }
  CUevent event = nullptr;
  return driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS ? event : nullptr;
}

void Pools::give_back(FreeMark* mark) noexcept {
  if (mark->event != nullptr) {
    try {
      const std::lock_guard lock(events_mutex_);
      spare_events_.emplace_back(mark->where.context, mark->event);
    } catch (...) {
      // An event is lost.
    }
  }
  delete mark;
}

FreeMarkPtr Pools::new_mark(const StreamKey& stream) {
  FreeMarkPtr mark(new FreeMark, [this](FreeMark* gone) { give_back(gone); });
  mark->where = stream;
  return mark;
}

/// Records where `stream` is now. No gate: a free never waits for a lease, and an event touches no
/// memory of the job. Being inside keeps a drain from completing meanwhile.
FreeMarkPtr Pools::make_mark(const StreamKey& stream, CUresult* result) {
  FreeMarkPtr mark = new_mark(stream);
  const auto inside = InsideGate::giving_back();
  const RelaxedCapture relaxed;
  const PushedContext pushed(stream.context);
  CUevent event = take_event(stream.context);
  *result =
      event == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : driver.cuEventRecord(event, stream.stream);
  mark->event = event;
  return *result == CUDA_SUCCESS ? mark : nullptr;
}

std::optional<CUresult> Pools::free(std::uint64_t address, const StreamKey& stream) {
  const auto allocation = find(address);
  if (!allocation || allocation->start != address) return std::nullopt;
  FreeMarkPtr mark;
  if (!is_quiet_()) {
    CUresult result = CUDA_SUCCESS;
    mark = make_mark(stream, &result);
    if (mark == nullptr) return result;
  }
  bool freed = false;
  {
    const std::lock_guard lock(mutex_);
    Pool* const pool = pool_of(address);
    freed = pool != nullptr && pool->space.free(address, mark);
  }
  drop_freed(address);
  sweep_leaving();
  return freed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

std::optional<CUresult> Pools::free_now(std::uint64_t address, CUcontext context) {
  const auto allocation = find(address);
  if (!allocation || allocation->start != address) return std::nullopt;
  bool deferred = false;
  const CUresult result = memory_.wait_for_outstanding(context, &deferred);
  if (result != CUDA_SUCCESS) return result;
  FreeMarkPtr mark;
  if (deferred) {
    mark = new_mark({});
    mark->follows = false;
  }
  bool freed = false;
  {
    const std::lock_guard lock(mutex_);
    Pool* const pool = pool_of(address);
    freed = pool != nullptr && pool->space.free(address, mark);
  }
  drop_freed(address);
  sweep_leaving();
  return freed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

std::optional<DeviceMemory::Allocation> Pools::find(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  Pool* const pool = pool_of(address);
  if (pool == nullptr) return std::nullopt;
  const auto found = pool->space.find(address);
  if (!found) return std::nullopt;
  return DeviceMemory::Allocation{
      found->start, found->bytes, pool->device, nullptr, identifier_of(*pool, *found),
      pool->handle};
}

/// Apart from the identifiers of other memory of ours (device_memory.cc).
std::uint64_t Pools::identifier_of(const Pool& pool,
                                   const PoolSpace::Allocation& allocation) const {
  return std::uint64_t{1} << 62 | pool.number << 40 | allocation.identifier;
}

// ---- what is over

bool Pools::query(FreeMark& mark) {
  if (mark.is_over) return true;
  if (mark.is_frozen || mark.event == nullptr) return false;
  const PushedContext pushed(mark.where.context);
  mark.is_over = is_over(driver.cuEventQuery(mark.event));
  return mark.is_over;
}

/// Asks each stream no further than to the first mark that is not over.
void Pools::settle(Pool& pool) {
  const std::vector<FreeMarkPtr> marks = pool.space.marks();
  if (marks.empty()) return;
  const RelaxedCapture relaxed;
  std::vector<StreamKey> busy;
  for (const FreeMarkPtr& mark : marks) {
    if (std::find(busy.begin(), busy.end(), mark->where) != busy.end()) continue;
    if (!query(*mark) && mark->follows) busy.push_back(mark->where);
  }
  pool.space.settle();
}

void Pools::all_finished() {
  const std::lock_guard lock(mutex_);
  for (const auto& pool : pools_) {
    bool some_over = false;
    for (const FreeMarkPtr& mark : pool->space.marks()) {
      if (mark->event != nullptr || mark->is_frozen) continue;
      // Made after the look that found all finished, it may have to wait for the next one.
      mark->is_over = mark->seen_finished;
      mark->seen_finished = true;
      some_over = some_over || mark->is_over;
    }
    if (some_over) pool->space.settle();
  }
}

void Pools::at_rest() {
  for (const Devices::Attached& attached : devices_.all()) trim_to_thresholds(attached.device);
  sweep_leaving();
}

void Pools::stream_ends(CUstream stream) {
  const std::lock_guard lock(mutex_);
  for (const auto& pool : pools_) {
    for (const FreeMarkPtr& mark : pool->space.marks()) {
      if (mark->where.stream == stream) mark->follows = false;
    }
  }
}

void Pools::context_ends(CUcontext context) {
  const std::lock_guard lock(mutex_);
  for (const auto& pool : pools_) {
    for (const FreeMarkPtr& mark : pool->space.marks()) {
      if (mark->where.context == context) mark->is_frozen = true;
    }
  }
}

void Pools::context_ended(CUcontext context, bool survives) {
  const std::lock_guard lock(mutex_);
  for (const auto& pool : pools_) {
    for (const FreeMarkPtr& mark : pool->space.marks()) {
      if (mark->where.context != context) continue;
      mark->is_frozen = false;
      if (survives) continue;
      mark->is_over = true;  // its work ended with it, and its event went
      mark->event = nullptr;
    }
    pool->space.settle();
  }
  if (survives) return;
  const std::lock_guard events(events_mutex_);
  std::erase_if(spare_events_, [&](const auto& spare) { return spare.first == context; });
}

// ---- trimming

Pools::Unused::~Unused() {
  if (segments.empty()) return;
  const std::lock_guard lock(pools.mutex_);
  pools.dropping_ -= segments.size();
  pools.dropped_.notify_all();
}

void Pools::trim_locked(Pool& pool, std::size_t keep_bytes, Unused* unused) {
  for (const std::uint64_t start : pool.space.trim(keep_bytes)) {
    segments_.erase(start);
    unused->segments.push_back({start, pool.device, pool.is_import});
    ++dropping_;
  }
}

void Pools::drop(const Unused& unused) {
  for (const Unused::Segment& one : unused.segments) {
    one.is_import ? close_import_(one.start) : memory_.drop_range(one.start, one.device);
  }
}

void Pools::trim(CUmemoryPool handle, std::size_t keep_bytes) {
  Unused unused(*this);
  {
    const std::lock_guard lock(mutex_);
    Pool* const pool = find_pool(handle);
    if (pool == nullptr) return;
    settle(*pool);
    trim_locked(*pool, keep_bytes, &unused);
  }
  drop(unused);
}

void Pools::trim_to_threshold(CUmemoryPool handle) {
  std::size_t threshold = 0;
  {
    const std::lock_guard lock(mutex_);
    const Pool* const pool = find_pool(handle);
    if (pool != nullptr) threshold = pool->threshold;
  }
  trim(handle, threshold);
}

bool Pools::trim_to_thresholds(CUdevice device) {
  Unused unused(*this);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& pool : pools_) {
      if (pool->device != device) continue;
      settle(*pool);
      trim_locked(*pool, pool->threshold, &unused);
    }
  }
  drop(unused);
  return !unused.segments.empty();
}

bool Pools::make_room(CUdevice device) {
  const bool found_some = trim_to_thresholds(device);
  std::unique_lock lock(mutex_);
  const bool others_did = dropping_ != 0;
  dropped_.wait(lock, [&] { return dropping_ == 0; });
  return found_some || others_did;
}

bool Pools::has_unused(CUdevice device) {
  const std::lock_guard lock(mutex_);
  return dropping_ != 0 || std::any_of(pools_.begin(), pools_.end(), [&](const auto& pool) {
           return pool->device == device && pool->space.has_unused(pool->threshold);
         });
}

}  // namespace plexrl::shim
