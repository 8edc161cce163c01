#include "clustermgr/chooser.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "nodemgr/settings/cat.h"

namespace plexrl::clustermgr {
namespace {

namespace v1 = cluster::v1;
using nodemgr::cat;
using placement::GangProfile;
using placement::JobId;
using placement::JobProfile;
using placement::NodeId;
using placement::PlaceDecision;
using placement::SlotId;

/// A job that names no bound accepts any slowdown.
constexpr double kAnySlowdown = 1e9;
/// A GPU second and a second by which one GPU's job is later are worth the same: sharing has to
/// save more than it delays.
constexpr double kSlowdownPrice = 1;
/// What a process takes beside what it allocates, where that is not known; no more than this part
/// of the GPU (simulated ones are small).
constexpr std::int64_t kOverheadBytes = std::int64_t{3} << 29;
constexpr std::int64_t kOverheadPart = 16;

placement::PlacerConfig placer_config(const ChooserConfig& config) {
  placement::PlacerConfig placer;
  placer.slowdown_price = kSlowdownPrice;
  placer.max_sharers = config.max_sharers;
  placer.max_group = config.max_sharers;
  placer.replays = 0;  // off the decision path: replay_one
  placer.predictor.remember_records = true;
  placer.predictor.most_predictions = 100'000;
  placer.share_unprofiled = true;
  placer.team_gpus = config.team_gpus;
  return placer;
}

bool is_among(const auto& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool overlap(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&](const auto& one) { return is_among(b, one); });
}

/// The kind of a GPU. Simulated ones are of another kind than what they simulate.
std::string pool_of(const v1::Gpu& gpu, const v1::Inventory& inventory) {
  return cat(gpu.name(), inventory.simulated() ? " (simulated)" : "");
}

std::int64_t overhead_of(std::int64_t usable_bytes) {
  return std::min(kOverheadBytes, usable_bytes / kOverheadPart);
}

bool is_exclusive(const google::protobuf::RepeatedPtrField<v1::Gang>& gangs) {
  return std::any_of(gangs.begin(), gangs.end(),
                     [](const v1::Gang& gang) { return !gang.exclusive_reason().empty(); });
}

double figure(const PlaceDecision& made, const std::string& name) {
  for (const placement::Figure& one : made.figures) {
    if (one.name == name) return one.value;
  }
  return 0;
}

}  // namespace

Chooser::Chooser(ChooserConfig config)
    : config_(std::move(config)), placer_(placer_config(config_)) {}

JobId Chooser::id_of(const std::string& key, const std::string& label) {
  const auto [it, is_new] = ids_.try_emplace(key, JobId{last_id_ + 1});
  if (is_new) ++last_id_;
  members_[it->second].label = label;
  return it->second;
}

void Chooser::forget_gone() {
  std::erase_if(ids_, [&](const auto& entry) {
    const bool is_gone = !members_.contains(entry.second);
    if (is_gone) placer_.predictor().forget(entry.second);
    return is_gone;
  });
}

void Chooser::look(const Nodes& nodes, const Placements& placements, const JobRecords& records) {
  nodes_ = &nodes;
  placements_ = &placements;
  records_ = &records;
  members_.clear();
  rebuild({});
  forget_gone();
  is_current_ = true;
}

void Chooser::rebuild(const Uuids& only_gpus) {
  placer_.start_over();
  parts_.clear();
  slot_gpus_.clear();
  for (const auto& [name, node] : nodes_->all()) add_node(node, only_gpus);
  set_machine();
  for (const auto& [name, node] : nodes_->all()) add_tenants(node);
}

/// Predictions are for the GPU with the least memory and the slowest link, in steps, so that
/// figures that differ a little each time do not make all of them again.
void Chooser::set_machine() {
  const auto in_steps = [](double value) {
    constexpr double kStepsPerDoubling = 4;
    return std::exp2(std::floor(std::log2(value) * kStepsPerDoubling) / kStepsPerDoubling);
  };
  double usable = 0;
  placement::MoveModel moves;
  const auto least = [](double& value, double other) {
    if (other > 0 && (value <= 0 || other < value)) value = other;
  };
  double out = 0;
  double in = 0;
  for (const Part& part : parts_) {
    if (!part.is_usable) continue;
    least(usable, static_cast<double>(part.usable_bytes));
    least(out, part.out_bytes_s);
    least(in, part.in_bytes_s);
  }
  if (out > 0) moves.out_bytes_per_s = in_steps(out);
  if (in > 0) moves.in_bytes_per_s = in_steps(in);
  placer_.predictor().set_machine(usable > 0 ? static_cast<std::int64_t>(in_steps(usable)) : 0,
                                  moves);
}

