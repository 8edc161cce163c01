#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

/// Values as users write and read them: sizes `8GiB`, rates `4GB/s`, times `5ms 10s 2h`.
///
/// A number, then a unit, with or without a space between; fractions are allowed (`1.5GiB`).
/// Parsing fails with a message that quotes the text and lists the units.
namespace plexrl::nodemgr::settings {

/// Bytes. Units: B, KB MB GB TB (powers of 1000), KiB MiB GiB TiB (powers of 1024); none: bytes. A
/// number without a unit that is below 2 MiB, and not 0, is refused: the unit was forgotten.
[[nodiscard]] absl::StatusOr<std::uint64_t> parse_bytes(std::string_view text);

/// Device memory for a job: as parse_bytes, and at least 2 MiB, the least that a driver maps.
[[nodiscard]] absl::StatusOr<std::uint64_t> parse_device_bytes(std::string_view text);

/// Bytes per second: a size followed by `/s`.
[[nodiscard]] absl::StatusOr<std::uint64_t> parse_rate(std::string_view text);

/// Units: ns us ms s m h d. A bare number is refused, except 0.
[[nodiscard]] absl::StatusOr<std::chrono::nanoseconds> parse_duration(std::string_view text);

/// A number of 0 or more without a unit, `1.05`.
[[nodiscard]] absl::StatusOr<double> parse_number(std::string_view text);

/// The shortest exact or two-decimal form: `8GiB`, `1.50GiB`, `513B`.
std::string format_bytes(std::uint64_t bytes);
std::string format_rate(std::uint64_t bytes_per_s);
std::string format_duration(std::chrono::nanoseconds duration);

}  // namespace plexrl::nodemgr::settings
