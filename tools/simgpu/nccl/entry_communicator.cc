// Communicators: "Communicator Creation and Management Functions" of NCCL's API reference.

#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tools/simgpu/nccl/communicator.h"
#include "tools/simgpu/nccl/entry.h"
#include "tools/simgpu/nccl/group.h"

namespace plexrl::simgpu::nccl {
namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;
constexpr int kVersion = 22809;  // whose API this is

constexpr const char* kTexts[] = {
    "no error",
    "unhandled cuda error",
    "unhandled system error",
    "internal error",
    "invalid argument",
    "invalid usage",
    "remote process exited or there was a network error",
    "NCCL operation in progress",
};

/// False: no config that NCCL_CONFIG_INITIALIZER made.
bool read_config(const ncclConfig_t* config, bool inherited, bool* blocks) {
  *blocks = inherited;
  if (config == nullptr) return true;
  if (config->magic != kConfigMagic || config->size < sizeof *config) return false;
  if (config->blocking != kNcclUndefined) {
    if (config->blocking != 0 && config->blocking != 1) return false;
    *blocks = config->blocking == 1;
  }
  return true;
}

MeetingId meeting_of(const ncclUniqueId& id) {
  MeetingId meeting;
  std::memcpy(meeting.data(), id.internal, meeting.size());
  return meeting;
}

/// Adds the beginning of a communicator that exists already to the group. Where it fails, nobody
/// gets it.
ncclResult_t begin_in_group(ncclComm_t* out, const std::shared_ptr<Communicator>& fresh,
                            const MeetingId& id, int ranks, int rank) {
  *out = fresh->handle();
  return Group::add(fresh, [=] {
    const ncclResult_t result = fresh->begin(id, ranks, rank);
    if (result != ncclSuccess && fresh->blocks()) {
      *out = nullptr;
      fresh->close();
    }
    return result;
  });
}

ncclResult_t init(ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank,
                  const ncclConfig_t* config) {
  bool blocks = true;
  if (out == nullptr || ranks < 1 || ranks > Meeting::kMaxRanks || rank < 0 || rank >= ranks ||
      !read_config(config, true, &blocks))
    return Group::refuse(ncclInvalidArgument);
  std::shared_ptr<Communicator> fresh;
  const ncclResult_t made = Communicator::make(blocks, &fresh);
  if (made != ncclSuccess) return Group::refuse(made);
  return begin_in_group(out, fresh, meeting_of(id), ranks, rank);
}

struct ColorAndKey {
  int color, key;
};

/// What a split does in each rank: all say their colors, then those of one color meet.
ncclResult_t split(const std::shared_ptr<Communicator>& parent, ColorAndKey mine, ncclComm_t* out,
                   const std::shared_ptr<Communicator>& fresh) {
  Meeting::Word word = {};
  std::memcpy(word.data(), &mine, sizeof mine);
  std::vector<Meeting::Word> all;
  if (const ncclResult_t said = parent->exchange(word, &all); said != ncclSuccess) return said;
  const MeetingId id = parent->derive(static_cast<std::uint32_t>(mine.color));
  if (fresh == nullptr) return ncclSuccess;
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int rank = 0; rank < parent->ranks(); ++rank) {
    ColorAndKey one;
    std::memcpy(&one, all[static_cast<std::size_t>(rank)].data(), sizeof one);
    if (one.color == mine.color) members.emplace_back(one.key, rank);
  }
  std::sort(members.begin(), members.end());
  const auto me = std::find(members.begin(), members.end(), std::pair(mine.key, parent->rank()));
  const ncclResult_t result =
      fresh->begin(id, static_cast<int>(members.size()), static_cast<int>(me - members.begin()));
  if (result != ncclSuccess && fresh->blocks()) {
    *out = nullptr;
    fresh->close();
  }
  return result;
}

/// A communicator on the device of another, for the same thread.
ncclResult_t make_like(const std::shared_ptr<Communicator>& parent, bool blocks,
                       std::shared_ptr<Communicator>* fresh) {
  const InContext here(parent->context());
  return Communicator::make(blocks, fresh);
}

}  // namespace
}  // namespace plexrl::simgpu::nccl