void Chooser::add_node(const NodeView& node, const Uuids& only_gpus) {
  const v1::Inventory& inventory = node.record.inventory();
  std::map<std::string, Part> by_pool;
  for (const v1::Gpu& gpu : inventory.gpus()) {
    if (!only_gpus.empty() && !is_among(only_gpus, gpu.uuid())) continue;
    Part& part = by_pool[pool_of(gpu, inventory)];
    const auto usable = static_cast<std::int64_t>(gpu.usable_bytes());
    part.usable_bytes = part.gpus.empty() ? usable : std::min(part.usable_bytes, usable);
    const auto slowest = [&](double& rate, double its) {
      if (its > 0) rate = rate > 0 ? std::min(rate, its) : its;
    };
    slowest(part.out_bytes_s, gpu.out_bytes_s());
    slowest(part.in_bytes_s, gpu.in_bytes_s());
    part.gpus.push_back(gpu.uuid());
  }
  const auto tiers =
      static_cast<std::int64_t>(inventory.host_budget_bytes() + inventory.disk_budget_bytes());
  for (auto& [pool, part] : by_pool) {
    part.node = node.record.name();
    part.pool = pool;
    part.free = part.gpus;
    part.is_simulated = inventory.simulated();
    part.is_usable = !node.lost && !node.record.left() && !inventory.draining();
    placement::NodeInfo info;
    info.id = NodeId{static_cast<std::uint32_t>(parts_.size())};
    info.name = part.node;
    info.pool = pool;
    info.gpus = static_cast<int>(part.gpus.size());
    info.hbm_bytes = part.usable_bytes;
    // Each kind of GPU gets its share of the node's other memory.
    info.tier_bytes = tiers * info.gpus / std::max(1, inventory.gpus_size());
    info.draining = !part.is_usable;
    placer_.nodes().add_node(std::move(info));
    parts_.push_back(std::move(part));
  }
}

/// What is known of a job's use of its GPUs: as its run shows, else as earlier ones did.
JobProfile Chooser::profile_of(const std::string& key, const v1::JobRequest& job,
                               const v1::Job* running) {
  JobProfile profile;
  profile.name = cat(job.user(), "/", job.name());
  profile.id = id_of(key, profile.name);
  profile.team = job.team();
  profile.max_slowdown = job.max_slowdown() > 0 ? job.max_slowdown() : kAnySlowdown;
  for (const std::string& name : job.apart_from()) {
    profile.apart_from.push_back(cat(job.user(), "/", name));
  }
  GangProfile& gang = profile.gangs.emplace_back();
  gang.gpus = job.gpus();
  gang.hbm_bytes = static_cast<std::int64_t>(job.memory_bytes());
  const v1::JobRecord* const earlier = records_->find(job.user(), job.name());
  if (running != nullptr) {
    gang.usual = usual_round(running->gangs());
    gang.shareable = !is_exclusive(running->gangs());
    gang.fixed_bytes = static_cast<std::int64_t>(running->unpageable_bytes()) / job.gpus();
    if (running->promised_bytes() != 0) {
      gang.hbm_bytes = static_cast<std::int64_t>(running->promised_bytes());
    }
  } else if (earlier != nullptr) {
    gang.shareable = !is_exclusive(earlier->gangs());
    gang.fixed_bytes = static_cast<std::int64_t>(earlier->unpageable_bytes());
    if (gang.hbm_bytes == 0) {
      gang.hbm_bytes = static_cast<std::int64_t>(earlier->promised_bytes());
    }
  }
  if (!gang.usual && earlier != nullptr) gang.usual = usual_round(earlier->gangs());
  // Not those of this moment: a replay holds for as long as nothing is news.
  if (earlier != nullptr) gang.bursts = recent_bursts(earlier->gangs());
  if (!gang.bursts.empty()) gang.usual = usual_round(earlier->gangs());
  members_.at(profile.id).is_known = gang.usual.has_value();
  return profile;
}

