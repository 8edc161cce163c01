#pragma once

#include <map>
#include <string>
#include <vector>

#include "clustermgr/job_records.h"
#include "clustermgr/nodes.h"
#include "clustermgr/placement/placer.h"
#include "clustermgr/placements.h"

namespace plexrl::clustermgr {

struct ChooserConfig {
  int max_sharers = 5;                   ///< of the same GPUs
  std::map<std::string, int> team_gpus;  ///< quotas
};

/// Where a job may run, by clustermgr/placement over the nodes as they are: what was placed, what
/// runs there without having been placed, and what is known of each.
///
/// A job gets GPUs of one node. Its gangs count as one that has all of them. Jobs take turns on a
/// set of GPUs; where running jobs overlap in some of theirs, these are one set.
///
/// One thread at a time; no clock.
class Chooser {
 public:
  explicit Chooser(ChooserConfig config);

  /// What is known, anew. All must live until the last `choose` after it.
  void look(const Nodes& nodes, const Placements& placements, const JobRecords& records);

  /// The record with the decision in it: PLACED, with node and GPUs; QUEUED; or REFUSED, because it
  /// could never be placed, or does not wait. What it places counts for the next call.
  cluster::v1::Placement choose(cluster::v1::Placement record);

  /// Replays how one group would run that could only be estimated, for later decisions; some
  /// milliseconds. False when there is none.
  bool replay_one() { return placer_.replay_one(); }

 private:
  struct Member {
    std::string label;  ///< user/name
    bool is_known = false;
  };
  /// A node's GPUs of one kind.
  struct Part {
    std::string node;
    std::string pool;
    std::int64_t usable_bytes = 0;  ///< of the smallest
    std::vector<std::string> gpus;  ///< UUIDs; all
    std::vector<std::string> free;  ///< and those in no slot
    bool is_usable = false;         ///< joined, not draining
    bool is_simulated = false;
    double out_bytes_s = 0, in_bytes_s = 0;  ///< of its slowest link; 0: not known
  };
  /// A job that has GPUs.
  struct Tenant {
    placement::JobProfile profile;
    std::vector<std::string> gpus;  ///< UUIDs
    bool is_settled = false;        ///< on GPUs of one kind; on others it counts as another job
  };
  using Uuids = google::protobuf::RepeatedPtrField<std::string>;

  void rebuild(const Uuids& only_gpus);
  void add_node(const NodeView& node, const Uuids& only_gpus);
  void set_machine();
  void add_tenants(const NodeView& node);
  std::vector<Tenant> tenants_of(const NodeView& node);
  void settle(Part& part, std::uint32_t number, std::vector<Tenant>& tenants);
  void adopt(Tenant& tenant, const Part& part, placement::SlotId slot);
  placement::JobProfile profile_of(const std::string& key, const cluster::v1::JobRequest& job,
                                   const cluster::v1::Job* running);
  placement::JobProfile profile_for(const cluster::v1::Placement& record, const std::string& pool);
  placement::JobId id_of(const std::string& key, const std::string& label);
  void forget_gone();

  std::string why_never(const cluster::v1::JobRequest& job,
                        std::vector<cluster::v1::Figure>& figures) const;
  placement::PlaceDecision try_pools(const cluster::v1::Placement& record);
  void take(const placement::PlaceDecision& made, cluster::v1::Placement& record);
  void tell(const placement::PlaceDecision& made, cluster::v1::Placement& record) const;
  cluster::v1::Choice told(const placement::Choice& choice) const;
  void describe(placement::SlotId slot, cluster::v1::Choice& out) const;
  void correlate_with(placement::SlotId slot, placement::JobId job, cluster::v1::Choice& out) const;
  std::string when_possible(const cluster::v1::JobRequest& job) const;

  ChooserConfig config_;
  placement::Placer placer_;
  const Nodes* nodes_ = nullptr;
  const Placements* placements_ = nullptr;
  const JobRecords* records_ = nullptr;
  bool is_current_ = false;  ///< `parts_` and the placer tell of all GPUs as they are
  std::vector<Part> parts_;  ///< a placement::NodeId is a place here
  std::map<std::uint32_t, std::vector<std::string>> slot_gpus_;
  std::map<std::string, placement::JobId> ids_;  ///< of placements, and of jobs without one
  std::map<placement::JobId, Member> members_;   ///< of those that were there at the last look
  std::uint64_t last_id_ = 0;
};

}  // namespace plexrl::clustermgr
