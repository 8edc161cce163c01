#pragma once

#include <cstdint>
#include <string>

/// Figures for people. Machines get `--json`, where the unit is in the key.
namespace plexrl::cli {

/// 1536 -> "1.5 KiB"; binary units, three significant digits, bytes exact below 1 KiB.
std::string format_bytes(double bytes);

/// 1'500'000 -> "1.50 ms"; ns, us, ms, s below two minutes, then "2m05s", "3h07m".
std::string format_ns(double ns);

/// 0.4213 -> "42.1 %".
std::string format_ratio(double ratio);

/// 1.567 -> "1.57x".
std::string format_factor(double factor);

/// A named figure, for people.
struct Figure {
  std::string words;  ///< "switch cost"
  std::string value;  ///< "55.0 ms"
};

/// The end of `name` is the unit: `_ns _s _bytes _ratio`; without one the value is a plain number.
/// Ratios are shares, shown in percent, but for slowdown and response, which are factors.
Figure format_figure(std::string name, double value);

/// A cell of a CSV file (RFC 4180): in quotes where it has to be.
std::string csv_cell(const std::string& text);

/// RFC 3339 in UTC with nanoseconds: 2026-11-30T09:00:00.000000001Z.
std::string format_rfc3339(int64_t realtime_ns);

}  // namespace plexrl::cli
