#pragma once

#include <nlohmann/json.hpp>

#include "nodemgr/profiles.h"

namespace plexrl::nodemgr {

/// As an array with an object for each gang: `gpus` (indices) and the tables of its GapProfile,
/// durations as [bin, weight, mean in ns].
nlohmann::ordered_json gaps_json(const GangGaps& gaps);

/// What gaps_json made. What is not of that form, or out of its range, is left out.
GangGaps gaps_from(const nlohmann::ordered_json& json);

}  // namespace plexrl::nodemgr
