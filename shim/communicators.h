#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "interpose/nccl_api.h"
#include "shim/client.h"
#include "shim/wire.h"

namespace plexrl::shim {

/// NCCL's communicators that this process is a rank of, by a name that all ranks derive alike. The
/// manager is told of each before NCCL is: who has one in common runs together, because a
/// collective's kernel waits for its peers on the GPU (nodemgr/communicators.h).
///
/// Where ranks have waited long for each other the manager has them meet: before an operation is
/// submitted the thread waits, outside of the driver, until all have come, and the GPU may be
/// another's meanwhile. Operations are counted here, and an event behind the latest tells when it
/// has ended. What not all ranks count alike can't meet: operations in graphs, sends and receives,
/// and those of communicators with several ranks in one process.
///
/// Threads: any; handle, step and resume the agent's. No lock is held while the manager is asked or
/// in a driver call that may wait. errno stays as it is.
class Communicators {
 public:
  Communicators(Client& client, void (*wake_agent)() noexcept)
      : client_(client), wake_agent_(wake_agent) {}

  using Name = wire::Id128;
  static Name name_of(const ncclUniqueId& id) noexcept;
  /// Of one that is about to be made of `comm`, the same in all that make the same. None: `comm` is
  /// no communicator that we know of.
  std::optional<Name> derive(ncclComm_t comm, std::uint64_t which);

  /// This process is about to be a rank; returns when the manager knows, if there is one.
  void begin(const Name& name);
  /// It is one, or has not become one.
  void made(const Name& name, ncclComm_t comm);
  void not_made(const Name& name);
  /// NCCL says who it is when the thread's group of calls ends.
  void made_in_group(const Name& name, const ncclComm_t* out);
  /// Of the thread that ends its group.
  void group_ended(bool is_good);
  /// For a call that ends it: whose name it had; afterwards not_made, or made where it failed.
  std::optional<Name> take(ncclComm_t comm);

  /// An operation of a communicator, as the job asks for it.
  struct Call {
    ncclComm_t comm;
    CUstream stream;
    bool is_of_all;  ///< all ranks make it
  };
  /// In a group of calls: it is submitted when the thread's group ends.
  void collect(const Call& call);
  /// Around what submits an operation, or (null) those of the thread's group. `before` may wait
  /// until other ranks have come.
  void before(const Call* call);
  void after();

  /// Before the context is destroyed: its events go with it.
  void context_ends(CUcontext context);

  void handle(const Packet& packet);
  /// Looks what has ended; returns how long nothing is due, in ns. `is_quiet`: nothing of this
  /// process is outstanding on a GPU.
  std::uint64_t step(bool is_quiet);
  /// A new connection: the manager may not know them.
  void resume(Connection& fresh);

 private:
  struct Order {
    bool operator()(const Name& a, const Name& b) const {
      return a.hi != b.hi ? a.hi < b.hi : a.lo < b.lo;
    }
  };
  struct Known {
    Name name;
    std::uint64_t derived = 0;
  };
  struct Pending {
    Name name;
    const ncclComm_t* out;
  };
  /// What this process is in a communicator.
  struct Rank {
    int communicators = 0;  ///< of threads that are ranks of it
    std::uint64_t submitted = 0;
    int inside = 0;  ///< threads between `before` and `after`
    bool meets = false;
    bool stays = false;           ///< can't meet
    bool is_outstanding = false;  ///< the latest had not ended at the last look
    bool has_event = false;       ///< `event` is behind the latest
    bool told_wait = false;
    std::uint64_t since_ns = 0;  ///< when it was submitted
    CUevent event = nullptr;
    CUcontext event_context = nullptr;
  };
  struct Passing {
    Name name;
    CUstream stream;
  };
  bool has_manager() const;
  std::vector<Passing> enter(const std::vector<Call>& calls, std::vector<Name>* meeting);
  void stay(const Name& name);
  void meet(const Name& name);
  bool record_event(const Passing& passing);
  void tell(const Name& name, const Rank& rank);

  Client& client_;
  void (*const wake_agent_)() noexcept;
  std::mutex mutex_;
  std::map<ncclComm_t, Known> known_;
  std::map<Name, Rank, Order> ranks_;
  std::multimap<std::uint64_t, Pending> pending_;          ///< by thread
  std::map<std::uint64_t, std::vector<Call>> collected_;   ///< by thread
  std::map<std::uint64_t, std::vector<Passing>> passing_;  ///< by thread
};

}  // namespace plexrl::shim
