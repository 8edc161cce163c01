#include "tools/simgpu/verbs/regions.h"

#include <dlfcn.h>

#include <algorithm>

#include "tools/simgpu/driver/nic_table.h"

namespace plexrl::simgpu::verbs {
namespace {

/// The table of the simulated driver in this process; null: there is none, or another driver.
const NicTable* driver_table() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return nullptr;
  const auto get = reinterpret_cast<CUresult (*)(const void**, const CUuuid*)>(
      dlsym(driver, "cuGetExportTable"));
  const void* table = nullptr;
  const bool is_there = get != nullptr && get(&table, &kNicTableId) == CUDA_SUCCESS;
  dlclose(driver);
  return is_there ? static_cast<const NicTable*>(table) : nullptr;
}

}  // namespace

bool find_pieces(void* address, std::size_t bytes, std::vector<Piece>* pieces) {
  pieces->clear();
  const NicTable* const table = driver_table();
  auto at = reinterpret_cast<std::uint64_t>(address);
  if (table == nullptr || !table->is_device(at)) {
    pieces->push_back({static_cast<std::byte*>(address), bytes});
    return true;
  }
  while (bytes != 0) {
    std::uint64_t contiguous = 0;
    std::byte* const memory = table->physical(at, &contiguous);
    if (memory == nullptr) return false;
    const std::size_t part = std::min<std::uint64_t>(contiguous, bytes);
    pieces->push_back({memory, part});
    at += part;
    bytes -= part;
  }
  return true;
}

void Regions::add(ibv_mr* region, std::uint64_t iova, std::vector<Piece> pieces) {
  const std::lock_guard lock(mutex_);
  region->handle = region->lkey = region->rkey = ++last_key_;
  regions_[region->rkey] = {region, iova, region->length, std::move(pieces)};
}

void Regions::change(const ibv_mr* region, std::uint64_t iova, std::vector<Piece> pieces) {
  const std::lock_guard lock(mutex_);
  regions_[region->rkey] = {region, iova, region->length, std::move(pieces)};
}

bool Regions::remove(const ibv_mr* region) {
  const std::lock_guard lock(mutex_);
  return regions_.erase(region->rkey) != 0;
}

bool Regions::uses(const ibv_pd* pd) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(regions_.begin(), regions_.end(),
                     [&](const auto& entry) { return entry.second.region->pd == pd; });
}

}  // namespace plexrl::simgpu::verbs
