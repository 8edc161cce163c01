#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "shim/device_memory.h"
#include "shim/pager.h"
#include "shim/range_table.h"
#include "shim/sharing.h"

namespace plexrl::shim {

/// The job's own virtual memory management: cuMemCreate, cuMemMap and what belongs to them (CUDA
/// driver API reference, "Virtual Memory Management"), with handles that are ours.
///
/// A handle stands for a range of the pager's, which has addresses of its own; where the job maps
/// the handle, the range gets an alias. Addresses that the job reserves are the driver's: they cost
/// no memory. So mapping, unmapping and access are recorded here, done at once for what is in HBM,
/// and repeated whenever it comes back.
///
/// Every function that may meet something that is not ours returns none then, and the call is the
/// driver's. Threads: any. `operations_` lets one change at a time through, as the driver does, and
/// is held while moves in flight are waited for; `mutex_` covers the tables only.
class Vmm {
 public:
  Vmm(Pager& pager, DeviceMemory& memory, Sharing& sharing) noexcept
      : pager_(pager), memory_(memory), sharing_(sharing) {}

  // Addresses, which the driver has reserved.
  void reserved(std::uint64_t start, std::size_t bytes);
  /// Whether the job has something of ours mapped there.
  bool has_mappings(std::uint64_t start, std::size_t bytes);
  void unreserved(std::uint64_t start);

  /// Errors: CUDA_ERROR_OUT_OF_MEMORY beyond the promise.
  CUresult create(CUdevice device, std::size_t bytes, const CUmemAllocationProp& properties,
                  CUmemGenericAllocationHandle* out);
  /// A handle for memory that another process of the job, or this one, has offered.
  CUresult import(const Capability& capability, CUmemGenericAllocationHandle* out);
  bool is_ours(CUmemGenericAllocationHandle handle);
  /// Where the pager has the handle's memory.
  std::optional<std::uint64_t> range_of(CUmemGenericAllocationHandle handle);
  std::optional<CUresult> release(CUmemGenericAllocationHandle handle);
  /// One more use of the handle that is mapped at `address`.
  std::optional<CUresult> retain(std::uint64_t address, CUmemGenericAllocationHandle* out);
  std::optional<CUmemAllocationProp> properties(CUmemGenericAllocationHandle handle);

  std::optional<CUresult> map(std::uint64_t address, std::size_t bytes, std::size_t offset,
                              CUmemGenericAllocationHandle handle, unsigned long long flags);
  std::optional<CUresult> unmap(std::uint64_t address, std::size_t bytes);
  std::optional<CUresult> set_access(std::uint64_t address, std::size_t bytes,
                                     const CUmemAccessDesc* access, std::size_t count);
  std::optional<unsigned long long> access(std::uint64_t address, const CUmemLocation& location);

  /// Calls `use` with the driver's handle of each piece of the memory behind `handle`, in HBM:
  /// offset, bytes, handle. The caller is inside the gate, which is open.
  using Use = std::function<CUresult(std::size_t, std::size_t, CUmemGenericAllocationHandle)>;
  std::optional<CUresult> with_real_handles(CUmemGenericAllocationHandle handle, const Use& use);

  /// What is mapped at an address.
  struct Mapped {
    std::uint64_t start;
    std::size_t bytes;
    std::uint64_t reservation_start;
    std::size_t reservation_bytes;
    CUdevice device;
    CUmemGenericAllocationHandle handle;
    std::uint64_t identifier;  ///< of the handle's memory
    CUmemAllocationProp properties;
    std::vector<CUmemAccessDesc> access;
  };
  std::optional<Mapped> find(std::uint64_t address);

 private:
  struct Object {
    CUmemAllocationProp properties;
    CUdevice device;
    std::size_t bytes;
    std::uint64_t range;  ///< where the pager has it
    std::uint64_t uses;   ///< cuMemCreate and Retain, minus Release
    std::uint64_t mappings;
    bool is_import;
  };
  struct Mapping {
    std::size_t bytes;
    CUmemGenericAllocationHandle handle;
    std::vector<CUmemAccessDesc> access;
  };
  using Mappings = std::map<std::uint64_t, Mapping>;

  Mappings::iterator mapping_at(std::uint64_t address);
  /// Starts of the mappings that exactly cover the bytes; none when they don't.
  std::optional<std::vector<std::uint64_t>> covering(std::uint64_t address, std::size_t bytes);
  void drop_if_unused(CUmemGenericAllocationHandle handle);

  Pager& pager_;
  DeviceMemory& memory_;
  Sharing& sharing_;
  std::mutex operations_;  ///< before `mutex_`
  std::mutex mutex_;
  std::map<CUmemGenericAllocationHandle, Object> objects_;
  Mappings mappings_;                                  ///< by address
  std::map<std::uint64_t, std::size_t> reservations_;  ///< start -> bytes
  std::uint64_t next_number_ = 1;
};

}  // namespace plexrl::shim
