// Collectives, sends and receives, groups, and reduction operators.

#include <cstring>
#include <limits>

#include "tools/simgpu/nccl/communicator.h"
#include "tools/simgpu/nccl/entry.h"
#include "tools/simgpu/nccl/group.h"

namespace plexrl::simgpu::nccl {
namespace {

using Kind = Operation::Kind;

std::uint64_t address(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

bool needs_send(const Operation& operation, int rank) {
  switch (operation.kind) {
    case Kind::kBroadcast:
    case Kind::kScatter:
      return rank == operation.peer;
    case Kind::kRecv:
      return false;
    default:
      return true;
  }
}

bool needs_recv(const Operation& operation, int rank) {
  switch (operation.kind) {
    case Kind::kReduce:
    case Kind::kGather:
      return rank == operation.peer;
    case Kind::kSend:
      return false;
    default:
      return true;
  }
}

bool has_peer(Kind kind) {
  return kind == Kind::kReduce || kind == Kind::kBroadcast || kind == Kind::kGather ||
         kind == Kind::kScatter || kind == Kind::kSend || kind == Kind::kRecv;
}

ncclResult_t enqueue(Operation operation, ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  const auto communicator = Communicator::find(comm);
  if (communicator == nullptr) return Group::refuse(ncclInvalidArgument);
  if (const ncclResult_t may = communicator->check(); may != ncclSuccess) return Group::refuse(may);
  const std::size_t element = element_bytes(operation.type);
  const auto ranks = static_cast<std::size_t>(communicator->ranks());
  const bool is_good =
      element != 0 &&
      operation.count <= std::numeric_limits<std::size_t>::max() / element / ranks &&
      (!has_peer(operation.kind) ||
       (operation.peer >= 0 && operation.peer < communicator->ranks())) &&
      (!operation.reduces() || communicator->find_operator(op, operation.type, &operation)) &&
      (operation.count == 0 ||
       ((!needs_send(operation, communicator->rank()) || operation.send != 0) &&
        (!needs_recv(operation, communicator->rank()) || operation.recv != 0)));
  if (!is_good) return Group::refuse(ncclInvalidArgument);
  return Group::add(communicator, operation, stream);
}

}  // namespace
}  // namespace plexrl::simgpu::nccl

using namespace plexrl::simgpu::nccl;

SIMGPU_NCCL(ncclResult_t, Reduce,
            (const void* send, void* recv, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
             int root, ncclComm_t comm, CUstream stream),
            (send, recv, count, type, op, root, comm, stream)) {
  return enqueue({Kind::kReduce, address(send), address(recv), count, type, root}, op, comm,
                 stream);
}

SIMGPU_NCCL(ncclResult_t, Broadcast,
            (const void* send, void* recv, std::size_t count, ncclDataType_t type, int root,
             ncclComm_t comm, CUstream stream),
            (send, recv, count, type, root, comm, stream)) {
  return enqueue({Kind::kBroadcast, address(send), address(recv), count, type, root}, ncclSum, comm,
                 stream);
}

SIMGPU_NCCL(ncclResult_t, Bcast,
            (void* buffer, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
             CUstream stream),
            (buffer, count, type, root, comm, stream)) {
  return body_Broadcast(buffer, buffer, count, type, root, comm, stream);
}

SIMGPU_NCCL(ncclResult_t, AllReduce,
            (const void* send, void* recv, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
             ncclComm_t comm, CUstream stream),
            (send, recv, count, type, op, comm, stream)) {
  return enqueue({Kind::kAllReduce, address(send), address(recv), count, type}, op, comm, stream);
}

SIMGPU_NCCL(ncclResult_t, ReduceScatter,
            (const void* send, void* recv, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
             ncclComm_t comm, CUstream stream),
            (send, recv, count, type, op, comm, stream)) {
  return enqueue({Kind::kReduceScatter, address(send), address(recv), count, type}, op, comm,
                 stream);
}

SIMGPU_NCCL(ncclResult_t, AllGather,
            (const void* send, void* recv, std::size_t count, ncclDataType_t type, ncclComm_t comm,
             CUstream stream),
            (send, recv, count, type, comm, stream)) {
  return enqueue({Kind::kAllGather, address(send), address(recv), count, type}, ncclSum, comm,
                 stream);
}

SIMGPU_NCCL(ncclResult_t, AlltoAll,
            (const void* send, void* recv, std::size_t count, ncclDataType_t type, ncclComm_t comm,
             CUstream stream),
            (send, recv, count, type, comm, stream)) {
  return enqueue({Kind::kAlltoAll, address(send), address(recv), count, type}, ncclSum, comm,
                 stream);
}

SIMGPU_NCCL(ncclResult_t, Gather,
            (const void* send, void* recv, std::size_t count, ncclDataType_t type, int root,
             ncclComm_t comm, CUstream stream),
            (send, recv, count, type, root, comm, stream)) {
  return enqueue({Kind::kGather, address(send), address(recv), count, type, root}, ncclSum, comm,
                 stream);
}

SIMGPU_NCCL(ncclResult_t, Scatter,
            (const void* send, void* recv, std::size_t count, ncclDataType_t type, int root,
             ncclComm_t comm, CUstream stream),
            (send, recv, count, type, root, comm, stream)) {
  return enqueue({Kind::kScatter, address(send), address(recv), count, type, root}, ncclSum, comm,
                 stream);
}

SIMGPU_NCCL(ncclResult_t, Send,
            (const void* send, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
             CUstream stream),
            (send, count, type, peer, comm, stream)) {
  return enqueue({Kind::kSend, address(send), 0, count, type, peer}, ncclSum, comm, stream);
}

SIMGPU_NCCL(ncclResult_t, Recv,
            (void* recv, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
             CUstream stream),
            (recv, count, type, peer, comm, stream)) {
  return enqueue({Kind::kRecv, 0, address(recv), count, type, peer}, ncclSum, comm, stream);
}

SIMGPU_NCCL(ncclResult_t, GroupStart, (), ()) { return Group::start(); }

SIMGPU_NCCL(ncclResult_t, GroupEnd, (), ()) { return Group::end(); }

SIMGPU_NCCL(ncclResult_t, GroupSimulateEnd, (ncclSimInfo_t * info), (info)) {
  Group::forget();
  if (info != nullptr) info->estimatedTime = 0;  // nobody asks how long it would take
  return ncclSuccess;
}

SIMGPU_NCCL(ncclResult_t, RedOpCreatePreMulSum,
            (ncclRedOp_t * op, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence,
             ncclComm_t comm),
            (op, scalar, type, residence, comm)) {
  const auto communicator = Communicator::find(comm);
  if (communicator == nullptr || op == nullptr || scalar == nullptr || !is_reducible(type))
    return ncclInvalidArgument;
  if (const ncclResult_t may = communicator->check(); may != ncclSuccess) return may;
  Reduction reduction{type, ncclSum, communicator->ranks(), true, {}};
  const bool reads_now = residence == ncclScalarHostImmediate;
  if (reads_now) std::memcpy(reduction.factor, scalar, element_bytes(type));
  *op = communicator->add_operator(reduction, reads_now ? 0 : address(scalar));
  return ncclSuccess;
}

SIMGPU_NCCL(ncclResult_t, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), (op, comm)) {
  const auto communicator = Communicator::find(comm);
  if (communicator == nullptr || !communicator->remove_operator(op)) return ncclInvalidArgument;
  return ncclSuccess;
}
