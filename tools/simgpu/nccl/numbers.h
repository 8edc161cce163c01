#pragma once

#include <cstddef>

#include "tools/simgpu/nccl/nccl_api.h"

namespace plexrl::simgpu::nccl {

/// Bytes of an element; 0: no type that there is.
std::size_t element_bytes(ncclDataType_t type);

/// How the elements of all ranks become one. `op` is one of the built-in operators, or ncclSum with
/// a factor that each rank's elements are multiplied by first.
struct Reduction {
  ncclDataType_t type;
  ncclRedOp_t op;
  int ranks;
  bool has_factor = false;
  std::byte factor[8] = {};  ///< an element of the rank that it belongs to
};

/// Whether there is such a reduction: FP8 can be moved, not added.
bool is_reducible(ncclDataType_t type);

/// What a rank contributes, in place: multiplied by its factor, or for ncclAvg of a floating type
/// by 1 / ranks, as NCCL does it. Its own rank does that before others see it.
void prepare(const Reduction& how, std::byte* elements, std::size_t count);
/// Adds the elements of the next rank. Called with the ranks in their order, so results have the
/// same bits whenever who arrives. Every step is rounded to the type.
void combine(const Reduction& how, std::byte* sum, const std::byte* elements, std::size_t count);
/// After the last rank: ncclAvg of an integer type divides here.
void finish(const Reduction& how, std::byte* sum, std::size_t count);

}  // namespace plexrl::simgpu::nccl
