#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "nodemgr/node.h"
#include "nodemgr/packet.h"

namespace plexrl::nodemgr {

/// What processes ask of the disk tier: their memory is written to a file of theirs and read back.
///
/// The manager keeps of it no more than how many bytes of each file are in use. Places, nonces and
/// tags are the process's, and come with each request, as does the memory: a sealed memfd, which
/// can't block who reads and writes it. A process that comes back after a restart of the manager
/// brings its file: a descriptor that only names it, which is opened again if the journal knows the
/// file as this process's. A file ends with its process.
class DiskRequests {
 public:
  explicit DiskRequests(Node& node) : node_(node) {}

  static bool is_for_me(wire::Type type);
  /// False: the packet is malformed. Without a disk tier it is answered with kError.
  [[nodiscard]] bool handle(Session& session, const Packet& packet);
  /// Its connection is gone: answers to what it asked are not sent to the next one.
  void forget(SessionKey session) { asked_.erase(session); }
  void ended(SessionKey session);
  /// What is done is told to those who asked.
  void hand_out();

 private:
  bool file(Session& session, const Packet& packet);
  bool held(Session& session, const Packet& packet);
  bool move(Session& session, const Packet& packet);
  bool discard(const Session& session, const Packet& packet);
  void say_failed(const Session& session, const disk::DiskStore::Result& result);

  Node& node_;
  /// By session: the store's number of the request → the process's.
  std::map<SessionKey, std::map<std::uint64_t, std::uint64_t>> asked_;
  std::uint64_t next_ = 1;
  std::set<SessionKey> said_full_;  ///< not for each chunk
};

/// That the process has this file.
JournalRecord spill_record(SessionKey session, std::uint64_t inode);

}  // namespace plexrl::nodemgr
