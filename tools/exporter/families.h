#pragma once

#include <prometheus/metric_family.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace plexrl::exporter {

/// The metrics of a node manager, from what it answers to {"verb":"status"} (docs/contract.md).
/// Bytes, seconds and ratios as there; what is null there is no series. Every series has the labels
/// `node` and `simulated` ("true": figures of a simulated GPU). Pure; what the answer lacks is left
/// out.
std::vector<prometheus::MetricFamily> families_of(const nlohmann::ordered_json& status);

/// The one that says whether the node manager answered; all there is when it did not.
prometheus::MetricFamily up_family(bool answered);

}  // namespace plexrl::exporter
