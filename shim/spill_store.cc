#include "shim/spill_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "interpose/driver.h"
#include "shim/driver_scope.h"
#include "shim/log.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "spill";
/// Offsets of files end at 2^63; less is enough, and is allowed by every file system's own limits
/// for what a node can hold.
constexpr std::uint64_t kFileBytes = std::uint64_t{1} << 43;

}  // namespace

bool SpillStore::open(CUcontext current) {
  if (!is_on()) return false;
  if (address_ == nullptr && (!link_->open_file() || !open_slab())) return false;
  const std::lock_guard registering(registering_);
  register_slab(current);
  return true;
}

bool SpillStore::open_slab() {
  auto slab = link_->staging(slab_bytes());
  if (!slab || slab->bytes != slab_bytes() || !slab->fd.valid()) return false;
  const int saved_errno = errno;
  void* const address = ::mmap(nullptr, slab->bytes, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_POPULATE, slab->fd.get(), 0);
  if (address != MAP_FAILED) ::madvise(address, slab->bytes, MADV_DONTFORK);
  errno = saved_errno;
  if (address == MAP_FAILED) return false;
  memory_ = std::move(slab->fd);
  address_ = static_cast<std::byte*>(address);
  refused_ = false;
  return true;
}

void SpillStore::let_go() {
  const std::lock_guard registering(registering_);
  unregister();
  tickets_ = {};
  if (address_ == nullptr) return;
  ::munmap(address_, slab_bytes());
  address_ = nullptr;
  memory_.reset();
}

std::optional<DiskPlace> SpillStore::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!has_places_) free_.add(0, kFileBytes);
  has_places_ = true;
  pay_discards();
  const auto offset = free_.take(bytes);
  if (!offset) return std::nullopt;
  end_ = std::max(end_, *offset + bytes);
  DiskPlace place;
  place.offset = *offset;
  place.bytes = bytes;
  place.piece_bytes = piece_bytes_;
  place.seals.resize((bytes + piece_bytes_ - 1) / piece_bytes_);
  return place;
}

void SpillStore::put(const DiskPlace& place) {
  if (!place) return;
  const std::lock_guard lock(mutex_);
  owed_discards_.push_back({place.offset, place.bytes});
  pay_discards();
}

/// Told before the place can be taken again: the manager does what it is told in this order.
void SpillStore::pay_discards() {
  while (!owed_discards_.empty()) {
    const Extent extent = owed_discards_.back();
    if (!link_->discard(extent.offset, extent.bytes)) return;
    free_.put(extent.offset, extent.bytes);
    owed_discards_.pop_back();
  }
}

void SpillStore::each_free(const std::function<void(std::uint64_t, std::uint64_t)>& visit) const {
  const std::lock_guard lock(mutex_);
  free_.each([&](std::uint64_t offset, std::uint64_t bytes) {
    if (offset < end_) visit(offset, std::min(bytes, end_ - offset));
  });
}

bool SpillStore::begin(DiskLink::Way way, std::size_t slot, const DiskPlace& place,
                       std::size_t piece) {
  if (address_ == nullptr) return false;
  wire::DiskMove move{};
  move.memory_offset = slot * piece_bytes_;
  move.bytes = place.bytes_of(piece);
  move.file_offset = place.offset + place.start_of(piece);
  const DiskPlace::Seal& seal = place.seals[piece];
  std::memcpy(move.nonce, seal.nonce.data(), seal.nonce.size());
  std::memcpy(move.tag, seal.tag.data(), seal.tag.size());
  tickets_[slot] = link_->begin(way, memory_.get(), move);
  return tickets_[slot] != 0;
}

std::optional<wire::DiskMoved> SpillStore::finish(std::size_t slot) {
  const DiskLink::Ticket ticket = std::exchange(tickets_[slot], 0);
  if (ticket == 0) return std::nullopt;
  auto moved = link_->finish(ticket);
  if (!moved) {
    PLEXRL_INFO(kFile, "the node manager has gone while memory was on its way, trying again");
    let_go();
  }
  return moved;
}

void SpillStore::register_slab(CUcontext current) {
  if (!may_register_ || refused_ || registered_in_ != nullptr) return;
  const CUresult result =
      driver.cuMemHostRegister_v2(address_, slab_bytes(), CU_MEMHOSTREGISTER_PORTABLE);
  refused_ = result != CUDA_SUCCESS;
  if (!refused_) registered_in_ = current;
}

void SpillStore::unregister() {
  if (registered_in_ == nullptr) return;
  const RelaxedCapture relaxed;
  const PushedContext pushed(registered_in_);
  driver.cuMemHostUnregister(address_);
  registered_in_ = nullptr;
}

void SpillStore::forget_context(CUcontext context) {
  const std::lock_guard registering(registering_);
  if (registered_in_ == context) unregister();
}

void SpillStore::end_registrations() {
  const std::lock_guard registering(registering_);
  may_register_ = false;
  unregister();
}

void SpillStore::allow_registering() {
  const std::lock_guard registering(registering_);
  may_register_ = true;
}

}  // namespace plexrl::shim
