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
/// What comes in packets is checked: figures in range, names known, both sides of one job.
class Exports {
 public:
  explicit Exports(Node& node) noexcept : node_(node) {}

  static bool is_for_me(wire::Type type);
  /// False: the packet makes no sense.
  [[nodiscard]] bool handle(Session& session, const Packet& packet);

  /// The process is gone; its slabs are still its own.
  void session_gone(const Session& session);

 private:
  struct Parked {
    std::uint64_t slab;
    std::uint64_t offset;
  };
  struct Entry {
    SessionKey owner = 0;
    JobKey job = 0;
    wire::Export what{};
    bool ended = false;  ///< freed by its owner: no new importers
    std::set<SessionKey> importers;
    std::map<std::uint32_t, Parked> parked;  ///< by chunk
  };

  bool on_export(Session& session, const Packet& packet);
  bool on_import(Session& session, const Packet& packet);
  bool on_fetch(Session& session, const Packet& packet);
  bool on_handles(Session& session, const Packet& packet);
  bool on_parked(Session& session, const Packet& packet);
  bool on_closed(Session& session, const Packet& packet);
  bool on_ended(Session& session, const Packet& packet);

  /// An entry of the session's job; null: no such one.
  Entry* find(const Session& session, std::uint64_t id);
  /// One import less; forgets the entry when it was the last of a freed one.
  void leave(std::uint64_t id, SessionKey importer);
  void bequeath(std::uint64_t id, Entry& entry, const Session& dead);

  Node& node_;
  std::map<std::uint64_t, Entry> entries_;
  std::uint64_t next_id_ = 1;
};

}  // namespace plexrl::nodemgr
