#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "nodemgr/node.h"
#include "nodemgr/paging_log.h"
#include "nodemgr/policy/step.h"
#include "nodemgr/recent_bursts.h"
#include "nodemgr/switch_log.h"

namespace plexrl::nodemgr {

/// Processes of one job that share a GPU, and the lease they hold together.
struct LeaseGang {
  policy::GangId id{};
  Job* job = nullptr;
  std::set<SessionKey> sessions;
  std::uint64_t gpus = 0;
  wire::Epoch epoch{};       ///< of the current lease; {0, 0}: none
  wire::Epoch last_epoch{};  ///< of the lease before, when there is none
  std::uint64_t attempt = 0;
  bool loading = false;
  bool goes_on = false;  ///< the lease follows one that processes of it had
  std::chrono::nanoseconds created{0};
  std::uint64_t gaps_noted = 0;  ///< of its policy state: gaps_shown that the job knows of
  std::chrono::nanoseconds not_checkpointed_before{0};
  std::chrono::nanoseconds not_returned_before{0};
  int failed_checkpoints = 0, failed_returns = 0;  ///< in a row
  std::string traced_state;
  policy::Decision last_decision;  ///< about it, evictions aside
  std::chrono::nanoseconds decided_at{0};
  std::chrono::nanoseconds grant_sent{0};
  std::int64_t loaded_bytes = 0, load_saved = 0;  ///< by copies, and without
  std::chrono::nanoseconds load_blocked{0};       ///< the longest of its processes': no room yet
  bool busy = false;
  std::uint64_t submitted = 0;  ///< by all its processes, as last seen

  struct Eviction {
    std::map<SessionKey, std::uint64_t> awaiting;  ///< how many bytes each was asked for
    bool failed = false;
    std::int64_t moved = 0, saved = 0;  ///< bytes, by copies, and without
    std::chrono::nanoseconds since{0};  ///< 0: none under way
  };
  std::map<int, Eviction> evictions;  ///< by GPU

  /// What a gang that is united with this one has not finished becomes this one's.
  void take_over(int gpu, const Eviction& from);
};

JournalRecord grant_record(const LeaseGang& gang);

/// As docs/contract.md names the gang's state.
const char* state_name(const policy::Gang& gang);

/// Between the messages of processes and the policy: collects what processes say into events about
/// gangs, steps the policy, and turns its decisions into messages, journal entries and trace
/// records.
///
/// Every function that changes something ends with `step()` by its caller, once for a packet.
class Leases {
 public:
  explicit Leases(Node& node);

  /// The process uses this GPU from now on: it joins, or unites, gangs of its job.
  void attach(Session& session, int gpu);
  /// The processes have to run together from now on: their gangs become one, with one lease. False:
  /// not now, while a lease begins or ends or memory leaves, or one of them has no gang yet.
  bool unite(Session& a, Session& b);
  /// These processes of a gang need not run with its others any more, with whom they have no GPU in
  /// common: from now on they are a gang of their own, with its own part of the lease. False: not
  /// now, while a lease ends or memory moves.
  bool part(LeaseGang& gang, const std::set<SessionKey>& sessions);
  /// Whether the process's gang has no lease, or one over all its GPUs.
  bool has_all_or_none(const Session& session) const;
  /// Has such a gang ask for all; false: it does.
  bool want_all(const Session& session);
  /// Whether there is something that the policy has yet to hear of.
  bool has_news() const { return !events_.empty(); }
  /// The process has ended.
  void leave(Session& session);
  /// Its connection was lost: it can't answer, and its gate may be open.
  void lost(Session& session);
  /// It is back (or new): sends the lease its gang has, if any.
  void joined(Session& session);
  /// It has said what it has (kResumeState), after a restart or a lost connection.
  void resumed(Session& session);
  /// A grant of an earlier manager that was not revoked: what processes may go on with.
  void remember(JournalRecord grant);
  /// Those of them that no process has come back for yet.
  std::vector<JournalRecord> remembered() const;
  /// Freezes the GPUs of processes that are still awaited, and thaws the others: there the lease
  /// that processes believe to have goes on if any of their gates is open, else it has ended. Which
  /// lease that is, the journal says; a gang that claims another one has to give the GPUs back.
  void thaw();

  void on_want(Session& session, const wire::WantLease& want);
  void on_loaded(Session& session, const wire::Loaded& loaded);
  void on_drained(Session& session, const wire::Drained& drained);
  void on_not_drained(Session& session, const wire::NotDrained& not_drained);
  void on_evicted(Session& session, const wire::Evicted& evicted);
  void on_prefetched(Session& session, const wire::Prefetched& prefetched);
  void on_activity(Session& session, const wire::Activity& activity);
  void on_exclusive(Session& session, const std::string& reason);
  void on_exiting(Session& session);

  /// Where the gang's contexts are, told to the policy with what that means for its memory.
  void set_absence(std::uint64_t gang, policy::Absence absence);
  /// Sends a grant that was held back to those who are on their GPUs now.
  void let_in(std::uint64_t gang);
  /// It has a lease, of which processes that are off their GPUs have not been told.
  bool is_held_back(const LeaseGang& gang) const;
  LeaseGang* find_gang(std::uint64_t gang) { return find(policy::GangId{gang}); }
  /// Called after each step.
  void add_after_step(std::function<void()> call) { after_step_.push_back(std::move(call)); }

