#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace plexrl::clustermgr::placement {

/// What groups of jobs cost. Jobs are numbers from 0; members are asked for in ascending order.
class GroupCosts {
 public:
  virtual ~GroupCosts() = default;
  /// Cost of running these together; negative when they can't. Alone every job can. A group can
  /// only be possible if all that is left without one of its members is.
  virtual double cost(std::span<const int> members) = 0;
};

struct Packing {
  std::vector<std::vector<int>> groups;
  double cost = 0;
  std::uint64_t asked = 0;  ///< how often a cost was asked for
};

/// No more jobs than this are packed exactly.
inline constexpr int kMostExact = 16;

/// The cheapest split of `jobs` jobs into groups of at most `most` members: all possible groups,
/// then dynamic programming over subsets. At most kMostExact jobs.
Packing pack_exactly(int jobs, int most, GroupCosts& costs);

/// A cheap split: jobs join one by one, the one that would lose most by waiting first (regret),
/// where they add least; then moves, swaps and mergers as long as one helps; and again in other
/// orders. Asks for at most about `budget` costs. Deterministic.
Packing pack_quickly(int jobs, int most, GroupCosts& costs, std::uint64_t budget);

}  // namespace plexrl::clustermgr::placement
