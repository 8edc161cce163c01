#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nodemgr/gpu_probe.h"
#include "nodemgr/helper_process.h"
#include "nodemgr/leases.h"
#include "nodemgr/node.h"
#include "nodemgr/sessions.h"

namespace plexrl::nodemgr {

enum class CheckpointStage {
  kEmptying,  ///< its lease is being taken back, then its memory is evicted
  kReadying,  ///< its processes leave the driver
  kLeaving,   ///< the helper works
  kUndoing,   ///< after a failure
  kRoom,      ///< a return waits for the driver to show room
  kReturning,
};
/// One that is under way.
struct CheckpointOperation {
  std::uint64_t number = 0;
  std::uint64_t gang = 0;  ///< when it began
  CheckpointStage stage{};
  std::set<SessionKey> sessions;
  std::set<SessionKey> awaited;  ///< that have not left the driver
  std::chrono::nanoseconds began{0}, deadline{0};
  std::uint64_t lacking = ~std::uint64_t{0};         ///< least room that was missing so far
  std::chrono::nanoseconds pause{0}, not_before{0};  ///< between looks for it; the next one
  std::uint64_t bytes = 0;
  std::string why;  ///< it is undone
};

/// Driver checkpoints of jobs that were started with --evict=checkpoint: the contexts of a gang
/// that has done nothing for `policy.checkpoint_after` leave the GPU when a job that waits for
/// admission, or a checkpointed one that wants its GPU again, has room then and not before.
///
///     leave:  host memory booked → lease taken back → memory evicted → journal → kLeaveGpu,
///             kLeftGpu of all → plexrl-checkpoint leave → journal → away
///     return: promises good with it → granted, held back → the driver's figure shows the room
///             → plexrl-checkpoint return → journal → kBackOnGpu → grant sent
///
/// What is known to fail is refused before it starts, by name: managed memory, memory shared
/// between processes, pinned memory, handles that only the driver knows. A leave that fails at any
/// step is undone for all processes of the gang. A return is not tried before there is room,
/// because a driver may be unable to try twice
/// (https://github.com/NVIDIA/cuda-checkpoint/issues/44). Where the driver shows none, or the
/// return fails, the gang's lease is taken back meanwhile, and it is repeated, with longer and
/// longer pauses, until it succeeds or the processes have ended.
///
/// One operation at a time. While it runs the gang gets no lease, and jobs' threads that need the
/// driver wait in the shim. Where the helper or this manager is killed, the next return takes each
/// process from the state that it is in.
class Checkpoints {
 public:
  /// `room_changed` is called when jobs that are queued may fit now.
  Checkpoints(Node& node, Leases& leases, Sessions& sessions, GpuProbe& probe,
              std::function<void()> room_changed);

  /// kLeftGpu.
  void left(Session& session, const wire::LeftGpu& left);
  /// Does what can be done now; called after each step of the leases, and by a timer.
  void advance();

 private:
  bool settle_absences();
  void place_away(const std::set<SessionKey>& sessions);
  static bool comes_back(const policy::Gang& gang);
  bool begin_due_return();
  void look_for_room();
  bool let_return(LeaseGang& gang);
  void make_room(const std::function<bool(const Ledger&)>& fits, std::uint64_t for_gang);
  std::optional<std::chrono::nanoseconds> may_leave_at(const LeaseGang& gang) const;
  std::string refusal(const LeaseGang& gang) const;

  void begin_leave(LeaseGang& gang);
  void begin_return(const LeaseGang& gang);
  void work();
  void wait_till_empty();
  bool is_empty(const policy::Gang& gang);
  void make_ready();
  void ready();
  void start_helper(const char* what, std::chrono::nanoseconds patience,
                    const std::function<void(const HelperProcess::End&)>& done);
  void has_left(const HelperProcess::End& end);
  void undo(const std::string& why);
  void tell_lost(const HelperProcess::End& end);
  void undone(const HelperProcess::End& end);
  void call_off(const std::string& why);
  std::uint64_t lacking_room();
  void wait_for_room();
  void put_off(const std::string& why, bool has_touched);
  void has_returned(const HelperProcess::End& end);
  void finish();

  Session* living(SessionKey id) { return node_.find_session(id); }
  std::uint64_t gang_now() const;
  std::uint64_t fixed_bytes(const Session& session, int gpu) const;
  void record(const char* kind, const std::string& reason, std::chrono::nanoseconds took);
  void note(LeaseGang& gang, const std::string& why);
  static void complain(const LeaseGang& gang, const std::string& why);
  void journal(const char* place);
  void set_timer(std::chrono::nanoseconds at);

  Node& node_;
  Leases& leases_;
  Sessions& sessions_;
  GpuProbe& probe_;
  std::function<void()> room_changed_;
  HelperProcess helper_;
  std::optional<CheckpointOperation> operation_;
  std::uint64_t operations_ = 0;
  bool advancing_ = false;
};

/// "place": where a process was last known to be, for the journal.
JournalRecord place_record(const std::set<SessionKey>& sessions, const char* place);

}  // namespace plexrl::nodemgr
