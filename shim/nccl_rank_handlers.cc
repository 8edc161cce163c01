#include "interpose/handlers.h"
#include "interpose/nccl.h"
#include "shim/communicators.h"
#include "shim/nccl_groups.h"
#include "shim/process.h"

/// Calls by which this process becomes a rank of a communicator, and what is around its operations
/// ("Communicator Creation and Management Functions" of NCCL's API reference). ncclCommInitAll is
/// none of them: all its ranks are in one process. No gate is held in a call of NCCL's.

namespace plexrl::shim {
namespace {

constexpr int kNoColor = -1;

bool is_good(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

/// Makes `call`, which makes *out a communicator of that name.
template <typename Call>
ncclResult_t become_rank(const std::optional<Communicators::Name>& name, const ncclComm_t* out,
                         Call call) noexcept {
  try {
    CUcontext context = nullptr;
    CUdevice device = 0;
    Process* const process =
        name && out != nullptr ? Process::start_with_current(&context, &device) : nullptr;
    if (process == nullptr) return call();
    Communicators& all = process->communicators;
    all.begin(*name);
    const ncclResult_t result = call();
    if (is_good(result) && nccl_groups > 0) {
      all.made_in_group(*name, out);
    } else if (is_good(result) && *out != nullptr) {
      all.made(*name, *out);
    } else {
      all.not_made(*name);
    }
    return result;
  } catch (...) {
    return ncclSystemError;
  }
}

std::optional<Communicators::Name> derived(ncclComm_t comm, std::uint64_t which) noexcept {
  Process* const process = Process::started();
  try {
    return process != nullptr ? process->communicators.derive(comm, which) : std::nullopt;
  } catch (...) {
    return std::nullopt;
  }
}

}  // namespace

void before_operation(ncclComm_t comm, CUstream stream, bool is_of_all) noexcept {
  Process* const process = Process::started();
  if (process == nullptr) return;
  try {
    const Communicators::Call call{comm, stream, is_of_all};
    if (nccl_groups > 0) {
      process->communicators.collect(call);
    } else {
      process->communicators.before(&call);
    }
  } catch (...) {
    // No host memory: it is submitted as if the communicator were not known.
  }
}

void after_operation() noexcept {
  Process* const process = Process::started();
  if (process == nullptr || nccl_groups > 0) return;
  try {
    process->communicators.after();
  } catch (...) {
    // As above.
  }
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId,
                              int rank) noexcept {
  return become_rank(Communicators::name_of(commId), comm,
                     [&] { return nccl.ncclCommInitRank(comm, nranks, commId, rank); });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) noexcept {
  return become_rank(Communicators::name_of(commId), comm, [&] {
    return nccl.ncclCommInitRankConfig(comm, nranks, commId, rank, config);
  });
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId* commIds, ncclConfig_t* config) noexcept {
  const auto call = [&] {
    return nccl.ncclCommInitRankScalable(newcomm, nranks, myrank, nId, commIds, config);
  };
  if (nId < 1 || commIds == nullptr) return call();
  // All ranks have the same ids in the same order.
  return become_rank(Communicators::name_of(commIds[0]), newcomm, call);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) noexcept {
  // Who is left out counts the split too.
  std::optional<Communicators::Name> name = derived(comm, static_cast<std::uint32_t>(color));
  if (color == kNoColor) name.reset();
  return become_rank(name, newcomm,
                     [&] { return nccl.ncclCommSplit(comm, color, key, newcomm, config); });
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                            ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) noexcept {
  std::uint64_t who = 0x517;
  for (int i = 0; excludeRanksList != nullptr && i < excludeRanksCount; ++i)
    who += 1ull << (excludeRanksList[i] & 63);  // in whatever order they are given
  return become_rank(derived(comm, who), newcomm, [&] {
    return nccl.ncclCommShrink(comm, excludeRanksList, excludeRanksCount, newcomm, config,
                               shrinkFlags);
  });
}

}  // namespace plexrl::shim
