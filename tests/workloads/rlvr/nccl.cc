#include "tests/workloads/rlvr/nccl.h"

#include <dlfcn.h>

namespace plexrl::workloads::rlvr {
namespace {

// As nccl.h numbers them.
constexpr int kInt8 = 0, kFloat = 7, kAverage = 4;

struct Nccl {
  int (*get_unique_id)(UniqueId*);
  int (*init_rank)(ncclComm**, int, UniqueId, int);
  int (*destroy)(ncclComm*);
  int (*all_reduce)(const void*, void*, std::size_t, int, int, ncclComm*, CUstream);
  int (*broadcast)(const void*, void*, std::size_t, int, int, ncclComm*, CUstream);
  const char* (*error_string)(int);
};

const Nccl& nccl() {
  static const Nccl loaded = [] {
    void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw DriverError(std::string("no NCCL: ") + dlerror());
    Nccl n{};
    const auto find = [&](auto* function, const char* name) {
      void* const found = dlsym(library, name);
      if (found == nullptr) throw DriverError(std::string("libnccl.so.2 has no ") + name);
      *reinterpret_cast<void**>(function) = found;
    };
    find(&n.get_unique_id, "ncclGetUniqueId");
    find(&n.init_rank, "ncclCommInitRank");
    find(&n.destroy, "ncclCommDestroy");
    find(&n.all_reduce, "ncclAllReduce");
    find(&n.broadcast, "ncclBroadcast");
    find(&n.error_string, "ncclGetErrorString");
    return n;
  }();
  return loaded;
}

void check_nccl(int result, const char* call) {
  if (result != 0) throw DriverError(std::string(call) + ": " + nccl().error_string(result));
}

}  // namespace

UniqueId make_unique_id() {
  UniqueId id{};
  check_nccl(nccl().get_unique_id(&id), "ncclGetUniqueId");
  return id;
}

Communicator::Communicator(Device& device, const UniqueId& id, int ranks, int rank)
    : device_(device) {
  check_nccl(nccl().init_rank(&comm_, ranks, id, rank), "ncclCommInitRank");
}

Communicator::~Communicator() { nccl().destroy(comm_); }

void Communicator::average(const Buffer& buffer) {
  void* const at = reinterpret_cast<void*>(buffer.address);
  check_nccl(nccl().all_reduce(at, at, buffer.bytes / sizeof(float), kFloat, kAverage, comm_,
                               device_.stream()),
             "ncclAllReduce");
}

void Communicator::broadcast(const Buffer& buffer) {
  void* const at = reinterpret_cast<void*>(buffer.address);
  check_nccl(nccl().broadcast(at, at, buffer.bytes, kInt8, 0, comm_, device_.stream()),
             "ncclBroadcast");
}

}  // namespace plexrl::workloads::rlvr
