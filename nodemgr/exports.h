#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "nodemgr/node.h"
#include "nodemgr/packet.h"
#include "shim/wire.h"

namespace plexrl::nodemgr {

/// Device memory that a process lets others of its job have (docs/architecture.md, "Memory that
/// processes share").
///
/// The owner registers it and gets a name and a tag; whoever shows both, and is of the same job, is
/// an importer. Driver handles are only passed through, from the owner to the importer that asked;
/// none is kept here, because one that is open keeps its memory in HBM. Where the owner has put
/// evicted bytes is remembered until it says otherwise, so that a survivor can have them when it
/// dies.
///
/// A manager that was restarted is told anew, by each process for itself. An import of memory that
/// it does not know is a claim, until its owner says that it has it, or all processes of the job
/// have said what they have. Then the owner is dead: the first claimant that has all of it mapped
/// gets it.
///
/// What comes in packets is checked: figures in range, names known, both sides of one job. A name
/// means something within its job only: another job that says the same one is in nobody's way.
class Exports {
 public:
  explicit Exports(Node& node) noexcept : node_(node) {}

  static bool is_for_me(wire::Type type);
  /// Whether the process has memory of another one, or another one has its.
  bool is_sharing(SessionKey session) const;
  /// False: the packet makes no sense.
  [[nodiscard]] bool handle(Session& session, const Packet& packet);

  /// The process is gone, and no session any more; its slabs are still its own.
  void session_gone(const Session& session);
  /// Nobody waits any more for a process of this job to say what it shares: once all of them have,
  /// what depends on that is done.
  void told(JobKey job);

 private:
  struct Parked {
    std::uint64_t slab;
    std::uint64_t offset;
  };
  struct Entry {
    SessionKey owner = 0;
    wire::Export what{};
    bool ended = false;  ///< freed by its owner: no new importers
    std::set<SessionKey> importers;
    std::map<std::uint32_t, Parked> parked;  ///< by chunk
  };
  struct Claim {
    wire::Id128 tag{};
    std::set<SessionKey> importers;
    SessionKey candidate = 0;  ///< has been asked to be the owner
  };
  /// What a job shares, by id.
  struct Shares {
    std::map<std::uint64_t, Entry> entries;
    std::map<std::uint64_t, Claim> claims;
  };

  bool on_export(Session& session, const Packet& packet);
  bool on_import(Session& session, const Packet& packet);
  bool on_fetch(Session& session, const Packet& packet);
  bool on_handles(Session& session, const Packet& packet);
  bool on_parked(Session& session, const Packet& packet);
  bool on_closed(Session& session, const Packet& packet);
  bool on_ended(Session& session, const Packet& packet);

  Shares& shares_of(const Session& session) { return shares_[session.job->key]; }
  /// Null: no such one.
  static Entry* find(Shares& shares, std::uint64_t id);
  /// One import less; forgets the entry when it was the last of a freed one.
  void leave(const Session& importer, std::uint64_t id);
  /// What is left of a freed entry when nobody imports it: its owner is told. False: not yet.
  bool end_if_unused(JobKey job, std::uint64_t id, const Entry& entry);
  void bequeath(std::uint64_t id, Entry& entry, const Session& dead);
  /// Tells the heir what was parked, in slabs that were `from`'s, and that it owns the memory.
  void hand_to_heir(std::uint64_t id, Entry& entry, Session& heir, SessionKey from);

  bool claim(Session& session, const wire::Import& import);
  /// The owner is there: who has claimed the memory imports it.
  void owner_back(Shares& shares, std::uint64_t id, Entry& entry);
  /// One claimant less.
  void give_up_claim(Shares& shares, std::uint64_t id, SessionKey importer);
  bool on_told(Session& session);
  bool is_all_told(JobKey job) const;
  /// Whether it can be the owner; a second question changes nothing for one that is already.
  static void ask(std::uint64_t id, Claim& claim, Session& candidate);
  void ask_next(std::uint64_t id, Claim& claim);

  Node& node_;
  std::map<JobKey, Shares> shares_;
  std::uint64_t next_id_ = 1;
};

}  // namespace plexrl::nodemgr
