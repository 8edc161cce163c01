#include "nodemgr/spanning/coordinator.h"

#include <algorithm>
#include <utility>

namespace plexrl::nodemgr::spanning {
namespace {

constexpr std::size_t kBootsKept = 16;

using Stage = SlotRecord::Stage;

Verb verb_of(Stage stage) {
  return stage == Stage::kLeased    ? Verb::kCommit
         : stage == Stage::kStarted ? Verb::kStart
                                    : Verb::kBar;
}

}  // namespace

void Coordinator::restore(const SlotRecord& record, Instant now) {
  Job& job = jobs_[record.job];
  job.slot = record.slot;
  job.verb = verb_of(record.stage);
  job.since = job.told = now;
  job.nodes = record.nodes;
  job.is_stored = true;
  for (const SlotRecord::PartOf& part : record.parts) {
    job.parts[part.node].last.gpus = part.gpus;
    nodes_[part.node].heard = now;
  }
}

void Coordinator::report(const NodeReport& report, Instant now) {
  Node& node = nodes_[report.node];
  if (report.boot != node.boot) {
    const bool is_old =
        std::find(node.before.begin(), node.before.end(), report.boot) != node.before.end();
    if (is_old) return;
    node.before.push_back(std::exchange(node.boot, report.boot));
    if (node.before.size() > kBootsKept) node.before.pop_front();
    node.number = 0;
  }
  if (report.number <= node.number) return;
  node.number = report.number;
  node.heard = now;
  for (auto& [id, job] : jobs_) {
    const auto part = job.parts.find(report.node);
    if (part != job.parts.end()) part->second.gone = true;  // unless it is told of now
  }
  for (const PartReport& told : report.parts) {
    Job& job = jobs_[told.job];
    job.nodes = std::max(job.nodes, told.nodes);
    job.told = now;
    Part& part = job.parts[report.node];
    part.last = told;
    part.has_told = true;
    part.gone = false;
  }
  step(now);
}

void Coordinator::tick(Instant now) { step(now); }

bool Coordinator::is_lost(const std::string& node, Instant now) const {
  return now - nodes_.at(node).heard >= config_.lost_after;
}

bool Coordinator::is_done(const Job& job, const Part& part) {
  if (part.gone) return true;
  const PartReport& last = part.last;
  return part.has_told && last.slot == job.slot && last.verb == job.verb && last.done &&
         (job.verb != Verb::kWithdraw || last.attempt == job.attempt);
}

bool Coordinator::all_done(const Job& job, Instant now, bool lost_are_done) const {
  return std::all_of(job.parts.begin(), job.parts.end(), [&](const auto& entry) {
    return is_done(job, entry.second) || (lost_are_done && is_lost(entry.first, now));
  });
}

bool Coordinator::has_failed(const Job& job) {
  return std::any_of(job.parts.begin(), job.parts.end(), [&](const auto& entry) {
    const PartReport& last = entry.second.last;
    return !entry.second.gone && last.failed && last.slot == job.slot && last.verb == job.verb &&
           last.attempt == (job.verb == Verb::kWithdraw ? job.attempt : 0);
  });
}

bool Coordinator::has_lost(const Job& job, Instant now) const {
  return std::any_of(job.parts.begin(), job.parts.end(), [&](const auto& entry) {
    return !entry.second.gone && is_lost(entry.first, now);
  });
}

bool Coordinator::is_asked_back(const Job& job, Instant now) const {
  bool in_gap = false;
  for (const auto& [node, part] : job.parts) {
    if (part.gone || is_lost(node, now)) continue;
    if (!is_done(job, part)) continue;
    if (part.last.release == Release::kNow) return true;
    in_gap |= part.last.release == Release::kInGap;
  }
  return in_gap && is_in_gap(job, now);
}

bool Coordinator::is_in_gap(const Job& job, Instant now) const {
  return std::all_of(job.parts.begin(), job.parts.end(), [&](const auto& entry) {
    const Part& part = entry.second;
    return part.gone || is_lost(entry.first, now) || (is_done(job, part) && part.last.idle);
  });
}

/// After tries that failed the next one is made in a gap of all its parts, or when their time has
/// come.
bool Coordinator::may_withdraw(const Job& job, Instant now) const {
  return job.verb == Verb::kStart && !job.to_store &&
         (now >= job.not_before || is_in_gap(job, now));
}

bool Coordinator::overlap(const Job& a, const Job& b) {
  return std::any_of(a.parts.begin(), a.parts.end(), [&](const auto& entry) {
    const auto other = b.parts.find(entry.first);
    return other != b.parts.end() && !entry.second.gone && !other->second.gone &&
           (entry.second.last.gpus & other->second.last.gpus) != 0;
  });
}

void Coordinator::enter(Job& job, Verb verb, Instant now) {
  job.verb = verb;
  job.since = now;
  job.to_store.reset();
}

void Coordinator::back_off(Job& job, Instant now) const {
  const int doubled = std::min(job.failures++, 16);
  job.not_before = now + std::min(config_.backoff * (1 << doubled), config_.backoff_cap);
}

void Coordinator::give_up(Job& job, Instant now, std::string why) {
  back_off(job, now);
  // What was never stored is not there for the next coordinator either.
  if (job.verb == Verb::kCommit) {
    job.to_store = Stage::kOver;
  } else {
    enter(job, Verb::kBar, now);
  }
  job.why = std::move(why);
}

void Coordinator::advance(Job& job, Instant now) {
  if (job.to_store) return;
  switch (job.verb) {
    case Verb::kBar: {
      const bool is_whole = static_cast<int>(job.parts.size()) >= job.nodes;
      const bool all_told = std::all_of(job.parts.begin(), job.parts.end(), [](const auto& entry) {
        return entry.second.has_told || entry.second.gone;
      });
      if (!job.wanted || !is_whole || !all_told || now < job.not_before) return;
      job.slot = generation_ << 32 | ++slots_;
      return enter(job, Verb::kCall, now);
    }
    case Verb::kCall:
      if (!job.wanted) enter(job, Verb::kBar, now);
      return;  // serve_called
    case Verb::kTake:
      if (has_failed(job) || has_lost(job, now) || now >= job.since + config_.take_patience) {
        return give_up(job, now, "a node could not give its GPUs");
      }
      if (all_done(job, now, false)) job.to_store = Stage::kLeased;
      return;
    case Verb::kCommit:
      if (all_done(job, now, false)) {
        job.to_store = Stage::kStarted;
      } else if (has_lost(job, now) || now >= job.since + config_.lease_patience) {
        give_up(job, now, "a node could not begin its lease");
      }
      return;
    case Verb::kStart:
      if (is_asked_back(job, now) && may_withdraw(job, now)) {
        ++job.attempt;
        enter(job, Verb::kWithdraw, now);
      }
      return;
    case Verb::kWithdraw:
      if (all_done(job, now, true)) {
        job.to_store = Stage::kOver;
      } else if (has_failed(job) || now >= job.since + config_.drain_patience) {
        back_off(job, now);
        enter(job, Verb::kStart, now);
      }
      return;
  }
}

void Coordinator::serve_called(Instant now) {
  std::vector<Job*> called;
  for (auto& [id, job] : jobs_) {
    if (job.verb == Verb::kCall && !job.parts.empty() && all_done(job, now, false)) {
      called.push_back(&job);
    }
  }
  std::stable_sort(called.begin(), called.end(),
                   [](const Job* a, const Job* b) { return *a->wanted < *b->wanted; });
  for (std::size_t i = 0; i < called.size(); ++i) {
    Job& job = *called[i];
    bool is_first = std::none_of(called.begin(), called.begin() + static_cast<std::ptrdiff_t>(i),
                                 [&](const Job* earlier) { return overlap(*earlier, job); });
    if (!is_first || has_lost(job, now)) continue;
    bool is_free = true;
    for (auto& [id, holder] : jobs_) {
      if (&holder == &job || !has_slot(holder) || !overlap(holder, job)) continue;
      is_free = false;
      if (may_withdraw(holder, now)) {
        ++holder.attempt;
        enter(holder, Verb::kWithdraw, now);
      }
    }
    if (is_free) enter(job, Verb::kTake, now);
  }
}

void Coordinator::explain(Job& job, Instant now) const {
  if (job.verb == Verb::kStart) {
    job.why.clear();
    return;
  }
  const auto there = static_cast<int>(job.parts.size());
  if (there < job.nodes) {
    job.why = "waits for its parts on other nodes to be started: " + std::to_string(there) +
              " of " + std::to_string(job.nodes) + " are there";
    return;
  }
  std::string why;
  for (const auto& [node, part] : job.parts) {
    if (is_done(job, part)) continue;
    if (is_lost(node, now)) {
      why = "waits for node " + node + "'s part of the slot: the node is silent";
      break;
    }
    if (!why.empty() || job.verb == Verb::kBar) continue;
    why = "waits for node " + node + "'s part of the slot" +
          (part.last.why.empty() ? "" : ": " + part.last.why);
  }
  if (why.empty() && job.verb == Verb::kCall) {
    why = "waits for another job over several nodes to give back its slot";
  }
  if (why.empty() && job.verb != Verb::kBar) why = "its slot begins";
  if (!why.empty()) job.why = std::move(why);
}

void Coordinator::step(Instant now) {
  for (auto& [id, job] : jobs_) {
    const bool wants = std::any_of(job.parts.begin(), job.parts.end(), [](const auto& entry) {
      return !entry.second.gone && entry.second.last.wants;
    });
    if (!wants) {
      job.wanted.reset();
    } else if (!job.wanted) {
      job.wanted = now;
    }
    advance(job, now);
    const bool all_gone = std::all_of(job.parts.begin(), job.parts.end(),
                                      [](const auto& entry) { return entry.second.gone; });
    if (all_gone || now - job.told >= config_.forget_after) job.to_store = Stage::kForgotten;
  }
  serve_called(now);
  std::erase_if(jobs_, [](const auto& entry) {
    return entry.second.to_store == Stage::kForgotten && !entry.second.is_stored;
  });
  for (auto& [id, job] : jobs_) explain(job, now);
}

SlotRecord Coordinator::record_of(const std::string& id, const Job& job) const {
  SlotRecord record;
  record.job = id;
  record.slot = job.slot;
  record.stage = *job.to_store;
  record.nodes = job.nodes;
  for (const auto& [node, part] : job.parts) record.parts.push_back({node, part.last.gpus});
  return record;
}

std::optional<SlotRecord> Coordinator::next_record() const {
  for (const auto& [id, job] : jobs_) {
    if (job.to_store) return record_of(id, job);
  }
  return std::nullopt;
}

void Coordinator::stored(const SlotRecord& record, bool is_done, Instant now) {
  const auto found = jobs_.find(record.job);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  job.to_store.reset();
  if (!is_done) {
    // What was to begin does not; what was to end is tried again.
    if (record.stage == Stage::kLeased) give_up(job, now, "the cluster manager can't store it");
    return;
  }
  job.is_stored = true;
  switch (record.stage) {
    case Stage::kForgotten:
      jobs_.erase(found);
      break;
    case Stage::kLeased:
      enter(job, Verb::kCommit, now);
      break;
    case Stage::kStarted:
      job.failures = 0;
      job.not_before = now;
      job.attempt = 0;
      enter(job, Verb::kStart, now);
      break;
    case Stage::kOver:
      if (job.verb == Verb::kWithdraw) {
        job.failures = 0;
        job.not_before = now;
      }
      enter(job, Verb::kBar, now);
      break;
  }
  serve_called(now);
}

NodeOrders Coordinator::orders(const std::string& node) {
  NodeOrders answer;
  answer.generation = generation_;
  answer.number = ++orders_;
  const auto known = nodes_.find(node);
  if (known == nodes_.end()) return answer;
  answer.boot = known->second.boot;
  for (const auto& [id, job] : jobs_) {
    if (!job.parts.contains(node)) continue;
    answer.orders.push_back(
        {id, job.slot, job.verb, job.verb == Verb::kWithdraw ? job.attempt : 0, job.why});
  }
  return answer;
}

std::vector<Coordinator::View> Coordinator::view() const {
  std::vector<View> views;
  for (const auto& [id, job] : jobs_) views.push_back({id, job.slot, job.verb, job.why});
  return views;
}

bool Coordinator::is_busy_with(const std::string& node) const {
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
    const Job& job = entry.second;
    return job.parts.contains(node) && (job.verb != Verb::kStart || job.to_store);
  });
}

}  // namespace plexrl::nodemgr::spanning
