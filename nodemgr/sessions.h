#pragma once

#include <functional>
#include <string>

#include "nodemgr/communicators.h"
#include "nodemgr/disk_requests.h"
#include "nodemgr/exports.h"
#include "nodemgr/leases.h"
#include "nodemgr/node.h"
#include "nodemgr/slab_requests.h"

namespace plexrl::nodemgr {

/// The processes of jobs: who may join, what they use, and when they are gone.
///
/// Every message was copied by packet.h; here its size, its fields' ranges and its sender's right
/// to send it are checked. What fails a check breaks the sender's connection, with kError.
class Sessions {
 public:
  /// `process_ended` is called when one has ended and its gang knows, so that others can look
  /// again.
  Sessions(Node& node, Leases& leases, std::function<void(Job&, const Session&)> process_ended)
      : node_(node), leases_(leases), process_ended_(std::move(process_ended)) {}

  /// kHello. The client becomes the session's, or is refused.
  void hello(Client& client, const Packet& packet);
  /// Anything else from a process.
  void message(Client& client, const Packet& packet);
  /// The job got SIGTERM: what it has of processes, and what joins later, comes first.
  void exiting(Job& job);
  /// The connection is gone; the process may live on and come back, or, after an exec, be another
  /// program, and then the session has ended.
  void disconnected(Session& session);
  /// A session known from the journal: it is awaited until it comes back or its process is dead.
  void expect(std::unique_ptr<Session> session);
  /// Has slabs made ahead for what may have to leave HBM, so that no switch waits for them.
  void reserve_slabs(int gpu);
  /// What becomes of kLeftGpu.
  void set_on_left(std::function<void(Session&, const wire::LeftGpu&)> call) {
    on_left_ = std::move(call);
  }
  bool is_sharing(SessionKey session) const { return exports_.is_sharing(session); }
  /// Of processes that have not come back since the restart: what slabs they have, as they have
  /// them mapped, until they say it themselves.
  void count_slabs_of_awaited();
  /// Slabs that are ready go to those who asked.
  void hand_out_slabs() { slab_requests_.hand_out(); }
  /// What the disk has done is told to those who asked.
  void hand_out_moves() { disk_requests_.hand_out(); }

 private:
  void welcome(Client& client, Session& session, std::uint64_t request);
  void end_replaced(const ProcessIdentity& process);
  Session* admit_new(Client& client, const wire::Hello& hello, Job& job);
  Session* admit_again(Client& client, const wire::Hello& hello, Job& job);
  bool make_pages(Session& session);
  void watch_process(Session& session);
  void ended(SessionKey id);
  bool is_replaced(const Session& session) const;
  void look_for_replaced();

  void attach_gpu(Session& session, const Packet& packet);
  void charge(Session& session, const Packet& packet);
  void pin(Session& session, const Packet& packet);
  void uncharge(Session& session, const Packet& packet);
  void memory_report(Session& session, const Packet& packet);
  void kinds(Session& session, const Packet& packet);
  void slab_request(Session& session, const Packet& packet);
  void slab_return(Session& session, const Packet& packet);
  void disk_staging(Session& session, const Packet& packet);
  void disk_report(Session& session, const Packet& packet);
  void disk_paged(Session& session, const Packet& packet);
  void slabs_held(Session& session, const Packet& packet);
  void resume_state(Session& session, const Packet& packet);
  void resumed(Session& session);
  void paged(Session& session, const Packet& packet);
  void lease_message(Session& session, const Packet& packet);
  void attach(Session& session, int gpu, std::uint64_t overhead);

  Node& node_;
  Leases& leases_;
  Exports exports_{node_};
  Communicators communicators_{node_, leases_};
  SlabRequests slab_requests_{node_, leases_};
  DiskRequests disk_requests_{node_};
  std::function<void(Job&, const Session&)> process_ended_;
  std::function<void(Session&, const wire::LeftGpu&)> on_left_;
};

JournalRecord process_record(const Session& session);
/// That the process uses the GPU, and how much of it is set aside for its context and modules.
JournalRecord attach_record(const Node& node, const Session& session, int gpu);

/// Refuses a packet that makes no sense: kError to its sender, whose connection then ends.
void refuse_packet(Client& client, const Packet& packet, wire::ErrorCode code,
                   const std::string& why);

}  // namespace plexrl::nodemgr
