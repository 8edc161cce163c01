#include <nlohmann/json.hpp>

#include "nodemgr/settings/cat.h"
#include "tools/cli/format.h"
#include "tools/cli/table.h"
#include "tools/cluster/manager_call.h"
#include "tools/cluster/verbs.h"

namespace plexrl::cluster_tool {
namespace {

namespace v1 = cluster::v1;
using Json = nlohmann::ordered_json;
using nodemgr::cat;
using Names = google::protobuf::RepeatedPtrField<std::string>;

constexpr int kSchema = 1;

const char* state_of(const v1::Placement& placement) {
  switch (placement.state()) {
    case v1::Placement::QUEUED:
      return "queued";
    case v1::Placement::PLACED:
      return "placed";
    case v1::Placement::RUNNING:
      return "running";
    case v1::Placement::ENDED:
      return "ended";
    case v1::Placement::REFUSED:
      return "refused";
    default:
      return "unknown";
  }
}

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json time_or_null(std::int64_t ns) { return ns == 0 ? Json() : Json(cli::format_rfc3339(ns)); }

Json list_of(const Names& names) {
  Json list = Json::array();
  for (const std::string& name : names) list.push_back(name);
  return list;
}

std::string joined(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += cat(text.empty() ? "" : " ", name);
  return text;
}

Json json_of(const v1::JobRequest& job) {
  return {{"gpus", job.gpus()},
          {"nodes", job.nodes()},
          {"memory_bytes", job.memory_bytes() == 0 ? Json() : Json(job.memory_bytes())},
          {"max_slowdown_ratio", job.max_slowdown() == 0 ? Json() : Json(job.max_slowdown())},
          {"apart_from", list_of(job.apart_from())},
          {"only_gpus", list_of(job.only_gpus())},
          {"no_wait", job.no_wait()}};
}

bool is_lag_stable(const v1::Choice& choice) { return choice.lag_rounds() > 0; }

Json json_of(const v1::Choice& choice) {
  const bool was_judged = !choice.basis().empty();
  return {
      {"node", or_null(choice.node())},
      {"gpus", list_of(choice.gpus())},
      {"beside", list_of(choice.beside())},
      {"chosen", choice.chosen()},
      {"refused", or_null(choice.refused())},
      {"cost", was_judged ? Json(choice.cost()) : Json()},
      {"worst_slowdown_ratio", was_judged ? Json(choice.worst_slowdown()) : Json()},
      {"basis", or_null(choice.basis())},
      {"best_lag_s", is_lag_stable(choice) ? Json(choice.best_lag_s()) : Json()},
      {"best_overlap_ratio", is_lag_stable(choice) ? Json(choice.best_overlap_ratio()) : Json()},
      {"lag_rounds", is_lag_stable(choice) ? Json(choice.lag_rounds()) : Json()}};
}

Json json_of(const v1::Decision& decision) {
  Json figures = Json::object();
  for (const v1::Figure& figure : decision.figures()) figures[figure.name()] = figure.value();
  Json choices = Json::array();
  for (const v1::Choice& choice : decision.choices()) choices.push_back(json_of(choice));
  return {{"at", time_or_null(decision.decided_unix_ns())},
          {"reason", decision.reason()},
          {"when", or_null(decision.when())},
          {"figures", figures},
          {"choices", choices}};
}

Json json_of(const v1::Placement& placement) {
  return {{"id", placement.id()},
          {"job", or_null(placement.job_id())},
          {"name", placement.job().name()},
          {"user", placement.job().user()},
          {"team", or_null(placement.job().team())},
          {"state", state_of(placement)},
          {"node", or_null(placement.node())},
          {"gpus", list_of(placement.gpus())},
          {"slurm_job",
           placement.slurm_job_id() == 0 ? Json() : Json(std::to_string(placement.slurm_job_id()))},
          {"asked_at", time_or_null(placement.asked_unix_ns())},
          {"ended_at", time_or_null(placement.ended_unix_ns())},
          {"ended_reason", or_null(placement.ended_reason())},
          {"overtaken", placement.overtaken()},
          {"request", json_of(placement.job())},
          {"decision", json_of(placement.decision())}};
}

std::string line_of(const std::string& text) { return cli::printable(text) + "\n"; }

std::string request_words(const v1::JobRequest& job) {
  std::string words = cat(job.gpus(), job.gpus() == 1 ? " GPU" : " GPUs");
  if (job.memory_bytes() != 0) {
    words += cat(", ", cli::format_bytes(static_cast<double>(job.memory_bytes())), " on each");
  }
  if (job.max_slowdown() != 0) {
    words += cat(", at most ", cli::format_factor(job.max_slowdown()), " as long as alone");
  }
  if (job.apart_from_size() > 0) words += cat(", apart from ", joined(job.apart_from()));
  if (job.only_gpus_size() > 0) words += cat(", of ", joined(job.only_gpus()));
  return words;
}

std::string text_of(const v1::Placement& placement) {
  const v1::JobRequest& job = placement.job();
  const v1::Decision& decision = placement.decision();
  std::string out =
      line_of(cat("job '", job.name(), "' of ", job.user(),
                  job.team().empty() ? "" : cat(", team ", job.team()), ": ", request_words(job)));
  out += line_of(
      cat(state_of(placement), placement.node().empty() ? "" : cat(" on ", placement.node()),
          placement.gpus().empty() ? "" : cat(": ", joined(placement.gpus())),
          placement.simulated() ? " (simulated)" : "",
          placement.job_id().empty() ? "" : cat(", job ", placement.job_id()),
          placement.slurm_job_id() == 0 ? "" : cat(", Slurm's job ", placement.slurm_job_id()),
          placement.ended_reason().empty() ? "" : cat(": ", placement.ended_reason())));
  out += line_of(cat("why: ", decision.reason()));
  if (!decision.when().empty()) out += line_of(cat("it can run ", decision.when()));
  if (placement.overtaken() > 0) {
    out += line_of(cat(placement.overtaken(), " that came later were placed before it"));
  }
  if (!decision.choices().empty()) {
    using Align = cli::Table::Align;
    cli::Table table({{"LOOKED AT"}, {"BESIDE"}, {"COST", Align::kRight}, {"BY"}, {"OUTCOME"}});
    for (const v1::Choice& choice : decision.choices()) {
      const bool was_judged = !choice.basis().empty();
      table.add_row(
          {cli::printable(choice.node().empty() ? "free GPUs"
                                                : cat(choice.node(), " ", joined(choice.gpus()))),
           cli::printable(joined(choice.beside())),
           was_judged ? cli::format_figure("cost", choice.cost()).value : "",
           cli::printable(choice.basis()),
           choice.chosen()            ? "chosen"
           : choice.refused().empty() ? "possible"
                                      : cli::printable(choice.refused())});
    }
    out += table.str();
  }
  for (const v1::Choice& choice : decision.choices()) {
    if (!choice.chosen() || !is_lag_stable(choice)) continue;
    out += line_of(cat("at the best lag (", cli::format_ns(choice.best_lag_s() * 1e9),
                       ") both are busy in ", cli::format_ratio(choice.best_overlap_ratio()),
                       " of the time; a lag holds for ",
                       static_cast<std::uint64_t>(choice.lag_rounds()), " rounds"));
  }
  for (const v1::Figure& figure : decision.figures()) {
    const auto [words, value] = cli::format_figure(figure.name(), figure.value());
    out += line_of(cat("  ", words, ": ", value));
  }
  return out;
}

}  // namespace

absl::StatusOr<std::string> explain_placement(const ManagerAddress& manager, const std::string& job,
                                              bool json) {
  v1::GetPlacementRequest request;
  request.set_job(job);
  const auto reply = ask(manager, &v1::Cluster::Stub::GetPlacement, request);
  if (!reply.ok()) return reply.status();
  const v1::Placement& placement = reply->placement();
  if (!json) return text_of(placement);
  const Json answer = {{"schema", kSchema},
                       {"simulated", placement.simulated()},
                       {"node", nullptr},
                       {"placement", json_of(placement)}};
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plexrl::cluster_tool
