#include "tests/unit/simgpu/nccl_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace plexrl::simgpu {
namespace {

using Numbers = std::vector<double>;
using Bytes = std::vector<unsigned char>;

std::size_t bytes_of(ncclDataType_t type) {
  constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kBytes[type];
}

bool is_unsigned(ncclDataType_t type) {
  return type == ncclUint8 || type == ncclUint32 || type == ncclUint64;
}

bool is_integer(ncclDataType_t type) { return type <= ncclUint64; }

/// Small whole numbers, so that everything but an integer's overflow is exact in every type.
double number(const Collective& c, int rank, std::size_t i) {
  std::uint64_t mixed =
      (i + 1) * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank) * 0x1234567;
  mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9u;
  const auto drawn = static_cast<int>((mixed ^ mixed >> 32) % 9);
  return is_unsigned(c.type) ? drawn : drawn - 4;
}

std::uint16_t half_of(double value) {
  if (value == 0) return std::signbit(value) ? 0x8000 : 0;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // 0.5 ≤ fraction < 1
  const auto mantissa = static_cast<unsigned>((fraction * 2 - 1) * 1024);
  return static_cast<std::uint16_t>((value < 0 ? 0x8000u : 0u) |
                                    static_cast<unsigned>(exponent - 1 + 15) << 10 | mantissa);
}

Bytes encoded(ncclDataType_t type, const Numbers& numbers) {
  Bytes all(numbers.size() * bytes_of(type));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    unsigned char* const at = all.data() + i * bytes_of(type);
    const double value = numbers[i];
    if (is_integer(type)) {
      const auto whole = static_cast<std::int64_t>(value);  // its low bytes wrap as the type does
      std::memcpy(at, &whole, bytes_of(type));
    } else if (type == ncclFloat64) {
      std::memcpy(at, &value, 8);
    } else if (type == ncclFloat16) {
      const std::uint16_t half = half_of(value);
      std::memcpy(at, &half, 2);
    } else {
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
      std::memcpy(at,
                  type == ncclFloat32 ? reinterpret_cast<const unsigned char*>(&bits)
                                      : reinterpret_cast<const unsigned char*>(&bits) + 2,
                  bytes_of(type));
    }
  }
  return all;
}

double combined(const Collective& c, double a, double b) {
  switch (c.op) {
    case ncclProd:
      return a * b;
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return a + b;
  }
}

bool is_reduction(const Collective& c) {
  return c.kind == Collective::kAllReduce || c.kind == Collective::kReduce ||
         c.kind == Collective::kReduceScatter;
}

std::size_t send_count(const Collective& c, int ranks) {
  const bool has_parts = c.kind == Collective::kReduceScatter || c.kind == Collective::kAlltoAll ||
                         c.kind == Collective::kScatter;
  return c.count * (has_parts ? static_cast<std::size_t>(ranks) : 1);
}

std::size_t recv_count(const Collective& c, int ranks) {
  const bool has_parts = c.kind == Collective::kAllGather || c.kind == Collective::kAlltoAll ||
                         c.kind == Collective::kGather;
  return c.count * (has_parts ? static_cast<std::size_t>(ranks) : 1);
}

/// What must be in a rank's receive buffer; empty: nothing is said about it.
Numbers expected(const Collective& c, int ranks, int rank) {
  const bool root_alone = c.kind == Collective::kReduce || c.kind == Collective::kGather;
  if (root_alone && rank != c.root) return {};
  Numbers result(recv_count(c, ranks));
  const auto me = static_cast<std::size_t>(rank);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::size_t within = i % c.count;
    const auto block = static_cast<int>(i / c.count);
    switch (c.kind) {
      case Collective::kBroadcast:
        result[i] = number(c, c.root, i);
        continue;
      case Collective::kScatter:
        result[i] = number(c, c.root, me * c.count + i);
        continue;
      case Collective::kAllGather:
      case Collective::kGather:
        result[i] = number(c, block, within);
        continue;
      case Collective::kAlltoAll:
        result[i] = number(c, block, me * c.count + within);
        continue;
      default:
        break;
    }
    const std::size_t at = i + (c.kind == Collective::kReduceScatter ? me * c.count : 0);
    result[i] = number(c, 0, at);
    for (int other = 1; other < ranks; ++other)
      result[i] = combined(c, result[i], number(c, other, at));
    if (c.op == ncclAvg) result[i] /= ranks;
  }
  return result;
}

ncclResult_t call(const Collective& c, CUdeviceptr send, CUdeviceptr recv, ncclComm_t comm,
                  CUstream stream) {
  const void* const from = reinterpret_cast<const void*>(send);
  void* const to = reinterpret_cast<void*>(recv);
  switch (c.kind) {
    case Collective::kAllReduce:
      return ncclAllReduce(from, to, c.count, c.type, c.op, comm, stream);
    case Collective::kReduce:
      return ncclReduce(from, to, c.count, c.type, c.op, c.root, comm, stream);
    case Collective::kBroadcast:
      return ncclBroadcast(from, to, c.count, c.type, c.root, comm, stream);
    case Collective::kAllGather:
      return ncclAllGather(from, to, c.count, c.type, comm, stream);
    case Collective::kReduceScatter:
      return ncclReduceScatter(from, to, c.count, c.type, c.op, comm, stream);
    case Collective::kAlltoAll:
      return ncclAlltoAll(from, to, c.count, c.type, comm, stream);
    case Collective::kGather:
      return ncclGather(from, to, c.count, c.type, c.root, comm, stream);
    case Collective::kScatter:
      return ncclScatter(from, to, c.count, c.type, c.root, comm, stream);
  }
  return ncclInternalError;
}

}  // namespace

