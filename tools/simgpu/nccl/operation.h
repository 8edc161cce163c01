#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tools/simgpu/nccl/numbers.h"

namespace plexrl::simgpu::nccl {

/// One call of a collective, or one send or receive, as the program gave it.
struct Operation {
  enum class Kind {
    kAllReduce,
    kReduce,
    kBroadcast,
    kAllGather,
    kReduceScatter,
    kAlltoAll,
    kGather,
    kScatter,
    kSend,
    kRecv
  };
  Kind kind;
  std::uint64_t send = 0;  ///< addresses of the device
  std::uint64_t recv = 0;
  std::size_t count = 0;  ///< elements, as the call counts them
  ncclDataType_t type = ncclInt8;
  int peer = -1;             ///< the root, or who sends or receives; -1: there is none
  Reduction reduction{};     ///< of the kinds that reduce
  std::uint64_t factor = 0;  ///< where a factor lies that the kernel reads; 0: it has it, or none

  bool reduces() const {
    return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
  }
  bool is_between_two() const { return kind == Kind::kSend || kind == Kind::kRecv; }
  const char* name() const;
  /// The same in all ranks that mean the same operation, and seldom in others.
  std::uint64_t what() const;
};

}  // namespace plexrl::simgpu::nccl
