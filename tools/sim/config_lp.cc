#include "tools/sim/config_lp.h"

#include <Clp_C_Interface.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

namespace plexrl::sim {
namespace {

constexpr int kGrid = 400;
constexpr int kMostRounds = 4000;
constexpr double kTolerance = 1e-6;

struct Kind {
  int size = 0;  ///< load on the grid
  int count = 0;
};

struct Column {
  double value = 0;
  std::vector<int> copies;  ///< by kind
};

/// The configuration whose kinds are worth most: a knapsack with a bounded number of items.
Column best_column(const std::vector<Kind>& kinds, const double* worth, int most) {
  const std::size_t width = kGrid + 1;
  const auto rows = static_cast<std::size_t>(most) + 1;
  // value[items][room]: best with at most so many items and so much room, kinds seen so far.
  std::vector<double> value(rows * width, 0.0);
  std::vector<std::vector<signed char>> taken(kinds.size(),
                                              std::vector<signed char>(rows * width, 0));
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    if (worth[k] <= kTolerance) continue;
    int copies_most =
        std::min({most, kinds[k].count, kinds[k].size > 0 ? kGrid / kinds[k].size : most});
    for (int items = most; items >= 1; --items) {
      for (int room = kGrid; room >= kinds[k].size; --room) {
        double& best = value[static_cast<std::size_t>(items) * width + room];
        for (int copies = 1; copies <= std::min(items, copies_most); ++copies) {
          int rest = room - copies * kinds[k].size;
          if (rest < 0) break;
          double with =
              value[static_cast<std::size_t>(items - copies) * width + rest] + copies * worth[k];
          if (with <= best) continue;
          best = with;
          taken[k][static_cast<std::size_t>(items) * width + room] =
              static_cast<signed char>(copies);
        }
      }
    }
  }
  Column column;
  column.value = value[static_cast<std::size_t>(most) * width + kGrid];
  column.copies.assign(kinds.size(), 0);
  int items = most;
  int room = kGrid;
  for (std::size_t k = kinds.size(); k-- > 0;) {
    int copies = taken[k][static_cast<std::size_t>(items) * width + room];
    column.copies[k] = copies;
    items -= copies;
    room -= copies * kinds[k].size;
  }
  return column;
}

class Master {
 public:
  explicit Master(const std::vector<Kind>& kinds) : model_(Clp_newModel(), Clp_deleteModel) {
    Clp_setLogLevel(model_.get(), 0);
    std::vector<double> lower;
    for (const Kind& kind : kinds) lower.push_back(kind.count);
    std::vector<double> upper(kinds.size(), 1e30);
    Clp_resize(model_.get(), static_cast<int>(kinds.size()), 0);
    Clp_chgRowLower(model_.get(), lower.data());
    Clp_chgRowUpper(model_.get(), upper.data());
  }
  void add(const Column& column) {
    std::vector<int> rows;
    std::vector<double> elements;
    for (std::size_t k = 0; k < column.copies.size(); ++k) {
      if (column.copies[k] == 0) continue;
      rows.push_back(static_cast<int>(k));
      elements.push_back(column.copies[k]);
    }
    const double lower = 0;
    const double upper = 1e30;
    const double cost = 1;
    const CoinBigIndex starts[] = {0, static_cast<CoinBigIndex>(rows.size())};
    Clp_addColumns(model_.get(), 1, &lower, &upper, &cost, starts, rows.data(), elements.data());
  }
  double solve() {
    Clp_primal(model_.get(), 0);
    return Clp_objectiveValue(model_.get());
  }
  const double* worth() const { return Clp_dualRowSolution(model_.get()); }

 private:
  std::unique_ptr<Clp_Simplex, void (*)(Clp_Simplex*)> model_;
};

}  // namespace

double config_lp(const std::vector<double>& loads, int most) {
  std::map<int, int> counts;
  for (double load : loads) {
    ++counts[std::clamp(static_cast<int>(std::floor(load * kGrid)), 0, kGrid)];
  }
  std::vector<Kind> kinds;
  for (auto [size, count] : counts) kinds.push_back({size, count});
  if (kinds.empty()) return 0;
  Master master(kinds);
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    Column column;
    column.copies.assign(kinds.size(), 0);
    column.copies[k] = std::min(most, kinds[k].size > 0 ? kGrid / kinds[k].size : most);
    master.add(column);
  }
  double bound = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    double objective = master.solve();
    Column column = best_column(kinds, master.worth(), most);
    // Worths scaled so that no configuration is worth more than 1 are a dual solution.
    bound = std::max(bound, objective / std::max(1.0, column.value));
    if (column.value <= 1 + kTolerance || bound >= objective * (1 - 1e-4)) break;
    master.add(column);
  }
  return bound;
}

double whole_slots(double bound) { return std::ceil(bound - 1e-6); }

double volume(const std::vector<double>& loads) {
  double sum = 0;
  for (double load : loads) sum += load;
  return sum;
}

double conflict_clique(const std::vector<double>& loads) {
  double count = 0;
  for (double load : loads) count += load > 0.5 ? 1 : 0;
  return count;
}

}  // namespace plexrl::sim
