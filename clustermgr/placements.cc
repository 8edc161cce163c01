#include "clustermgr/placements.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/values.h"

namespace plexrl::clustermgr {
namespace {

namespace v1 = cluster::v1;
using nodemgr::cat;
using nodemgr::invalid;
using nodemgr::settings::format_bytes;

constexpr std::size_t kLongestText = 512;
constexpr int kMostGpus = 64;
constexpr int kMostNames = 64;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 50;

bool is_id(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool is_live(const PlacementView& view) { return view.is_waiting() || view.has_place(); }

absl::Status check_texts(const v1::JobRequest& job) {
  if (job.user().empty() || job.name().empty()) return invalid("a job needs a user and a name");
  for (const std::string& text : {job.user(), job.name(), job.team()}) {
    if (text.size() > kLongestText) {
      return invalid("a job's user, name or team is above 512 bytes");
    }
  }
  if (job.apart_from_size() > kMostNames || job.only_gpus_size() > kMostNames) {
    return invalid("at most 64 jobs to be apart from, or GPUs to choose from, can be named");
  }
  for (const auto* const list : {&job.apart_from(), &job.only_gpus()}) {
    for (const std::string& text : *list) {
      if (text.empty() || text.size() > kLongestText) {
        return invalid("a job or GPU that is named has no name, or one above 512 bytes");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Placements::check(const v1::PlaceJobRequest& request) {
  if (!is_id(request.id())) return invalid("the request's id is not 32 hex digits");
  if (!request.job_id().empty() && !is_id(request.job_id())) {
    return invalid("the job's id is not 32 hex digits");
  }
  const v1::JobRequest& job = request.job();
  if (job.gpus() < 1 || job.gpus() > kMostGpus) {
    return invalid("--gpus ", job.gpus(), ": 1 to 64 are possible");
  }
  if (job.nodes() < 1) return invalid("--nodes ", job.nodes(), ": give 1");
  if (job.memory_bytes() > kMostBytes) {
    return invalid("--memory: ", format_bytes(job.memory_bytes()), " is more than any GPU has");
  }
  if (!std::isfinite(job.max_slowdown()) || (job.max_slowdown() != 0 && job.max_slowdown() <= 1)) {
    return invalid("--max-slowdown ", job.max_slowdown(), ": give a ratio above 1");
  }
  return check_texts(job);
}

const PlacementView* Placements::find(const std::string& id) const {
  const auto it = all_.find(id);
  return it == all_.end() ? nullptr : &it->second;
}

absl::StatusOr<v1::Placement> Placements::find_job(const std::string& word) const {
  const PlacementView* best = nullptr;
  const auto is_better = [&](const PlacementView& view) {
    return best == nullptr || std::pair(is_live(view), view.record.number()) >
                                  std::pair(is_live(*best), best->record.number());
  };
  for (const auto& [id, view] : all_) {
    if (word.empty()) break;
    if (id == word || view.record.job_id() == word) return view.record;
    const bool is_meant =
        view.record.job().name() == word ||
        (view.record.slurm_job_id() != 0 && cat("slurm:", view.record.slurm_job_id()) == word);
    if (is_meant && is_better(view)) best = &view;
  }
  if (best != nullptr) return best->record;
  constexpr std::size_t kLeastDigits = 4;
  std::set<std::string> found;
  if (word.size() >= kLeastDigits) {
    for (const auto& [id, view] : all_) {
      if (id.starts_with(word) || view.record.job_id().starts_with(word)) found.insert(id);
    }
  }
  if (found.size() == 1) return all_.at(*found.begin()).record;
  if (found.size() > 1) return invalid("'", word, "' begins the ids of several jobs: give more");
  return absl::NotFoundError(
      cat("no placement of a job '", word, "': give its id, the beginning of one (4 digits or ",
          "more), or its name; jobs that were started without plexrl-run --cluster have none"));
}

std::vector<std::string> Placements::queue() const {
  std::vector<std::pair<std::uint64_t, std::string>> waiting;
  for (const auto& [id, view] : all_) {
    if (view.is_waiting()) waiting.emplace_back(view.record.number(), id);
  }
  std::sort(waiting.begin(), waiting.end());
  std::vector<std::string> ids;
  for (auto& [number, id] : waiting) ids.push_back(std::move(id));
  return ids;
}

bool Placements::has_waited_enough() const {
  return std::any_of(all_.begin(), all_.end(), [](const auto& entry) {
    return entry.second.is_waiting() && entry.second.record.overtaken() >= kMostOvertaken;
  });
}

absl::StatusOr<v1::Placement> Placements::newcomer(const v1::PlaceJobRequest& request,
                                                   std::int64_t now_unix_ns) const {
  std::uint64_t last = 0;
  std::size_t live = 0;
  for (const auto& [id, view] : all_) {
    last = std::max(last, view.record.number());
    live += is_live(view) ? 1 : 0;
  }
  if (live >= kMostLive) {
    return absl::ResourceExhaustedError(
        cat(live, " jobs are placed or wait already: try again when some have ended"));
  }
  v1::Placement record;
  record.set_id(request.id());
  *record.mutable_job() = request.job();
  record.set_state(v1::Placement::QUEUED);
  record.set_asked_unix_ns(now_unix_ns);
  record.set_number(last + 1);
  return record;
}

v1::Placement Placements::ended(v1::Placement record, const std::string& reason,
                                std::int64_t now_unix_ns) {
  record.set_state(v1::Placement::ENDED);
  record.set_ended_reason(reason);
  record.set_ended_unix_ns(now_unix_ns);
  return record;
}

Placements::Records Placements::ended_by(const v1::ReportNodeRequest& report,
                                         std::int64_t now_unix_ns) {
  std::set<std::string> there;
  for (const v1::Job& job : report.jobs()) there.insert(job.id());
  Records over;
  for (auto& [id, view] : all_) {
    if (view.record.state() != v1::Placement::RUNNING || view.record.node() != report.node()) {
      continue;
    }
    if (there.contains(view.record.job_id())) {
      view.is_seen = true;
      continue;
    }
    // The first report may have been made before the job began; its agent makes one at a time.
    ++view.reports_without;
    if (view.is_seen || view.reports_without >= 2) {
      over.push_back(ended(view.record, "the job has ended", now_unix_ns));
    }
  }
  return over;
}

Placements::Records Placements::ended_with(const std::string& node,
                                           std::int64_t now_unix_ns) const {
  Records over;
  for (const auto& [id, view] : all_) {
    if (view.record.state() == v1::Placement::RUNNING && view.record.node() == node) {
      over.push_back(ended(view.record, "the job has ended", now_unix_ns));
    }
  }
  return over;
}

Placements::Records Placements::lost_with(const std::string& node, std::int64_t now_unix_ns) const {
  Records over;
  for (const auto& [id, view] : all_) {
    if (view.has_place() && view.record.node() == node) {
      over.push_back(ended(view.record, cat("node ", node, " is lost"), now_unix_ns));
    }
  }
  return over;
}

Placements::Records Placements::given_up(Instant now, std::int64_t now_unix_ns) const {
  Records over;
  for (const auto& [id, view] : all_) {
    if (!is_live(view) || view.record.state() == v1::Placement::RUNNING) continue;
    if (now - view.heard < lost_after_) continue;
    over.push_back(ended(view.record, kRequesterGone, now_unix_ns));
  }
  return over;
}

std::vector<std::string> Placements::too_old() const {
  std::vector<std::pair<std::int64_t, std::string>> over;
  for (const auto& [id, view] : all_) {
    if (!is_live(view)) over.emplace_back(view.record.ended_unix_ns(), id);
  }
  if (over.size() <= kMostEnded) return {};
  std::sort(over.begin(), over.end());
  over.resize(over.size() - kMostEnded);
  std::vector<std::string> ids;
  for (auto& [at, id] : over) ids.push_back(std::move(id));
  return ids;
}

void Placements::put(v1::Placement record, Instant now) {
  PlacementView& view = all_[record.id()];
  const bool is_placed_now =
      record.state() == v1::Placement::PLACED && view.record.state() != v1::Placement::PLACED;
  const bool runs_now =
      record.state() == v1::Placement::RUNNING && view.record.state() != v1::Placement::RUNNING;
  const std::uint64_t number = record.number();
  view.record = std::move(record);
  view.heard = now;
  if (runs_now) {
    view.is_seen = false;
    view.reports_without = 0;
  }
  if (!is_placed_now) return;
  for (auto& [id, other] : all_) {
    if (other.is_waiting() && other.record.number() < number) {
      other.record.set_overtaken(other.record.overtaken() + 1);
    }
  }
}

void Placements::heard(const std::string& id, Instant now) { all_.at(id).heard = now; }

void Placements::explain(const std::string& id, v1::Decision decision) {
  *all_.at(id).record.mutable_decision() = std::move(decision);
}

}  // namespace plexrl::clustermgr