/// Of one that has no place yet, on GPUs of that kind.
JobProfile Chooser::profile_for(const v1::Placement& record, const std::string& pool) {
  JobProfile profile = profile_of(record.id(), record.job(), nullptr);
  GangProfile& gang = profile.gangs.front();
  gang.pool = pool;
  std::int64_t usable = 0;
  for (const Part& part : parts_) {
    if (part.pool == pool) usable = std::max(usable, part.usable_bytes);
  }
  if (gang.fixed_bytes == 0) gang.fixed_bytes = overhead_of(usable);
  // One that names no memory gets what is left, and waits on its node while that is less than half.
  if (gang.hbm_bytes == 0) gang.hbm_bytes = usable / 2;
  return profile;
}

/// Everybody who has GPUs of the node: placed there, or started there by other ways.
std::vector<Chooser::Tenant> Chooser::tenants_of(const NodeView& node) {
  std::map<std::string, const v1::Job*> running;
  for (const v1::Job& job : node.record.jobs()) running[job.id()] = &job;
  std::map<int, std::string> uuids;
  for (const v1::Gpu& gpu : node.record.inventory().gpus()) uuids[gpu.index()] = gpu.uuid();
  const auto gpus_of = [&](const v1::Job& job, std::vector<std::string>& gpus) {
    for (const v1::Gang& gang : job.gangs()) {
      for (const int index : gang.gpus()) {
        if (!is_among(gpus, uuids.at(index))) gpus.push_back(uuids.at(index));
      }
    }
  };

  std::vector<Tenant> tenants;
  std::set<std::pair<std::string, std::string>> starting;
  for (const auto& [id, view] : placements_->all()) {
    const v1::Placement& record = view.record;
    if (!view.has_place() || record.node() != node.record.name()) continue;
    const auto job = running.find(record.job_id());
    const bool is_there = job != running.end();
    if (record.job_id().empty()) starting.emplace(record.job().user(), record.job().name());
    Tenant tenant{profile_of(id, record.job(), is_there ? job->second : nullptr),
                  {record.gpus().begin(), record.gpus().end()}};
    if (is_there) {
      gpus_of(*job->second, tenant.gpus);
      running.erase(job);
    }
    tenants.push_back(std::move(tenant));
  }
  if (node.record.jobs_lost()) return tenants;
  for (const auto& [id, job] : running) {
    // One that is just starting where it was placed; its requester has not told its id yet.
    if (starting.contains({job->user(), job->name()})) continue;
    v1::JobRequest request;
    request.set_user(job->user());
    request.set_name(job->name());
    request.set_team(job->team());
    std::vector<std::string> gpus;
    gpus_of(*job, gpus);
    if (gpus.empty()) continue;  // it has not touched any yet
    request.set_gpus(static_cast<int>(gpus.size()));
    tenants.push_back({profile_of(id, request, job), std::move(gpus)});
  }
  return tenants;
}

void Chooser::add_tenants(const NodeView& node) {
  std::vector<Tenant> tenants = tenants_of(node);
  if (tenants.empty()) return;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].node == node.record.name()) {
      settle(parts_[i], static_cast<std::uint32_t>(i), tenants);
    }
  }
}

