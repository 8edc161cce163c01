// What the policy decided last about a job's gangs, in words and with the figures it decided on.
#include "nodemgr/admin_parts.h"
#include "nodemgr/ids.h"
#include "nodemgr/policy/withdrawal.h"
#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/values.h"

namespace plexrl::nodemgr {
namespace {

Json figures_json(const std::vector<policy::Figure>& figures) {
  Json json = Json::object();
  for (const policy::Figure& figure : figures) json[figure.name] = figure.value;
  return json;
}

std::string span(std::chrono::nanoseconds time) {
  return settings::format_duration(std::max(time, std::chrono::nanoseconds{0}));
}

std::string name_of(const AdminContext& context, policy::GangId id) {
  auto gang = context.leases.gangs().find(static_cast<std::uint64_t>(id));
  return gang == context.leases.gangs().end() ? "another" : cat("'", gang->second.job->name, "'");
}

std::string decided(const AdminContext& context, const policy::Decision& decision) {
  using Kind = policy::Decision::Kind;
  const std::string& reason = decision.reason;
  switch (decision.kind) {
    case Kind::kWithdraw:
      return decision.other == decision.gang ? cat("its lease is taken back: ", reason)
                                             : cat("its lease is taken back for ",
                                                   name_of(context, decision.other), ": ", reason);
    case Kind::kReopen:
      return cat("it keeps its lease: ", reason);
    case Kind::kRevoke:
      return cat("its lease has ended: ", reason);
    case Kind::kGrant:
      return cat("it was given the GPU: ", reason);
    case Kind::kRun:
      return cat("it runs: ", reason);
    case Kind::kWait:
      return decision.other == policy::kNoGang
                 ? cat("it waits: ", reason)
                 : cat("it waits for ", name_of(context, decision.other), ": ", reason);
    case Kind::kHang:
      return cat("it has the GPU, can't be cut and finishes nothing: ", reason);
    case Kind::kPrefetch:
      return cat("its memory comes back: ", reason);
    case Kind::kEvict:
      break;
  }
  return cat("its memory leaves: ", reason);
}

/// As the policy would judge now, which changes with time, settings and priorities.
void add_judgement(const AdminContext& context, const policy::Gang& gang, Json& json,
                   std::string& words) {
  const policy::State& state = context.leases.state();
  auto holder = state.gangs.find(gang.waits_for);
  json["now"] = nullptr;
  if (gang.phase != policy::Phase::kWaiting || gang.is_kept_paused()) return;
  if (holder == state.gangs.end() || !holder->second.holds_lease()) return;
  const auto now = context.now;
  const policy::Judgement judgement = policy::judge_withdrawal(state, holder->second, gang, now);
  const bool is_open = judgement.at == policy::kNever;
  json["now"]["holder"] = holder->second.job;
  json["now"]["reason"] = judgement.reason;
  json["now"]["in_s"] =
      is_open ? Json(nullptr) : Json(in_seconds(std::max(judgement.at - now, {})));
  json["now"]["figures"] = figures_json(judgement.figures);
  words += cat("; ", name_of(context, gang.waits_for), " is withdrawn ",
               is_open ? "not before something changes" : cat("in ", span(judgement.at - now)),
               ", by the rule '", judgement.reason, "'");
  auto gang_of_holder = context.leases.gangs().find(static_cast<std::uint64_t>(gang.waits_for));
  if (gang_of_holder == context.leases.gangs().end()) return;
  std::string stopped = stopped_words(context.node, gang_of_holder->second);
  if (!stopped.empty()) words += cat(", but its ", stopped);
}

Json gang_explained(const AdminContext& context, const LeaseGang& gang, const policy::Gang& state) {
  Json json;
  std::string words;
  json["id"] = cat(static_cast<std::uint64_t>(gang.id));
  json["state"] = state_name(state);
  json["gpus"] = gpu_list(gang.gpus);
  json["decision"] = nullptr;
  if (gang.decided_at != std::chrono::nanoseconds{0}) {
    const policy::Decision& last = gang.last_decision;
    words = cat(decided(context, last), " (decided ", span(context.now - gang.decided_at), " ago)");
    json["decision"] = {{"kind", policy::decision_name(last.kind)},
                        {"reason", last.reason},
                        {"mono_ns", gang.decided_at.count()},
                        {"figures", figures_json(last.figures)}};
  } else {
    words = "nothing was decided yet: it has not wanted a GPU";
  }
  add_judgement(context, state, json, words);
  std::string stopped = stopped_words(context.node, gang);
  if (!stopped.empty()) words += cat("; its ", stopped);
  if (state.is_kept_paused()) {
    words += state.holds_lease() && state.exclusive
                 ? "; paused by an administrator, but it can't be cut: it goes on until it ends"
                 : "; paused by an administrator: it gets no GPU until plexrl-ctl resume";
  }
  if (gang.job->alone_until > context.now) {
    words += cat("; an administrator keeps its GPUs for it alone, for ",
                 span(gang.job->alone_until - context.now), " more");
  }
  if (!gang.job->checkpoint_note.empty()) {
    words += cat(state.absence == policy::Absence::kHere ? "; its contexts were not checkpointed: "
                                                         : "; its contexts are not back: ",
                 gang.job->checkpoint_note);
  }
  json["text"] = words;
  return json;
}

}  // namespace

Json explain_json(const AdminContext& context, const Job& job) {
  Json json;
  json["id"] = id_text(job.id);
  json["name"] = job.name;
  json["paused"] = job.paused;
  Json gangs = Json::array();
  for (const auto& [id, gang] : context.leases.gangs()) {
    auto state = context.leases.state().gangs.find(gang.id);
    if (gang.job != &job || state == context.leases.state().gangs.end()) continue;
    gangs.push_back(gang_explained(context, gang, state->second));
  }
  json["text"] = !job.admitted   ? cat("it is not admitted: ", job.notice)
                 : gangs.empty() ? "it is admitted and has not used a GPU yet"
                                 : "";
  json["gangs"] = gangs;
  json["quotas"] = quotas_json(context, job);
  return json;
}

}  // namespace plexrl::nodemgr
