#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "nodemgr/node.h"

namespace plexrl::nodemgr {

/// Jobs: admitted when their promise fits the tiers, queued with figures and a remedy when it does
/// not (or refused at once with kJobNoWait, or when it never can), ended when plexrl-run and every
/// process have gone: those that joined, and those that may join yet (job_processes.h). One of the
/// latter, the survivor, is watched when nobody else is left; when it ends we look for another.
class Jobs {
 public:
  /// `idle` is called whenever the last job has gone.
  Jobs(Node& node, std::function<void()> idle) : node_(node), idle_(std::move(idle)) {}

  /// kJobParent: the job that the client's own, submitted next, is inside of.
  void name_parent(Client& client, const Packet& packet);
  void submit(Client& client, const Packet& packet);
  /// plexrl-run of a job that an earlier manager admitted.
  void resume(Client& client, const Packet& packet);
  void runner_disconnected(Job& job);
  void process_ended(Job& job) { end_if_gone(job); }
  /// From the journal: admitted, without a connection yet, perhaps with a survivor.
  void restore(std::unique_ptr<Job> job);
  /// Names the restored jobs in the new trace; no plexrl-run may be left that would.
  void trace_restored();
  /// Keeps what jobs have taught about their gaps, for their next runs and the next manager.
  void keep_gaps();
  /// Looks at the queue again; figures may have changed.
  void admit_waiting();

 private:
  bool fill(Job& job, const wire::JobSubmit& submit, std::string& why);
  /// Puts a new job into its team; false, and why, when it may not be there.
  bool join_team(Job& job, std::string& why) const;
  /// Before it becomes one of the node's jobs.
  void refuse(Client& client, std::uint64_t request, const Job& job, const std::string& why);
  void try_admit(Job& job, std::uint64_t request);
  void admitted(Job& job, std::uint64_t request);
  void end_if_gone(Job& job);
  bool lives_on(Job& job);
  void watch_survivor(Job& job);
  void look_again_soon();
  /// Memory of the host and of the disk that promises may count on comes back without a word.
  void look_at_queue_later();
  void watch_runner(Job& job);
  void remember(Job& job) const;
  void learn(Job& job);
  void keep_gaps(Job& job);
  static void warn(const Job& job, const absl::Status& status);

  Node& node_;
  std::function<void()> idle_;
};

/// What the journal keeps of a job, and a job made from it (null when a field makes no sense).
JournalRecord job_record(const Job& job);
std::unique_ptr<Job> job_from(const JournalRecord& record);

}  // namespace plexrl::nodemgr
