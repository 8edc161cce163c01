#include <algorithm>
#include <limits>
#include <unordered_map>

#include "clustermgr/placement/pack.h"

namespace plexrl::clustermgr::placement {
namespace {

using Mask = std::uint32_t;

std::vector<int> members_of(Mask mask) {
  std::vector<int> members;
  for (int job = 0; mask >> job != 0; ++job) {
    if ((mask >> job & 1) != 0) members.push_back(job);
  }
  return members;
}

/// All possible groups with their costs, by size: one can only be possible if each of its parts is.
std::unordered_map<Mask, double> possible_groups(int jobs, int most, GroupCosts& costs,
                                                 std::uint64_t& asked) {
  std::unordered_map<Mask, double> possible;
  std::vector<Mask> last;
  for (int job = 0; job < jobs; ++job) {
    Mask mask = Mask{1} << job;
    ++asked;
    possible[mask] = costs.cost(members_of(mask));
    last.push_back(mask);
  }
  for (int size = 2; size <= most; ++size) {
    std::vector<Mask> next;
    for (Mask smaller : last) {
      int highest = 31 - __builtin_clz(smaller);
      for (int job = highest + 1; job < jobs; ++job) {
        Mask mask = smaller | Mask{1} << job;
        bool parts = true;
        for (Mask rest = mask; rest != 0 && parts; rest &= rest - 1) {
          parts = possible.count(mask & ~(rest & -rest)) != 0;
        }
        if (!parts) continue;
        ++asked;
        double cost = costs.cost(members_of(mask));
        if (cost < 0) continue;
        possible[mask] = cost;
        next.push_back(mask);
      }
    }
    last = std::move(next);
  }
  return possible;
}

}  // namespace

Packing pack_exactly(int jobs, int most, GroupCosts& costs) {
  Packing packing;
  jobs = std::min(jobs, kMostExact);
  struct Choice {
    Mask mask;
    double cost;
  };
  std::vector<std::vector<Choice>> by_lowest(static_cast<std::size_t>(jobs));
  for (auto [mask, cost] : possible_groups(jobs, most, costs, packing.asked)) {
    by_lowest[static_cast<std::size_t>(__builtin_ctz(mask))].push_back({mask, cost});
  }
  for (std::vector<Choice>& choices : by_lowest) {
    std::sort(choices.begin(), choices.end(),
              [](const Choice& a, const Choice& b) { return a.mask < b.mask; });
  }
  const Mask all = (Mask{1} << jobs) - 1;
  std::vector<double> best(all + std::size_t{1}, std::numeric_limits<double>::infinity());
  std::vector<Mask> taken(all + std::size_t{1}, 0);
  best[0] = 0;
  for (Mask mask = 1; mask <= all; ++mask) {
    for (const Choice& choice : by_lowest[static_cast<std::size_t>(__builtin_ctz(mask))]) {
      if ((choice.mask & ~mask) != 0) continue;
      double cost = best[mask & ~choice.mask] + choice.cost;
      if (cost >= best[mask]) continue;
      best[mask] = cost;
      taken[mask] = choice.mask;
    }
  }
  packing.cost = best[all];
  for (Mask left = all; left != 0; left &= ~taken[left]) {
    packing.groups.push_back(members_of(taken[left]));
  }
  return packing;
}

}  // namespace plexrl::clustermgr::placement
