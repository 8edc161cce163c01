#include <algorithm>
#include <bit>
#include <cstring>

#include "tools/simgpu/ptx/texture_operands.h"

namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

/// Where a surface access of a lane goes. host == nullptr: nowhere (zeros, or no effect).
struct SurfaceAccess {
  std::byte* host = nullptr;
  bool is_fault = false;
};

SurfaceAccess surface_access(Warp& warp, const Op* op, int lane, const TexelArray& array,
                             std::size_t bytes) {
  const auto geometry = static_cast<Geometry>(op->mode);
  const auto outside = static_cast<Outside>(op->imm >> 8 & 0xff);
  const int skip = has_layers(geometry) ? 1 : 0;
  Place at = {};  // x in bytes
  for (int d = 0; d < dimensions(geometry); ++d) {
    at[static_cast<std::size_t>(d)] =
        static_cast<std::int32_t>(coordinates_of(warp, op, skip + d)[lane]);
  }
  if (skip != 0) at[2] = layer_of(warp, op, array.depth, lane);
  const auto row = static_cast<std::int64_t>(array.width * array.texel_bytes());
  const Place last = {row - static_cast<std::int64_t>(bytes),
                      static_cast<std::int64_t>(array.height) - 1,
                      static_cast<std::int64_t>(array.depth) - 1};
  SurfaceAccess access;
  for (std::size_t d = 0; d < 3; ++d) {
    if (at[d] >= 0 && at[d] <= last[d]) continue;
    if (outside == Outside::kZero) return access;
    if (outside == Outside::kClamp && last[d] >= 0) {
      at[d] = std::clamp<std::int64_t>(at[d], 0, last[d]);
      continue;
    }
    raise_fault(warp, op, Fault::Kind::kTrap, 0);
    access.is_fault = true;
    return access;
  }
  const std::uint64_t address = array.address + static_cast<std::uint64_t>(at[2]) * array.slice +
                                static_cast<std::uint64_t>(at[1]) * array.pitch +
                                static_cast<std::uint64_t>(at[0]);
  const bool is_aligned = address % bytes == 0;
  access.host = is_aligned ? generic_address(warp, address, bytes, lane) : nullptr;
  access.is_fault = access.host == nullptr;
  if (access.is_fault) {
    raise_fault(warp, op,
                is_aligned ? Fault::Kind::kIllegalAddress : Fault::Kind::kMisalignedAddress,
                address);
  }
  return access;
}

/// Reads an element of a register of `width` bytes (at least 2) for a lane, and writes one.
std::uint64_t from_register(const Warp& warp, std::int32_t operand, int lane, std::size_t bytes) {
  if (bytes <= 2) return source<std::uint16_t>(warp, operand)[lane];
  if (bytes == 4) return source<std::uint32_t>(warp, operand)[lane];
  return source<std::uint64_t>(warp, operand)[lane];
}

void to_register(Warp& warp, std::int32_t operand, int lane, std::size_t bytes,
                 std::uint64_t value) {
  if (operand == kNoOperand) return;
  if (bytes <= 2) {
    destination<std::uint16_t>(warp, operand)[lane] = static_cast<std::uint16_t>(value);
  } else if (bytes == 4) {
    destination<std::uint32_t>(warp, operand)[lane] = static_cast<std::uint32_t>(value);
  } else {
    destination<std::uint64_t>(warp, operand)[lane] = value;
  }
}

template <typename Lane>
const Op* each_surface(Warp& warp, const Op* op, std::uint32_t mask, Lane access_lane) {
  const auto* const handles = source<std::uint64_t>(warp, op->a);
  const std::size_t bytes = static_cast<std::size_t>(op->imm & 0xff) * op->count;
  Objects<TexelArray> objects(warp, warp.memory->find_surface);
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const TexelArray* const array = objects(handles[lane]);
    if (array == nullptr) {
      raise_fault(warp, op, Fault::Kind::kIllegalAddress, handles[lane]);
      break;
    }
    const SurfaceAccess access = surface_access(warp, op, lane, *array, bytes);
    if (access.is_fault) break;
    if (access.host != nullptr) warp.global_bytes += bytes;
    access_lane(lane, access.host);
  }
  return op + 1;
}

const Op* surface_load(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto bytes = static_cast<std::size_t>(op->imm & 0xff);
  return each_surface(warp, op, mask, [&](int lane, const std::byte* from) {
    for (std::size_t c = 0; c < op->count; ++c) {
      std::uint64_t value = 0;
      if (from != nullptr) std::memcpy(&value, from + c * bytes, bytes);
      to_register(warp, op->list[c], lane, bytes, value);
    }
  });
}

const Op* surface_store(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto bytes = static_cast<std::size_t>(op->imm & 0xff);
  const std::int32_t* const values = op->list + op->list_size - op->count;
  return each_surface(warp, op, mask, [&](int lane, std::byte* to) {
    if (to == nullptr) return;
    for (std::size_t c = 0; c < op->count; ++c) {
      const std::uint64_t value = from_register(warp, values[c], lane, bytes);
      if (std::memcmp(to + c * bytes, &value, bytes) != 0) {
        warp.has_changed = true;
        ++warp.writes;
      }
      std::memcpy(to + c * bytes, &value, bytes);
    }
  });
}

}  // namespace

OpFn load_of_surface() { return surface_load; }
OpFn store_of_surface() { return surface_store; }

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE

namespace plexrl::simgpu::ptx {

OpFn surface_load_op() { return PLEXRL_PTX_LEVEL::load_of_surface(); }
OpFn surface_store_op() { return PLEXRL_PTX_LEVEL::store_of_surface(); }

}  // namespace plexrl::simgpu::ptx