using namespace plexrl::simgpu::nccl;

SIMGPU_NCCL(ncclResult_t, GetVersion, (int* version), (version)) {
  if (version == nullptr) return ncclInvalidArgument;
  *version = kVersion;
  return ncclSuccess;
}

SIMGPU_NCCL(const char*, GetErrorString, (ncclResult_t result), (result)) {
  return result < std::size(kTexts) ? kTexts[result] : "unknown result code";
}

SIMGPU_NCCL(const char*, GetLastError, (ncclComm_t comm), (comm)) {
  const auto communicator = Communicator::find(comm);
  return communicator != nullptr ? communicator->last_error() : "";
}

SIMGPU_NCCL(void, ResetDebugInit, (), ()) {}

SIMGPU_NCCL(ncclResult_t, GetUniqueId, (ncclUniqueId * id), (id)) {
  if (id == nullptr) return ncclInvalidArgument;
  *id = {};
  return getrandom(id->internal, sizeof(MeetingId), 0) == sizeof(MeetingId) ? ncclSuccess
                                                                            : ncclSystemError;
}

SIMGPU_NCCL(ncclResult_t, CommInitRank, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank),
            (comm, ranks, id, rank)) {
  return init(comm, ranks, id, rank, nullptr);
}

SIMGPU_NCCL(ncclResult_t, CommInitRankConfig,
            (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config),
            (comm, ranks, id, rank, config)) {
  return init(comm, ranks, id, rank, config);
}

SIMGPU_NCCL(ncclResult_t, CommInitRankScalable,
            (ncclComm_t * comm, int ranks, int rank, int count, ncclUniqueId* ids,
             ncclConfig_t* config),
            (comm, ranks, rank, count, ids, config)) {
  if (ids == nullptr || count < 1) return Group::refuse(ncclInvalidArgument);
  return init(comm, ranks, ids[0], rank, config);
}

SIMGPU_NCCL(ncclResult_t, CommInitAll, (ncclComm_t * comms, int count, const int* devices),
            (comms, count, devices)) {
  if (comms == nullptr || count < 1 || count > Meeting::kMaxRanks) return ncclInvalidArgument;
  ncclUniqueId id;
  if (const ncclResult_t got = ncclGetUniqueId(&id); got != ncclSuccess) return got;
  Group::start();
  for (int i = 0; i < count; ++i) {
    std::shared_ptr<Communicator> fresh;
    const ncclResult_t made = Communicator::make_for(devices != nullptr ? devices[i] : i, &fresh);
    comms[i] = nullptr;
    if (made != ncclSuccess) {
      Group::refuse(made);
      break;
    }
    begin_in_group(&comms[i], fresh, meeting_of(id), count, i);
  }
  return Group::end();
}

SIMGPU_NCCL(ncclResult_t, CommFinalize, (ncclComm_t comm), (comm)) {
  const auto communicator = Communicator::find(comm);
  if (communicator == nullptr) return ncclInvalidArgument;
  const ncclResult_t may = communicator->check();
  return may == ncclSuccess ? communicator->finish() : may;
}

SIMGPU_NCCL(ncclResult_t, CommDestroy, (ncclComm_t comm), (comm)) {
  if (comm == nullptr) return ncclSuccess;
  const auto communicator = Communicator::find(comm);
  if (communicator == nullptr) return ncclInvalidArgument;
  // What waits for ranks that are gone is not waited for.
  if (communicator->check() != ncclSuccess) {
    communicator->stop();
  } else {
    communicator->finish();
  }
  communicator->close();
  return ncclSuccess;
}

SIMGPU_NCCL(ncclResult_t, CommAbort, (ncclComm_t comm), (comm)) {
  if (comm == nullptr) return ncclSuccess;
  const auto communicator = Communicator::find(comm);
  if (communicator == nullptr) return ncclInvalidArgument;
  communicator->stop();
  communicator->close();
  return ncclSuccess;
}

