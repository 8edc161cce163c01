#pragma once

#include "tools/simgpu/driver/cuda_api.h"

#include <cstdint>
#include <memory>

#include "tools/simgpu/driver/address_space.h"
#include "tools/simgpu/driver/context.h"
#include "tools/simgpu/driver/small_blocks.h"

namespace plexrl::simgpu {

/// cuMemAlloc's kind of memory for `context`: small requests from its shared frames, larger ones in
/// frames of their own. `kind`: plain, or of an array. Errors: INVALID_VALUE for 0 bytes,
/// OUT_OF_MEMORY.
CUresult allocate_device(Context* context, std::uint64_t bytes, std::uint64_t* address,
                         Range::Kind kind = Range::Kind::kDevice);
/// Frees what allocate_device or allocate_managed made; INVALID_VALUE when it is not the start of
/// such a range.
CUresult free_device(std::uint64_t address);
/// Frees every range of a context, when it is destroyed.
void free_context_memory(Context* context);

/// Maps an allocation of the machine at a fresh address, for `device` and the devices whose
/// contexts have peer access. 0: no address space. The caller owns a hold of `allocation`.
std::uint64_t map_allocation(int device, std::uint32_t allocation);
void unmap_allocation(int device, std::uint64_t address, std::uint64_t bytes);

std::unique_ptr<SmallBlocks> make_small_blocks(int device);

/// The machine's allocation that cuMemAlloc's memory at `address` lies in, and where in it that
/// memory begins. False for other kinds of memory.
bool find_allocation(std::uint64_t address, std::uint32_t* id, std::uint64_t* offset);
/// Unmaps and releases a range of kind kIpc.
void unmap_import(const Range& range);

/// Which device's page table an address is looked up in by a copy of `context`: that of the range's
/// own device.
int device_of_address(const Context* context, std::uint64_t address);

}  // namespace plexrl::simgpu