  void memory_changed(const Session& session, int gpu);
  void gpu_changed(int gpu);
  /// The job's description (priority, paused) has changed.
  void job_changed(const Job& job);
  /// Hands these weights of teams to the policy.
  void set_weights(const std::map<std::string, double>& weights);
  void set_config(const policy::Config& config) { state_.config = config; }

  /// Lets the policy decide and carries it out; sets the loop's policy timer.
  void step();

  /// Notes in each job what its gangs have shown of their gaps.
  void note_gaps();

  const policy::State& state() const { return state_; }
  /// What the policy knows of a gang; null: nothing.
  const policy::Gang* state_of(policy::GangId id) const {
    const auto it = state_.gangs.find(id);
    return it == state_.gangs.end() ? nullptr : &it->second;
  }
  const std::map<std::uint64_t, LeaseGang>& gangs() const { return gangs_; }
  const RecentBursts& recent_bursts() const { return recent_; }
  bool is_switching() const;
  /// Pageable memory of the process may be on its way, in or out.
  bool moves_memory(const Session& session) const;
  /// So much memory of the process is on its way out of HBM, at most.
  std::uint64_t evicting_bytes(const Session& session) const;
  /// Writes to the trace which gangs are in a gap, where that is not known yet.
  void trace_open_gaps();
  bool has_untraced_gaps() const { return switches_.has_untold_gaps(); }
  /// The gaps of gangs, for whoever watches them and finds out what they are due to.
  SwitchLog& gaps() { return switches_; }
  const SwitchLog& gaps() const { return switches_; }
  std::uint64_t grants() const { return counter_; }

 private:
  LeaseGang* gang_of(const Session& session);
  LeaseGang* find(policy::GangId id);
  LeaseGang& create(Job& job);
  void adopt(std::uint64_t gpus);
  void adopt(LeaseGang& gang, bool unproven);
  bool is_journaled(const Session& session) const;
  void settle(LeaseGang& gang);
  void merge(LeaseGang& into, LeaseGang& from);
  void describe(const LeaseGang& gang);
  void note_gaps(LeaseGang& gang);
  void memory_event(const LeaseGang& gang, int gpu);
  void tell_memory(const LeaseGang& gang, int gpu);
  void update_wants(LeaseGang& gang);
  static void remember_want(Session& session, const wire::WantLease& want);
  void update_activity(LeaseGang& gang, std::chrono::nanoseconds at);
  /// Sees what the processes' pages say: their messages may be on the way.
  void read_activity_pages();
  /// Somebody waits, or can't be cut: whether holders get on matters.
  bool is_anyone_in_the_way() const;
  void check_drained(LeaseGang& gang);
  void check_loaded(LeaseGang& gang);
  void count_loaded(const Session& session, const wire::Loaded& loaded);
  void check_eviction(LeaseGang& gang, int gpu);

  void carry_out(const policy::Decision& decision);
  void withdraw(LeaseGang& gang, const policy::Decision& decision);
  void reopen(LeaseGang& gang, const policy::Decision& decision);
  void revoke(LeaseGang& gang, const policy::Decision& decision);
  void grant(LeaseGang& gang, const policy::Decision& decision);
  void run(LeaseGang& gang, const policy::Decision& decision);
  void evict(LeaseGang& gang, const policy::Decision& decision);
  void prefetch(LeaseGang& gang, const policy::Decision& decision);
  void hang(LeaseGang& gang, const policy::Decision& decision);
  void send_grant(LeaseGang& gang, Session& session, bool run_now);
  void trace_gang_of(const Session& session);
  void trace_decision(const policy::Decision& decision);
  void trace_state(LeaseGang& gang, const char* state, const std::string& reason);
  void journal_grant(const LeaseGang& gang);
  /// A lease has ended, or another has taken its place.
  void journal_end(const wire::Epoch& epoch);
  /// It has a lease or none, and nothing about that is under way.
  bool is_settled(const LeaseGang& gang) const;

  template <typename Visit>
  void each(const LeaseGang& gang, Visit visit) {
    for (SessionKey id : std::set<SessionKey>(gang.sessions)) {
      if (Session* session = node_.find_session(id)) visit(*session);
    }
  }

  Node& node_;
  policy::State state_;
  std::vector<policy::Event> events_;
  std::map<std::uint64_t, LeaseGang> gangs_;
  std::uint64_t counter_ = 0;  ///< of grants, in this generation
  RecentBursts recent_;
  SwitchLog switches_;
  PagingLog paging_;
  std::uint64_t crowded_ = 0;  ///< GPUs with more processes than the promises foresee, as last told
  bool stepping_ = false;
  std::vector<std::function<void()>> after_step_;
  std::uint64_t frozen_ = 0;  ///< GPUs
  std::map<wire::Epoch, JournalRecord> earlier_grants_;
};

}  // namespace plexrl::nodemgr
