// Requests for places, from the first question to the end of the job.
#include "clustermgr/cluster.h"
#include "clustermgr/unix_time.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::clustermgr {
namespace {

namespace v1 = cluster::v1;
using nodemgr::cat;
using nodemgr::log_line;
using nodemgr::LogLevel;

constexpr char kPlacementPrefix[] = "placement/";
constexpr char kProfilePrefix[] = "profile/";

std::string key_of(const std::string& user, const std::string& name) {
  return cat(kProfilePrefix, user, "/", name);
}

Change change_of(const v1::Placement& record) {
  return {cat(kPlacementPrefix, record.id()), record.SerializeAsString()};
}

std::string words_of(const v1::Placement& record) {
  const std::string job =
      cat("job='", record.job().user(), "/", record.job().name(), "' placement=", record.id());
  switch (record.state()) {
    case v1::Placement::QUEUED:
      return cat("waits ", job, ": ", record.decision().reason());
    case v1::Placement::PLACED:
      return cat("placed ", job, " node='", record.node(), "': ", record.decision().reason());
    case v1::Placement::RUNNING:
      return cat("runs ", job, " node='", record.node(), "' id=", record.job_id(),
                 record.slurm_job_id() == 0 ? "" : cat(" slurm=", record.slurm_job_id()));
    case v1::Placement::REFUSED:
      return cat("refused ", job, ": ", record.decision().reason());
    default:
      return cat("over ", job, ": ", record.ended_reason());
  }
}

/// Reads every entry under a prefix, each as a Record.
template <typename Record, typename Take>
absl::Status read_all(Store& store, const char* prefix, Take take) {
  const auto stored = store.list(prefix);
  if (!stored.ok()) return stored.status();
  for (const auto& [key, value] : *stored) {
    Record record;
    if (!record.ParseFromString(value)) {
      return absl::DataLossError(
          cat("the store's entry '", key, "' can't be read: put a backup in place"));
    }
    take(std::move(record));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Cluster::restore_placements() {
  absl::Status status = read_all<v1::Placement>(
      store_, kPlacementPrefix,
      [this](v1::Placement record) { placements_.put(std::move(record), now()); });
  if (!status.ok()) return status;
  return read_all<v1::JobRecord>(store_, kProfilePrefix, [this](v1::JobRecord record) {
    records_.remember(std::move(record));
  });
}

absl::StatusOr<v1::Placement> Cluster::place(const v1::PlaceJobRequest& request) {
  absl::Status status = Placements::check(request);
  if (!status.ok()) return status;
  const std::lock_guard one(changing_);
  const PlacementView* const known = placements_.find(request.id());
  // One that was given up because its requester had been silent, which was stopped, say. Who keeps
  // the place of a job that another one begins may ask once more when that has ended.
  const bool begins_again = known != nullptr && known->record.state() == v1::Placement::ENDED &&
                            known->record.ended_reason() == Placements::kRequesterGone;
  if (known == nullptr && !request.job_id().empty()) {
    return absl::NotFoundError("there is no placement of that id: the job counts as any other");
  }
  if (known == nullptr || (begins_again && request.job_id().empty())) {
    return place_newcomer(request);
  }
  if (known->record.job().user() != request.job().user()) {
    return absl::PermissionDeniedError("this placement is another user's");
  }
  v1::Placement record = known->record;
  const bool runs = record.state() == v1::Placement::PLACED && !request.job_id().empty();
  const bool is_slurms = known->has_place() && request.slurm_job_id() != 0 &&
                         request.slurm_job_id() != record.slurm_job_id();
  if (runs) {
    record.set_state(v1::Placement::RUNNING);
    record.set_job_id(request.job_id());
  }
  if (is_slurms) record.set_slurm_job_id(request.slurm_job_id());
  if (runs || is_slurms) {
    status = settle({record});
    if (!status.ok()) return status;
  }
  const std::lock_guard lock(mu_);
  placements_.heard(request.id(), now());
  return record;
}

absl::StatusOr<v1::Placement> Cluster::place_newcomer(const v1::PlaceJobRequest& request) {
  absl::StatusOr<v1::Placement> record = placements_.newcomer(request, unix_ns());
  if (!record.ok()) return record.status();
  chooser_.look(nodes_, placements_, records_);
  if (placements_.has_waited_enough()) {
    record->mutable_decision()->set_reason("others have waited for long, and are placed first");
    record->mutable_decision()->set_when("when these are placed");
    if (request.job().no_wait()) record->set_state(v1::Placement::REFUSED);
  } else {
    *record = decide(*std::move(record));
  }
  record->mutable_decision()->set_decided_unix_ns(unix_ns());
  if (record->state() == v1::Placement::REFUSED) record->set_ended_unix_ns(unix_ns());
  absl::Status status = settle({*record});
  if (!status.ok()) return status;
  return record;
}

v1::Placement Cluster::decide(v1::Placement record) {
  const std::chrono::nanoseconds begin = now();
  record = chooser_.choose(std::move(record));
  metrics_.count_decision(record.state() == v1::Placement::PLACED    ? "placed"
                          : record.state() == v1::Placement::REFUSED ? "refused"
                                                                     : "queued",
                          now() - begin);
  return record;
}

absl::Status Cluster::end_placement(const v1::EndPlacementRequest& request,
                                    const std::string& user) {
  const std::lock_guard one(changing_);
  const PlacementView* const known = placements_.find(request.id());
  if (known == nullptr) return absl::OkStatus();
  if (!user.empty() && known->record.job().user() != user) {
    return absl::PermissionDeniedError(cat("this placement is of user ", known->record.job().user(),
                                           ", and the certificate of ", user,
                                           ": only an admin may end it"));
  }
  if (!known->is_waiting() && !known->has_place()) return absl::OkStatus();
  constexpr std::size_t kLongest = 512;
  absl::Status status =
      settle({Placements::ended(known->record, request.reason().substr(0, kLongest), unix_ns())});
  run_queue();
  return status;
}

absl::StatusOr<v1::Placement> Cluster::placement(const std::string& job) const {
  const std::lock_guard lock(mu_);
  return placements_.find_job(job);
}

/// Stores the records, then they count. Those whose places become free make the queue due.
absl::Status Cluster::settle(const Placements::Records& records) {
  if (records.empty()) return absl::OkStatus();
  std::vector<Change> changes;
  for (const v1::Placement& record : records) changes.push_back(change_of(record));
  const absl::Status status = write(changes);
  if (!status.ok()) return status;
  std::vector<Change> old;
  {
    const std::lock_guard lock(mu_);
    for (const v1::Placement& record : records) placements_.put(record, now());
    for (const std::string& id : placements_.too_old()) {
      old.push_back({cat(kPlacementPrefix, id), std::nullopt});
      placements_.forget(id);
    }
  }
  // What stays there by a failure is read and put away again at the next start.
  if (!old.empty()) write(old).IgnoreError();
  for (const v1::Placement& record : records) {
    log_line(LogLevel::kInfo, "placement", words_of(record));
    is_queue_due_ |= record.state() == v1::Placement::ENDED;
  }
  return absl::OkStatus();
}

void Cluster::add_news(const v1::ReportNodeRequest& report, std::vector<v1::JobRecord>& news,
                       std::vector<Change>& changes) const {
  for (const v1::Job& job : report.jobs()) {
    std::optional<v1::JobRecord> record = records_.news(job, unix_ns());
    if (!record) continue;
    changes.push_back({key_of(record->user(), record->name()), record->SerializeAsString()});
    news.push_back(*std::move(record));
  }
}

void Cluster::take_news(std::vector<v1::JobRecord> news) {
  for (v1::JobRecord& record : news) records_.remember(std::move(record));
  while (const auto oldest = records_.too_many()) {
    const Change changes[] = {{key_of(oldest->first, oldest->second), std::nullopt}};
    write(changes).IgnoreError();  // then it is there at the next start, and put away again
    records_.forget(oldest->first, oldest->second);
  }
}

void Cluster::end_unwanted() {
  Placements::Records over = placements_.given_up(now(), unix_ns());
  for (const auto& [name, node] : nodes_.all()) {
    if (!nodes_.is_given_up(node, now())) continue;
    for (v1::Placement& record : placements_.lost_with(name, unix_ns())) {
      over.push_back(std::move(record));
    }
  }
  settle(over).IgnoreError();  // a failure is seen in readiness; tried again at the next tick
}

/// Places what can be placed now of those that wait, in the order in which they came.
void Cluster::run_queue() {
  if (!is_queue_due_) return;
  is_queue_due_ = false;
  const std::vector<std::string> queue = placements_.queue();
  if (queue.empty()) return;
  chooser_.look(nodes_, placements_, records_);
  for (const std::string& id : queue) {
    v1::Placement record = decide(placements_.find(id)->record);
    record.mutable_decision()->set_decided_unix_ns(unix_ns());
    if (record.state() != v1::Placement::QUEUED) {
      if (record.state() == v1::Placement::REFUSED) record.set_ended_unix_ns(unix_ns());
      const PlacementView before = *placements_.find(id);
      if (!settle({record}).ok()) {
        is_queue_due_ = true;
        return;
      }
      // Being placed is no sign of life of who asked for it.
      const std::lock_guard lock(mu_);
      placements_.heard(id, before.heard);
      continue;
    }
    const bool is_enough = record.overtaken() >= Placements::kMostOvertaken;
    const std::lock_guard lock(mu_);
    placements_.explain(id, *record.mutable_decision());
    if (is_enough) return;
  }
}

}  // namespace plexrl::clustermgr
