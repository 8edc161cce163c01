#pragma once

#include <vector>

namespace plexrl::sim {

/// A lower bound on the number of slots that gangs with these loads need, at most `most` in one
/// slot, the loads of a slot summing up to no more than 1: the linear program over all such
/// configurations (Gilmore and Gomory), solved by column generation with Clp. Loads are rounded
/// down to 1/400, and what the last columns could still gain is taken off (Farley), so it stays a
/// bound.
double config_lp(const std::vector<double>& loads, int most);

/// The whole number of slots above: bins are whole.
double whole_slots(double bound);

/// Lower bound on slots: sum of loads.
double volume(const std::vector<double>& loads);

/// Lower bound on slots: gangs of which no two fit together (load above one half).
double conflict_clique(const std::vector<double>& loads);

}  // namespace plexrl::sim
