#include "shim/host_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "interpose/driver.h"
#include "shim/driver_scope.h"
#include "shim/log.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "host_store";

std::byte* map_slab(const SlabSource::Slab& slab) noexcept {
  const int saved_errno = errno;
  const int kind = slab.fd.valid() ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  // The pages are there; entered into the page table at once, no copy faults on them one by one.
  void* const address =
      ::mmap(nullptr, slab.bytes, PROT_READ | PROT_WRITE, kind | MAP_POPULATE, slab.fd.get(), 0);
  if (address != MAP_FAILED) ::madvise(address, slab.bytes, MADV_DONTFORK);
  errno = saved_errno;
  return address == MAP_FAILED ? nullptr : static_cast<std::byte*>(address);
}

bool protect(const HostSpan& span, int protection) noexcept {
  const int saved_errno = errno;
  const bool done = ::mprotect(span.address, span.bytes, protection) == 0;
  errno = saved_errno;
  return done;
}

}  // namespace

std::optional<HostSpan> HostStore::take(std::size_t bytes, CUcontext current) {
  auto span = take_free(bytes);
  if (span) return span;
  // Where there is no room for a slab of the usual size there may be for this chunk alone.
  const bool added = add_slab(std::max(bytes, slab_bytes_), current) ||
                     (bytes < slab_bytes_ && add_slab(bytes, current));
  return added ? take_free(bytes) : std::nullopt;
}

std::optional<HostSpan> HostStore::take_free(std::size_t bytes) {
  std::unique_lock lock(mutex_);
  while (true) {
    for (const auto& slab : slabs_) {
      const auto offset = slab->free_space.take(bytes);
      if (offset) return HostSpan{slab.get(), slab->address + *offset, bytes};
    }
    if (!is_preparing_) return std::nullopt;
    prepared_.wait(lock);
  }
}

std::unique_ptr<HostSlab> HostStore::map(const SlabSource::Slab& received,
                                         std::size_t least_bytes) {
  note_held(received, true);
  auto slab = std::make_unique<HostSlab>();
  slab->id = received.id;
  slab->bytes = received.bytes;
  slab->address = map_slab(received);
  if (slab->address != nullptr && slab->bytes >= least_bytes) return slab;
  note_held(received, false);
  PLEXRL_WARN(kFile, "can't use slab id=%lu bytes=%zu, giving it back",
              static_cast<unsigned long>(received.id), received.bytes);
  if (slab->address != nullptr) ::munmap(slab->address, slab->bytes);
  source_->give_back(received.id, received.bytes);
  return nullptr;
}

void HostStore::note_held(const SlabSource::Slab& slab, bool is_held) {
  if (!slab.fd.valid()) return;  // plain memory, of no manager's budget
  const std::lock_guard lock(mutex_);
  is_held ? held_bytes_ += slab.bytes : held_bytes_ -= slab.bytes;
}

void HostStore::publish(std::unique_ptr<HostSlab> slab) {
  slab->free_space.add(0, slab->bytes);
  const std::lock_guard lock(mutex_);
  bytes_ += slab->bytes;
  slabs_.push_back(std::move(slab));
}

bool HostStore::add_slab(std::size_t bytes, CUcontext current) {
  auto received = source_->request(bytes);
  if (!received) return false;
  auto slab = map(*received, bytes);
  if (slab == nullptr) return false;
  const std::lock_guard registering(registering_);
  register_slab(*slab, current);
  publish(std::move(slab));
  return true;
}

bool HostStore::prepare(std::size_t bytes, const Contexts& contexts) {
  {
    const std::lock_guard lock(mutex_);
    if (bytes_ >= bytes) return false;
  }
  auto received = source_->request(slab_bytes_);
  if (!received) return false;
  {
    // Not before: the answer reaches this thread through the agent, which may be in `take`.
    const std::lock_guard lock(mutex_);
    is_preparing_ = true;
  }
  auto slab = map(*received, 0);
  const bool added = slab != nullptr;
  if (added) {
    // A context that is about to end leaves `contexts` first and then waits in forget_context.
    const std::lock_guard registering(registering_);
    const auto living = contexts.all();
    if (may_register_ && !living.empty()) {
      const RelaxedCapture relaxed;
      const PushedContext pushed(living.front().context);
      if (pushed.ok()) register_slab(*slab, living.front().context);
    }
    publish(std::move(slab));
  }
  const std::lock_guard lock(mutex_);
  is_preparing_ = false;
  prepared_.notify_all();
  return added;
}

