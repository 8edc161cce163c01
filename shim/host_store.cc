#include "shim/host_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "interpose/driver.h"
#include "shim/log.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "host_store";

std::byte* map_slab(const SlabSource::Slab& slab) noexcept {
  const int saved_errno = errno;
  const int kind = slab.fd.valid() ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* const address = ::mmap(nullptr, slab.bytes, PROT_READ | PROT_WRITE, kind, slab.fd.get(), 0);
  if (address != MAP_FAILED) ::madvise(address, slab.bytes, MADV_DONTFORK);
  errno = saved_errno;
  return address == MAP_FAILED ? nullptr : static_cast<std::byte*>(address);
}

}  // namespace

std::optional<HostSpan> HostStore::take(std::size_t bytes, CUcontext current) {
  auto span = take_free(bytes);
  if (!span && add_slab(bytes, current)) span = take_free(bytes);
  return span;
}

std::optional<HostSpan> HostStore::take_free(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (const auto& slab : slabs_) {
    const auto offset = slab->free_space.take(bytes);
    if (offset) return HostSpan{slab.get(), slab->address + *offset, bytes};
  }
  return std::nullopt;
}

bool HostStore::add_slab(std::size_t bytes, CUcontext current) {
  auto received = source_->request(std::max(bytes, slab_bytes_));
  if (!received) return false;
  auto slab = std::make_unique<HostSlab>();
  slab->id = received->id;
  slab->bytes = received->bytes;
  slab->address = map_slab(*received);
  if (slab->address == nullptr || slab->bytes < bytes) {
    PLEXRL_WARN(kFile, "can't use slab id=%lu bytes=%zu, giving it back",
                static_cast<unsigned long>(received->id), received->bytes);
    source_->give_back(received->id);
    return false;
  }
  register_slab(*slab, current);
  slab->free_space.add(0, slab->bytes);
  const std::lock_guard lock(mutex_);
  slabs_.push_back(std::move(slab));
  return true;
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
  slabs_.push_back(std::move(slab));
  return slabs_.back().get();
}

void HostStore::register_slab(HostSlab& slab, CUcontext current) {
  const CUresult result =
      driver.cuMemHostRegister_v2(slab.address, slab.bytes, CU_MEMHOSTREGISTER_PORTABLE);
  if (result == CUDA_SUCCESS) {
    slab.registered_in = current;
    return;
  }
  slab.refused = true;
  PLEXRL_WARN(kFile,
              "can't register slab id=%lu bytes=%zu result=%d, copying through pageable memory",
              static_cast<unsigned long>(slab.id), slab.bytes, static_cast<int>(result));
}

void HostStore::ensure_registered(const HostSpan& span, CUcontext current) {
  if (span.slab->registered_in == nullptr && !span.slab->refused) {
    register_slab(*span.slab, current);
  }
}

void HostStore::put(const HostSpan& span) {
  if (!span) return;
  const std::lock_guard lock(mutex_);
  span.slab->free_space.put(static_cast<std::uint64_t>(span.address - span.slab->address),
                            span.bytes);
}

void HostStore::forget_context(CUcontext context) {
  for (std::size_t i = 0;; ++i) {
    HostSlab* slab = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (i >= slabs_.size()) return;
      slab = slabs_[i].get();
    }
    if (slab->registered_in != context) continue;
    driver.cuMemHostUnregister(slab->address);
    slab->registered_in = nullptr;
  }
}

std::size_t HostStore::slab_count() const {
  const std::lock_guard lock(mutex_);
  return slabs_.size();
}

}  // namespace plexrl::shim