SIMGPU_NCCL(ncclResult_t, CommRevoke, (ncclComm_t comm, int flags), (comm, flags)) {
  const auto communicator = Communicator::find(comm);
  if (communicator == nullptr || flags != 0) return ncclInvalidArgument;
  communicator->revoke();
  return ncclSuccess;
}

SIMGPU_NCCL(ncclResult_t, CommSplit,
            (ncclComm_t comm, int color, int key, ncclComm_t* out, ncclConfig_t* config),
            (comm, color, key, out, config)) {
  const auto parent = Communicator::find(comm);
  bool blocks = true;
  if (parent == nullptr || out == nullptr || color < kNcclNoColor ||
      !read_config(config, parent->blocks(), &blocks))
    return Group::refuse(ncclInvalidArgument);
  if (const ncclResult_t now = parent->state(); now != ncclSuccess)
    return Group::refuse(now == ncclInProgress ? ncclInvalidArgument : now);
  *out = nullptr;
  std::shared_ptr<Communicator> fresh;
  if (color != kNcclNoColor) {
    if (const ncclResult_t made = make_like(parent, blocks, &fresh); made != ncclSuccess)
      return Group::refuse(made);
    *out = fresh->handle();
  }
  return Group::add(fresh != nullptr ? fresh : parent, [=] {
    return split(parent, {color, key}, out, fresh);
  });
}

SIMGPU_NCCL(ncclResult_t, CommShrink,
            (ncclComm_t comm, int* excluded, int count, ncclComm_t* out, ncclConfig_t* config,
             int flags),
            (comm, excluded, count, out, config, flags)) {
  constexpr int kAbortParent = 1;
  const auto parent = Communicator::find(comm);
  bool blocks = true;
  if (parent == nullptr || out == nullptr || count < 1 || excluded == nullptr ||
      (flags != 0 && flags != kAbortParent) || !read_config(config, parent->blocks(), &blocks))
    return Group::refuse(ncclInvalidArgument);
  if (flags == kAbortParent) parent->stop();
  const std::set<int> gone(excluded, excluded + count);
  std::uint64_t who = 0x517;
  int before = 0;
  for (const int rank : gone) {
    if (rank < 0 || rank >= parent->ranks() || rank == parent->rank())
      return Group::refuse(ncclInvalidArgument);
    who = who * 131 + static_cast<std::uint64_t>(rank);
    if (rank < parent->rank()) ++before;
  }
  std::shared_ptr<Communicator> fresh;
  if (const ncclResult_t made = make_like(parent, blocks, &fresh); made != ncclSuccess)
    return Group::refuse(made);
  return begin_in_group(out, fresh, parent->derive(who),
                        parent->ranks() - static_cast<int>(gone.size()), parent->rank() - before);
}

SIMGPU_NCCL(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t* error),
            (comm, error)) {
  const auto communicator = Communicator::find(comm);
  if (communicator == nullptr || error == nullptr) return ncclInvalidArgument;
  *error = communicator->state();
  return ncclSuccess;
}

SIMGPU_NCCL(ncclResult_t, CommCount, (ncclComm_t comm, int* count), (comm, count)) {
  const auto communicator = Communicator::find(comm);
  if (communicator == nullptr || count == nullptr) return ncclInvalidArgument;
  *count = communicator->ranks();
  return ncclSuccess;
}

SIMGPU_NCCL(ncclResult_t, CommCuDevice, (ncclComm_t comm, int* device), (comm, device)) {
  const auto communicator = Communicator::find(comm);
  if (communicator == nullptr || device == nullptr) return ncclInvalidArgument;
  *device = communicator->device();
  return ncclSuccess;
}

SIMGPU_NCCL(ncclResult_t, CommUserRank, (ncclComm_t comm, int* rank), (comm, rank)) {
  const auto communicator = Communicator::find(comm);
  if (communicator == nullptr || rank == nullptr) return ncclInvalidArgument;
  *rank = communicator->rank();
  return ncclSuccess;
}