std::size_t HostStore::give_back_free(std::size_t bytes) {
  const std::lock_guard registering(registering_);
  std::size_t given = 0;
  while (given < bytes) {
    std::unique_ptr<HostSlab> slab;
    {
      const std::lock_guard lock(mutex_);
      const auto it = std::find_if(slabs_.begin(), slabs_.end(), [](const auto& one) {
        return one->free_space.free_bytes() == one->bytes;
      });
      if (it == slabs_.end()) break;
      slab = std::move(*it);
      slabs_.erase(it);
      bytes_ -= slab->bytes;
    }
    if (!unregister(*slab)) {
      // Its pages stay with the driver: it is used on.
      const std::lock_guard lock(mutex_);
      bytes_ += slab->bytes;
      slabs_.push_back(std::move(slab));
      break;
    }
    ::munmap(slab->address, slab->bytes);
    if (slab->id != 0) {
      const std::lock_guard lock(mutex_);
      held_bytes_ -= slab->bytes;
    }
    given += slab->bytes;
    source_->give_back(slab->id, slab->bytes);
  }
  return given;
}

HostSlab* HostStore::adopt(SlabSource::Slab received) {
  const std::lock_guard lock(mutex_);
  for (const auto& slab : slabs_) {
    if (slab->id == received.id) return slab.get();
  }
  auto slab = std::make_unique<HostSlab>();
  slab->id = received.id;
  slab->bytes = received.bytes;
  slab->address = map_slab(received);
  if (slab->address == nullptr) return nullptr;
  bytes_ += slab->bytes;
  held_bytes_ += slab->bytes;
  slabs_.push_back(std::move(slab));
  return slabs_.back().get();
}

void HostStore::register_slab(HostSlab& slab, CUcontext current) {
  if (!may_register_) return;
  const CUresult result =
      driver.cuMemHostRegister_v2(slab.address, slab.bytes, CU_MEMHOSTREGISTER_PORTABLE);
  if (result == CUDA_SUCCESS) {
    slab.registered_in = current;
    return;
  }
  // Of a context that is dead the job learns from its own next call; another may do it yet.
  if (is_sticky(result)) return;
  slab.refused = true;
  PLEXRL_LOG_AT(kFile, failure_level(result, LogLevel::kWarning),
                "can't register slab id=%lu bytes=%zu result=%d, copying through pageable memory",
                static_cast<unsigned long>(slab.id), slab.bytes, static_cast<int>(result));
}

bool HostStore::unregister(HostSlab& slab) {
  if (slab.registered_in == nullptr) return true;
  const RelaxedCapture relaxed;
  const PushedContext pushed(slab.registered_in);
  const CUresult result = driver.cuMemHostUnregister(slab.address);
  if (result == CUDA_SUCCESS) slab.registered_in = nullptr;
  return result == CUDA_SUCCESS;
}

void HostStore::ensure_registered(const HostSpan& span, CUcontext current) {
  const std::lock_guard registering(registering_);
  if (span.slab->registered_in == nullptr && !span.slab->refused) {
    register_slab(*span.slab, current);
  }
}

bool HostStore::make_read_only(HostSpan* span) noexcept {
  if (!span->is_read_only) span->is_read_only = protect(*span, PROT_READ);
  return span->is_read_only;
}

bool HostStore::make_writable(HostSpan* span) noexcept {
  if (span->is_read_only) span->is_read_only = !protect(*span, PROT_READ | PROT_WRITE);
  return !span->is_read_only;
}

void HostStore::put(const HostSpan& taken) {
  if (!taken) return;
  HostSpan span = taken;
  if (!make_writable(&span)) return;  // a little memory is lost to this process, no bytes are
  const std::lock_guard lock(mutex_);
  span.slab->free_space.put(static_cast<std::uint64_t>(span.address - span.slab->address),
                            span.bytes);
}

/// Without holding `mutex_` in the visits. `registering_` is held.
template <typename Visit>
void HostStore::each_slab(Visit visit) {
  for (std::size_t i = 0;; ++i) {
    HostSlab* slab = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (i >= slabs_.size()) return;
      slab = slabs_[i].get();
    }
    visit(*slab);
  }
}

void HostStore::forget_context(CUcontext context) {
  const std::lock_guard registering(registering_);
  each_slab([&](HostSlab& slab) {
    if (slab.registered_in != context) return;
    driver.cuMemHostUnregister(slab.address);
    slab.registered_in = nullptr;
  });
}

void HostStore::end_registrations() {
  const std::lock_guard registering(registering_);
  may_register_ = false;
  each_slab([](HostSlab& slab) {
    if (slab.registered_in == nullptr) return;
    const PushedContext pushed(slab.registered_in);
    driver.cuMemHostUnregister(slab.address);
    slab.registered_in = nullptr;
  });
}

void HostStore::allow_registering() {
  const std::lock_guard registering(registering_);
  may_register_ = true;
}

std::size_t HostStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::size_t HostStore::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return held_bytes_;
}

std::size_t HostStore::used_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t used = bytes_;
  for (const auto& slab : slabs_) used -= slab->free_space.free_bytes();
  return used;
}

}  // namespace plexrl::shim
