#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "tools/simgpu/ptx/launch.h"
#include "tools/simgpu/ptx/level/lanes.h"
#include "tools/simgpu/ptx/texture.h"
#include "tools/simgpu/ptx/texture_ops.h"

/// What texture fetches and surface accesses read of their operands. (In files that are compiled
/// once only.)
namespace PLEXRL_PTX_LEVEL_NAMESPACE {

using Place = std::array<std::int64_t, 3>;  ///< of a texel: x, y, z or layer

/// The object that a lane's handle means; lanes mostly have the same one.
template <typename T>
class Objects {
 public:
  using Find = std::shared_ptr<const T> (*)(void*, std::uint64_t);
  Objects(Warp& warp, Find find) : warp_(warp), find_(find) {}
  const T* operator()(std::uint64_t handle) {
    if (object_ == nullptr || handle != handle_) {
      object_ = find_ == nullptr ? nullptr : find_(warp_.memory->context, handle);
      handle_ = handle;
    }
    return object_.get();
  }

 private:
  Warp& warp_;
  const Find find_;
  std::uint64_t handle_ = 0;
  std::shared_ptr<const T> object_;
};

/// Of a coordinate, or what else comes behind the results: the values of all lanes.
inline const std::uint32_t* coordinates_of(const Warp& warp, const Op* op, int which) {
  return source<std::uint32_t>(warp, op->list[op->list_results + which]);
}

/// `layers`: how many there are.
inline std::int64_t layer_of(const Warp& warp, const Op* op, std::uint64_t layers, int lane) {
  const auto layer = static_cast<std::int64_t>(coordinates_of(warp, op, 0)[lane]);
  return std::min(layer, static_cast<std::int64_t>(layers) - 1);
}

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