std::vector<Collective> all_collectives(int ranks) {
  constexpr std::size_t kLong = 150'000;  // floats: longer than what goes through NCCL at once
  std::vector<Collective> all;
  for (int kind = Collective::kAllReduce; kind <= Collective::kScatter; ++kind) {
    Collective one{static_cast<Collective::Kind>(kind), ncclFloat32, ncclSum, kLong, ranks - 1};
    all.push_back(one);
    for (unsigned type = ncclInt8; type <= ncclBfloat16; ++type) {
      for (unsigned op = ncclSum; op <= ncclAvg; ++op) {
        if (op != ncclSum && !is_reduction(one)) break;
        all.push_back({one.kind, static_cast<ncclDataType_t>(type), static_cast<ncclRedOp_t>(op),
                       op % 2 == 0 ? 777u : 1u, static_cast<int>(op) % ranks});
      }
    }
  }
  return all;
}

std::string text(const Collective& c) {
  return "kind " + std::to_string(c.kind) + " type " + std::to_string(c.type) + " op " +
         std::to_string(c.op) + " count " + std::to_string(c.count) + " root " +
         std::to_string(c.root);
}

void NcclRank::check(bool is_good, const char* what) {
  if (!is_good && error.empty()) error = what;
}

NcclRank::NcclRank(const ncclUniqueId& id, int ranks_in, int rank_in, int ordinal)
    : ranks(ranks_in), rank(rank_in) {
  check(cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, ordinal) == CUDA_SUCCESS, "a device");
  check(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS, "a context");
  check(cuCtxSetCurrent(context) == CUDA_SUCCESS, "a current context");
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS, "a stream");
  check(ncclCommInitRank(&comm, ranks, id, rank) == ncclSuccess, "ncclCommInitRank");
}

NcclRank::~NcclRank() {
  cuCtxSetCurrent(context);
  if (comm != nullptr) ncclCommDestroy(comm);
  for (const CUdeviceptr buffer : buffers_) cuMemFree(buffer);
  if (stream != nullptr) cuStreamDestroy(stream);
  cuDevicePrimaryCtxRelease(device);
}

CUdeviceptr NcclRank::buffer(std::size_t bytes) {
  CUdeviceptr fresh = 0;
  check(cuMemAlloc(&fresh, bytes) == CUDA_SUCCESS, "memory");
  buffers_.push_back(fresh);
  return fresh;
}

std::string NcclRank::run(const Collective& c) {
  if (!error.empty()) return error;
  Numbers mine(send_count(c, ranks));
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = number(c, rank, i);
  const Bytes sent = encoded(c.type, mine);
  Bytes got(recv_count(c, ranks) * bytes_of(c.type));
  CUdeviceptr send = 0, recv = 0;
  check(cuMemAlloc(&send, sent.size()) == CUDA_SUCCESS, "memory");
  check(cuMemAlloc(&recv, got.size()) == CUDA_SUCCESS, "memory");
  check(cuMemcpyHtoD(send, sent.data(), sent.size()) == CUDA_SUCCESS, "a copy");
  if (!error.empty()) return error;
  if (call(c, send, recv, comm, stream) != ncclSuccess)
    return text(c) + ": " + ncclGetLastError(comm);
  check(cuStreamSynchronize(stream) == CUDA_SUCCESS, "the stream");
  check(cuMemcpyDtoH(got.data(), recv, got.size()) == CUDA_SUCCESS, "a copy back");
  check(cuMemFree(send) == CUDA_SUCCESS && cuMemFree(recv) == CUDA_SUCCESS, "cuMemFree");
  if (!error.empty()) return error;
  const Bytes right = encoded(c.type, expected(c, ranks, rank));
  if (right.empty()) return "";
  const auto differs = std::mismatch(right.begin(), right.end(), got.begin()).first;
  if (differs == right.end()) return "";
  return text(c) + ": rank " + std::to_string(rank) + " has something else from byte " +
         std::to_string(differs - right.begin()) + " on";
}

int NcclRank::count_ranks() {
  int value = 1;
  const CUdeviceptr word = buffer(sizeof value);
  void* const at = reinterpret_cast<void*>(word);
  check(cuMemcpyHtoD(word, &value, sizeof value) == CUDA_SUCCESS, "a copy");
  if (!error.empty() || ncclAllReduce(at, at, 1, ncclInt32, ncclSum, comm, stream) != ncclSuccess)
    return -1;
  check(cuStreamSynchronize(stream) == CUDA_SUCCESS, "the stream");
  check(cuMemcpyDtoH(&value, word, sizeof value) == CUDA_SUCCESS, "a copy back");
  return error.empty() ? value : -1;
}

}  // namespace plexrl::simgpu