/// Gives the part's tenants their slots: GPUs that are connected by a tenant are one. GPUs of
/// another kind, gone, or not to be considered are in none.
void Chooser::settle(Part& part, std::uint32_t number, std::vector<Tenant>& tenants) {
  std::vector<std::vector<std::string>> sets;
  for (const Tenant& tenant : tenants) {
    std::vector<std::string> joined;
    std::copy_if(tenant.gpus.begin(), tenant.gpus.end(), std::back_inserter(joined),
                 [&](const auto& gpu) { return is_among(part.gpus, gpu); });
    std::erase_if(sets, [&](const std::vector<std::string>& set) {
      if (!overlap(set, joined)) return false;
      std::copy_if(set.begin(), set.end(), std::back_inserter(joined),
                   [&](const auto& gpu) { return !is_among(joined, gpu); });
      return true;
    });
    if (!joined.empty()) sets.push_back(std::move(joined));
  }
  for (const std::vector<std::string>& set : sets) {
    const SlotId slot =
        placer_.nodes().open_at(part.pool, {{NodeId{number}, static_cast<int>(set.size())}});
    slot_gpus_[static_cast<std::uint32_t>(slot)] = set;
    std::erase_if(part.free, [&](const auto& gpu) { return is_among(set, gpu); });
    for (Tenant& tenant : tenants) {
      if (overlap(tenant.gpus, set)) adopt(tenant, part, slot);
    }
  }
}

void Chooser::adopt(Tenant& tenant, const Part& part, SlotId slot) {
  JobProfile profile = tenant.profile;
  if (tenant.is_settled) {
    const Member member = members_.at(profile.id);
    profile.id = id_of(cat(static_cast<std::uint64_t>(profile.id), "@", part.pool), member.label);
    members_.at(profile.id) = member;
  }
  tenant.is_settled = true;
  GangProfile& gang = profile.gangs.front();
  gang.pool = part.pool;
  if (gang.fixed_bytes == 0) gang.fixed_bytes = overhead_of(part.usable_bytes);
  if (gang.hbm_bytes == 0) gang.hbm_bytes = part.usable_bytes / 2;
  placer_.adopt(profile, {slot});
}

/// The cheapest over all kinds of GPU; nothing is placed where none is possible.
PlaceDecision Chooser::try_pools(const v1::Placement& record) {
  std::set<std::string> pools;
  for (const Part& part : parts_) {
    if (static_cast<int>(part.gpus.size()) >= record.job().gpus()) pools.insert(part.pool);
  }
  PlaceDecision best;
  std::string best_pool;
  for (const std::string& pool : pools) {
    const JobProfile profile = profile_for(record, pool);
    PlaceDecision made = placer_.place(profile);
    const bool is_better =
        best_pool.empty() || (made.placed && (!best.placed || figure(made, "marginal_cost") <
                                                                  figure(best, "marginal_cost")));
    if (made.placed) placer_.remove(profile.id);
    if (!is_better) continue;
    best = std::move(made);
    best_pool = pool;
  }
  if (best.placed) best = placer_.place(profile_for(record, best_pool));
  return best;
}

v1::Placement Chooser::choose(v1::Placement record) {
  v1::Decision& decision = *record.mutable_decision();
  decision.Clear();
  std::vector<v1::Figure> figures;
  if (const std::string never = why_never(record.job(), figures); !never.empty()) {
    record.set_state(v1::Placement::REFUSED);
    decision.set_reason(never);
    for (const v1::Figure& one : figures) *decision.add_figures() = one;
    return record;
  }
  const bool is_narrowed = record.job().only_gpus_size() > 0;
  if (is_narrowed || !is_current_) rebuild(record.job().only_gpus());
  is_current_ = !is_narrowed;
  const PlaceDecision made = try_pools(record);
  if (made.placed) {
    take(made, record);
  } else if (record.job().no_wait()) {
    record.set_state(v1::Placement::REFUSED);
  }
  tell(made, record);
  return record;
}

/// Gives it the GPUs of its slot: those the slot has, or free ones in the order of their index.
void Chooser::take(const PlaceDecision& made, v1::Placement& record) {
  const SlotId slot = made.slots.front();
  Part& part = parts_.at(static_cast<std::size_t>(placer_.nodes().at(slot).parts.front().first));
  std::vector<std::string>& gpus = slot_gpus_[static_cast<std::uint32_t>(slot)];
  if (!made.opened.empty()) {
    const auto end = part.free.begin() + record.job().gpus();
    gpus.assign(part.free.begin(), end);
    part.free.erase(part.free.begin(), end);
  }
  record.set_state(v1::Placement::PLACED);
  record.set_node(part.node);
  record.clear_gpus();
  for (const std::string& gpu : part.gpus) {
    if (is_among(gpus, gpu)) record.add_gpus(gpu);
  }
}

}  // namespace plexrl::clustermgr
