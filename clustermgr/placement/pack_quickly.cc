#include <algorithm>
#include <limits>

#include "clustermgr/placement/pack.h"

namespace plexrl::clustermgr::placement {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// Gains below this are rounding.
constexpr double kGain = 1e-9;

/// Different orders of insertion that are tried, while the budget lasts.
constexpr int kStarts = 24;

struct Open {
  std::vector<int> members;
  double cost = 0;
};

class Packer {
 public:
  Packer(int jobs, int most, GroupCosts& costs, std::uint64_t budget)
      : jobs_(jobs), most_(static_cast<std::size_t>(most)), costs_(costs), budget_(budget) {}

  Packing pack() {
    Packing best;
    for (int start = 0; start < kStarts && (start == 0 || asked_ < budget_); ++start) {
      groups_.clear();
      start_ = start;
      insert_all();
      bool better = true;
      while (better && asked_ < budget_) better = improve();
      Packing found = result();
      if (start == 0 || found.cost < best.cost - kGain) best = std::move(found);
    }
    best.asked = asked_;
    return best;
  }

 private:
  Packing result() {
    Packing packing;
    for (Open& group : groups_) {
      if (group.members.empty()) continue;
      packing.cost += group.cost;
      packing.groups.push_back(std::move(group.members));
    }
    return packing;
  }

  /// 1 for the first start; a fixed pseudo-random factor from 0.5 to 1.5 for later ones, so that
  /// each inserts in another order.
  double whim(std::size_t job) const {
    if (start_ == 0) return 1;
    std::uint64_t x =
        (job + 1) * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(start_) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 30)) * 0x94d049bb133111eb;
    return 0.5 + static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
  }

  double ask(const std::vector<int>& members) {
    if (members.empty()) return 0;
    if (members.size() > most_) return kNever;
    ++asked_;
    double cost = costs_.cost(members);
    return cost < 0 ? kNever : cost;
  }

  static std::vector<int> with(std::vector<int> members, int job) {
    members.insert(std::lower_bound(members.begin(), members.end(), job), job);
    return members;
  }
  static std::vector<int> without(std::vector<int> members, int job) {
    members.erase(std::find(members.begin(), members.end(), job));
    return members;
  }

  /// added_[job][group]: what the job adds there; asked again when the group has changed.
  void insert_all() {
    std::vector<int> left(static_cast<std::size_t>(jobs_));
    std::vector<double> alone(left.size());
    for (int job = 0; job < jobs_; ++job) {
      left[static_cast<std::size_t>(job)] = job;
      alone[static_cast<std::size_t>(job)] = ask({job});
    }
    std::vector<std::vector<double>> added(left.size());
    while (!left.empty()) {
      std::size_t chosen = 0;
      int chosen_group = -1;
      double most_regret = -1;
      for (std::size_t i = 0; i < left.size(); ++i) {
        const auto job = static_cast<std::size_t>(left[i]);
        double best = alone[job];
        double second = kNever;
        int best_group = -1;
        for (std::size_t g = 0; g < added[job].size(); ++g) {
          double cost = added[job][g];
          if (cost < best) {
            second = best;
            best = cost;
            best_group = static_cast<int>(g);
          } else {
            second = std::min(second, cost);
          }
        }
        if (second == kNever) second = alone[job];
        // Equal regret: the one that costs most alone, as in first fit decreasing.
        double regret = (second - best + 1e-6 * alone[job]) * whim(job);
        if (regret <= most_regret) continue;
        most_regret = regret;
        chosen = i;
        chosen_group = best_group;
      }
      int job = left[chosen];
      left.erase(left.begin() + static_cast<long>(chosen));
      auto changed = static_cast<std::size_t>(chosen_group);
      if (chosen_group < 0) {
        changed = groups_.size();
        groups_.push_back({{job}, alone[static_cast<std::size_t>(job)]});
        for (std::vector<double>& row : added) row.push_back(kNever);
      } else {
        groups_[changed].members = with(groups_[changed].members, job);
        groups_[changed].cost += added[static_cast<std::size_t>(job)][changed];
      }
      for (int other : left) {
        added[static_cast<std::size_t>(other)][changed] =
            ask(with(groups_[changed].members, other)) - groups_[changed].cost;
      }
    }
  }

  bool improve() {
    bool better = false;
    for (std::size_t a = 0; a < groups_.size(); ++a) {
      for (std::size_t b = 0; b < groups_.size(); ++b) {
        if (asked_ >= budget_) return false;
        if (a == b || groups_[a].members.empty()) continue;
        better |= merge(a, b) || move_one(a, b) || (a < b && swap_two(a, b));
      }
    }
    return better;
  }

  bool take(std::size_t a, std::vector<int> new_a, std::size_t b, std::vector<int> new_b) {
    if (new_a.size() > most_ || new_b.size() > most_) return false;
    double before = groups_[a].cost + groups_[b].cost;
    double cost_b = ask(new_b);
    if (cost_b >= before - kGain) return false;
    double cost_a = ask(new_a);
    if (cost_a + cost_b >= before - kGain) return false;
    groups_[a] = {std::move(new_a), cost_a};
    groups_[b] = {std::move(new_b), cost_b};
    return true;
  }

  bool merge(std::size_t a, std::size_t b) {
    std::vector<int> both = groups_[b].members;
    if (both.empty()) return false;
    for (int job : groups_[a].members) both = with(both, job);
    return take(a, {}, b, both);
  }

  bool move_one(std::size_t a, std::size_t b) {
    for (int job : groups_[a].members) {
      if (take(a, without(groups_[a].members, job), b, with(groups_[b].members, job))) return true;
    }
    return false;
  }

  bool swap_two(std::size_t a, std::size_t b) {
    for (int one : groups_[a].members) {
      for (int other : groups_[b].members) {
        if (take(a, with(without(groups_[a].members, one), other), b,
                 with(without(groups_[b].members, other), one))) {
          return true;
        }
      }
    }
    return false;
  }

  int jobs_;
  std::size_t most_;
  GroupCosts& costs_;
  std::uint64_t budget_;
  std::uint64_t asked_ = 0;
  int start_ = 0;
  std::vector<Open> groups_;
};

}  // namespace

Packing pack_quickly(int jobs, int most, GroupCosts& costs, std::uint64_t budget) {
  return Packer(jobs, most, costs, budget).pack();
}

}  // namespace plexrl::clustermgr::placement
