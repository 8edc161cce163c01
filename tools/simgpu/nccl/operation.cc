#include "tools/simgpu/nccl/operation.h"

namespace plexrl::simgpu::nccl {

const char* Operation::name() const {
  constexpr const char* kNames[] = {"AllReduce",     "Reduce",   "Broadcast", "AllGather",
                                    "ReduceScatter", "AlltoAll", "Gather",    "Scatter",
                                    "Send",          "Recv"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::uint64_t Operation::what() const {
  // Who sends and who receives mean the same; their pair is told by the channel.
  const auto number = static_cast<std::uint64_t>(is_between_two() ? Kind::kSend : kind);
  std::uint64_t mixed = 0x9e3779b97f4a7c15u;
  for (const std::uint64_t part :
       {number, static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(type),
        is_between_two() ? 0 : static_cast<std::uint64_t>(peer + 1),
        reduces() ? static_cast<std::uint64_t>(reduction.op) + 1 : 0}) {
    mixed = (mixed ^ part) * 0xbf58476d1ce4e5b9u;
    mixed ^= mixed >> 29;
  }
  return mixed;
}

}  // namespace plexrl::simgpu::nccl
