// What a decision is told as: why a job could never be placed, what was looked at, what has to
// happen first.
#include <algorithm>
#include <set>

#include "clustermgr/chooser.h"
#include "clustermgr/placement/correlation.h"
#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/values.h"

namespace plexrl::clustermgr {
namespace {

namespace v1 = cluster::v1;
using nodemgr::cat;
using nodemgr::settings::format_bytes;
using placement::SlotId;

constexpr std::size_t kMostNamed = 4;

v1::Figure make_figure(const std::string& name, double value) {
  v1::Figure figure;
  figure.set_name(name);
  figure.set_value(value);
  return figure;
}

void add_words(std::string& list, const std::string& words) {
  list += cat(list.empty() ? "" : ", ", words);
}

}  // namespace

std::string Chooser::why_never(const v1::JobRequest& job, std::vector<v1::Figure>& figures) const {
  if (job.nodes() > 1) {
    return cat("jobs over several nodes can't be placed yet: --nodes ", job.nodes(),
               "; give 1, or start it with your launcher and without --cluster");
  }
  const auto quota = config_.team_gpus.find(job.team());
  if (quota != config_.team_gpus.end() && job.gpus() > quota->second) {
    figures = {make_figure("quota_gpus", quota->second)};
    return cat("team ", job.team(), " may have ", quota->second, " GPUs, and the job asks for ",
               job.gpus());
  }
  int most = 0;
  std::uint64_t largest = 0;
  std::set<std::string> missing(job.only_gpus().begin(), job.only_gpus().end());
  for (const auto& [name, node] : nodes_->all()) {
    std::map<std::string, int> gpus;
    for (const v1::Gpu& gpu : node.record.inventory().gpus()) {
      if (job.only_gpus_size() > 0 && missing.erase(gpu.uuid()) == 0) continue;
      most = std::max(most, ++gpus[gpu.name()]);
      largest = std::max(largest, gpu.usable_bytes() != 0 ? gpu.usable_bytes() : gpu.total_bytes());
    }
  }
  if (!missing.empty()) {
    return cat("no node that ever joined has the GPU ", *missing.begin(),
               ", which CUDA_VISIBLE_DEVICES names");
  }
  if (most == 0) return "";  // nothing has joined yet, which may come
  figures = {make_figure("largest_node_gpus", most),
             make_figure("largest_gpu_bytes", static_cast<double>(largest))};
  if (job.gpus() > most) {
    return cat(
        "the job asks for ", job.gpus(), " GPUs on a node, and no node has more than ", most,
        job.only_gpus_size() > 0 ? " of those that CUDA_VISIBLE_DEVICES names" : " of one kind",
        ": lower --gpus");
  }
  if (job.memory_bytes() > largest) {
    return cat("the job asks for ", format_bytes(job.memory_bytes()), " on each GPU, and the ",
               "largest has ", format_bytes(largest), " for jobs: lower --memory");
  }
  return "";
}

void Chooser::describe(SlotId slot, v1::Choice& out) const {
  const placement::Slot& its = placer_.nodes().at(slot);
  out.set_node(parts_.at(static_cast<std::size_t>(its.parts.front().first)).node);
  const auto gpus = slot_gpus_.find(static_cast<std::uint32_t>(slot));
  if (gpus != slot_gpus_.end())
    out.mutable_gpus()->Assign(gpus->second.begin(), gpus->second.end());
  for (const auto& [member, gang] : its.members) out.add_beside(members_.at(member).label);
}

/// How the job and the only other one in the slot lie to each other, where that stays so for a
/// while.
void Chooser::correlate_with(SlotId slot, placement::JobId job, v1::Choice& out) const {
  constexpr double kLongEnough = 20;  // rounds
  if (!placer_.knows(job)) return;
  const placement::JobProfile* other = nullptr;
  for (const auto& [member, gang] : placer_.nodes().at(slot).members) {
    if (member == job) continue;
    if (other != nullptr) return;
    other = &placer_.profile(member);
  }
  if (other == nullptr) return;
  const placement::JobProfile& own = placer_.profile(job);
  const auto& ours = own.gangs.front().bursts;
  const auto& theirs = other->gangs.front().bursts;
  if (ours.empty() || theirs.empty()) return;
  const placement::JobShape shape = placement::shape_of(own);
  const placement::JobShape other_shape = placement::shape_of(*other);
  const double rounds = placement::lag_stable_rounds(shape, other_shape);
  if (rounds < kLongEnough) return;
  // Fifty bins in the shorter round.
  const double shorter = std::min(shape.period_s, other_shape.period_s);
  const placement::Duration bin =
      std::max(placement::Duration(1'000'000), placement::from_seconds(shorter / 50));
  const placement::Correlation found = placement::correlate(ours, theirs, bin);
  out.set_best_lag_s(found.best_lag_s);
  out.set_best_overlap_ratio(found.best_overlap);
  out.set_lag_rounds(rounds);
}

v1::Choice Chooser::told(const placement::Choice& choice) const {
  v1::Choice out;
  const int slot = choice.slots.front();
  if (slot >= 0) describe(SlotId{static_cast<std::uint32_t>(slot)}, out);
  out.set_refused(choice.refused);
  out.set_cost(choice.cost);
  out.set_worst_slowdown(choice.worst_slowdown);
  return out;
}

void Chooser::tell(const placement::PlaceDecision& made, v1::Placement& record) const {
  v1::Decision& decision = *record.mutable_decision();
  record.set_simulated(std::any_of(parts_.begin(), parts_.end(),
                                   [](const Part& part) { return part.is_simulated; }));
  const auto own_id = ids_.find(record.id());
  const Member own = own_id == ids_.end() ? Member{} : members_.at(own_id->second);
  for (const placement::Figure& one : made.figures) {
    *decision.add_figures() = make_figure(one.name, one.value);
  }
  for (const placement::Choice& choice : made.choices) {
    v1::Choice& out = *decision.add_choices() = told(choice);
    const bool is_new = choice.slots.front() < 0;
    const int chosen = made.placed ? static_cast<int>(made.slots.front()) : -1;
    out.set_chosen(
        choice.refused.empty() && made.placed &&
        (is_new ? !made.opened.empty() : made.opened.empty() && choice.slots.front() == chosen));
    if (out.chosen() && is_new) describe(made.slots.front(), out);
    // The job itself is in the slot that it was given.
    if (out.chosen()) {
      auto& beside = *out.mutable_beside();
      const auto itself = std::find(beside.begin(), beside.end(), own.label);
      if (itself != beside.end()) beside.erase(itself);
    }
    if (own_id != ids_.end()) {
      const int slot = choice.slots.front();
      if (slot >= 0) correlate_with(SlotId{static_cast<std::uint32_t>(slot)}, own_id->second, out);
    }
    out.set_basis(choice.replayed && out.beside_size() > 0 ? "replay"
                  : own.is_known                           ? "estimate"
                                                           : "nothing known");
  }
  for (const placement::Obstacle& obstacle : made.obstacles) {
    v1::Choice& out = *decision.add_choices();
    describe(obstacle.slot, out);
    out.set_refused(obstacle.why);
  }
  decision.set_reason(made.reason.empty() ? "no node has joined" : made.reason);
  if (!made.placed) decision.set_when(when_possible(record.job()));
}

std::string Chooser::when_possible(const v1::JobRequest& job) const {
  std::string away;
  std::string running;
  std::string unknown;
  std::size_t count = 0;
  for (const auto& [name, node] : nodes_->all()) {
    if (node.record.left()) add_words(away, cat("node ", name, " is back (it has left)"));
    if (node.lost) add_words(away, cat("node ", name, " is back (it is lost)"));
    if (!node.lost && !node.record.left() && node.record.inventory().draining()) {
      add_words(away, cat("node ", name, " takes jobs again (plexrl-ctl undrain)"));
    }
  }
  for (const placement::Slot& slot : placer_.nodes().all()) {
    if (!slot.open) continue;
    const Part& part = parts_.at(static_cast<std::size_t>(slot.parts.front().first));
    if (!part.is_usable || static_cast<int>(part.gpus.size()) < job.gpus()) continue;
    for (const auto& [id, gang] : slot.members) {
      const Member& member = members_.at(id);
      if (++count <= kMostNamed) add_words(running, cat(member.label, " on ", part.node));
      if (!member.is_known && unknown.empty()) unknown = member.label;
    }
  }
  std::string words = away.empty() ? "" : cat("when ", away);
  if (count > kMostNamed) running += cat(" and ", count - kMostNamed, " more");
  if (count > 0) {
    words += cat(words.empty() ? "" : ", or ", "when one of these ends: ", running);
  }
  if (job.max_slowdown() > 0 && !unknown.empty()) {
    words += cat(", or when it is known what the gaps of ", unknown, " are like");
  }
  return words.empty() ? "when a node with enough GPUs joins" : words;
}

}  // namespace plexrl::clustermgr
