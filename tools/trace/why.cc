#include "tools/trace/why.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "nodemgr/settings/values.h"
#include "tools/cli/format.h"
#include "tools/cli/job_match.h"

namespace plexrl::trace {
namespace {

absl::StatusOr<const Job*> job_at(const Model& model, const std::string& word, std::int64_t at_ns) {
  std::vector<cli::NamedJob> all, then;
  for (const Job& job : model.jobs) {
    all.push_back({job.id, model.job_name(job.id)});
    if (job.start_ns - job.queued_ns <= at_ns && at_ns <= job.end_ns) then.push_back(all.back());
  }
  auto id = cli::find_job(then, word);
  if (absl::IsNotFound(id.status())) id = cli::find_job(all, word);
  if (!id.ok()) return id.status();
  return model.find_job(*id);
}

const Slice* slice_at(const Gang& gang, std::int64_t at_ns) {
  for (const Slice& slice : gang.slices) {
    if (slice.start_ns <= at_ns && at_ns < slice.end_ns) return &slice;
  }
  return nullptr;
}

bool is_about(const Decision& decision, const Gang& gang) {
  return decision.record.job_id() == gang.job_id && decision.record.gang() == gang.id;
}

// Decisions are in the order in which they were written, which is that of their times.
const Decision* last_until(const Model& model, const Gang& gang, std::int64_t at_ns) {
  const Decision* last = nullptr;
  for (const Decision& decision : model.decisions) {
    if (decision.at_ns <= at_ns && is_about(decision, gang)) last = &decision;
  }
  return last;
}

const Decision* first_after(const Model& model, const Gang& gang, std::int64_t at_ns) {
  for (const Decision& decision : model.decisions) {
    if (decision.at_ns > at_ns && is_about(decision, gang)) return &decision;
  }
  return nullptr;
}

bool holds(const Slice& slice) {
  return slice.state == "running" || slice.state == "draining" || slice.state == "loading";
}

// A gang that waits names its GPUs in its slice or, from older managers, in the decision alone.
std::uint64_t gpus_of(const GangThen& then) {
  const std::uint64_t mask = then.slice == nullptr ? 0 : then.slice->gpus_mask;
  return mask == 0 && then.last != nullptr ? then.last->record.gpus_mask() : mask;
}

void add_holders(const Model& model, std::int64_t at_ns, GangThen& then) {
  for (const int gpu : gpus_in(gpus_of(then))) {
    for (const Gang& other : model.gangs) {
      const Slice* slice = &other == then.gang ? nullptr : slice_at(other, at_ns);
      if (slice == nullptr || !holds(*slice) || ((slice->gpus_mask >> gpu) & 1) == 0) continue;
      then.holders.push_back(
          {static_cast<std::uint32_t>(gpu), &other, slice, last_until(model, other, at_ns)});
    }
  }
}

Json slice_then(const Model& model, const Slice* slice) {
  if (slice == nullptr) return {};
  Json object = {{"state", slice->state}};
  object["since"] = moment_json(model, slice->start_ns);
  object["until"] = moment_json(model, slice->end_ns);
  object["reason"] = slice->reason.empty() ? Json() : Json(slice->reason);
  return object;
}

Json decision_or_null(const Model& model, const Decision* decision) {
  return decision == nullptr ? Json() : decision_json(model, *decision);
}

}  // namespace

absl::StatusOr<Why> explain(const Model& model, const std::string& word) {
  const auto at = word.rfind('@');
  if (at == std::string::npos || at == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", word, "' is not JOB@TIME: say, ppo@12s, with a time from the trace's beginning"));
  }
  const auto time = nodemgr::settings::parse_duration(word.substr(at + 1));
  if (!time.ok()) return time.status();
  Why why{.job = nullptr, .at_ns = model.start_ns + time->count(), .gangs = {}};
  if (why.at_ns > model.end_ns) {
    return absl::OutOfRangeError(absl::StrCat(
        "the trace ends after ", cli::format_ns(static_cast<double>(model.end_ns - model.start_ns)),
        ", before ", word.substr(at + 1)));
  }
  const auto job = job_at(model, word.substr(0, at), why.at_ns);
  if (!job.ok()) return job.status();
  why.job = *job;
  for (const Gang* gang : model.gangs_of(why.job->id)) {
    GangThen& then = why.gangs.emplace_back();
    then.gang = gang;
    then.slice = slice_at(*gang, why.at_ns);
    then.last = last_until(model, *gang, why.at_ns);
    then.next = first_after(model, *gang, why.at_ns);
    add_holders(model, why.at_ns, then);
  }
  return why;
}

Json why_json(const Model& model, const Why& why) {
  Json object = head_json(model);
  Json& inner = object["why"] = moment_json(model, why.at_ns);
  inner["job"] = why.job->id;
  inner["name"] = model.job_name(why.job->id);
  inner["gangs"] = Json::array();
  for (const GangThen& then : why.gangs) {
    Json line = {{"gang", std::to_string(then.gang->id)}};
    line["then"] = slice_then(model, then.slice);
    line["last_decision"] = decision_or_null(model, then.last);
    line["next_decision"] = decision_or_null(model, then.next);
    line["holders"] = Json::array();
    for (const Holder& holder : then.holders) {
      line["holders"].push_back({{"gpu", holder.gpu},
                                 {"job", holder.gang->job_id},
                                 {"name", model.job_name(holder.gang->job_id)},
                                 {"gang", std::to_string(holder.gang->id)},
                                 {"then", slice_then(model, holder.slice)},
                                 {"last_decision", decision_or_null(model, holder.decision)}});
    }
    inner["gangs"].push_back(std::move(line));
  }
  return object;
}

}  // namespace plexrl::trace
