#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tools/simgpu/nccl/nccl_api.h"

/// A plain model of NCCL's collectives on the host, and one rank of a communicator that compares
/// what the library does with it. Used by the test's threads and by the processes that it starts.
namespace plexrl::simgpu {

struct Collective {
  enum Kind {
    kAllReduce,
    kReduce,
    kBroadcast,
    kAllGather,
    kReduceScatter,
    kAlltoAll,
    kGather,
    kScatter
  };
  Kind kind;
  ncclDataType_t type;
  ncclRedOp_t op;
  std::size_t count;
  int root;
};

/// Every kind with every type and operator, and long ones.
std::vector<Collective> all_collectives(int ranks);
std::string text(const Collective& c);

/// A rank: its device's primary context, a stream, a communicator.
class NcclRank {
 public:
  /// Errors end in `error`.
  NcclRank(const ncclUniqueId& id, int ranks, int rank, int device);
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  /// Runs it with made-up numbers; empty when every number came out as the model says, else what
  /// was wrong.
  std::string run(const Collective& c);
  /// One all-reduce of ones; how many ranks answered, or -1.
  int count_ranks();
  CUdeviceptr buffer(std::size_t bytes);

  std::string error;
  int ranks, rank;
  CUcontext context = nullptr;
  CUdevice device = 0;
  CUstream stream = nullptr;
  ncclComm_t comm = nullptr;

 private:
  void check(bool is_good, const char* what);
  std::vector<CUdeviceptr> buffers_;
};

}  // namespace plexrl::simgpu
