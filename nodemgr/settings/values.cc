#include "nodemgr/settings/values.h"
#include "nodemgr/settings/cat.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>

namespace plexrl::nodemgr::settings {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr Unit kSizeUnits[] = {
    {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"K", 0x1p10},
    {"M", 0x1p20},   {"G", 0x1p30},   {"T", 0x1p40},
};
constexpr Unit kTimeUnits[] = {
    {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}, {"d", 86400e9},
};

std::string_view trimmed(std::string_view text) {
  std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

/// The leading number of `text`, which is shortened to what follows it. Negative and missing
/// numbers give false.
bool take_number(std::string_view& text, double& number) {
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) return false;
  text = trimmed(std::string_view(rest, static_cast<std::size_t>(end - rest)));
  return true;
}

template <std::size_t N>
const Unit* find_unit(const Unit (&units)[N], std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

absl::StatusOr<std::uint64_t> scaled(std::string_view text, double number, double factor) {
  double value = std::round(number * factor);
  if (value >= 0x1p63) return invalid("'", text, "' is too large");
  return static_cast<std::uint64_t>(value);
}

std::string two_decimals(double value, std::string_view unit) {
  char number[32];
  std::snprintf(number, sizeof number, "%.2f", value);
  std::string_view text = number;
  if (text.ends_with(".00")) text.remove_suffix(3);
  return cat(text, unit);
}

constexpr std::uint64_t kLeastDeviceBytes = 2 << 20;

absl::Status too_small(std::string_view text, std::uint64_t bytes) {
  double number = 0;
  std::string_view rest = text;
  const bool may_be_gib = take_number(rest, number) && number >= 1 && number <= 1024;
  return invalid("'", text, "' is ", bytes, bytes == 1 ? " byte" : " bytes",
                 ", less than 2MiB: write a size with its unit, as in ",
                 two_decimals(may_be_gib ? number : 8, "GiB"));
}

}  // namespace

absl::StatusOr<std::uint64_t> parse_bytes(std::string_view text) {
  std::string_view rest = trimmed(text);
  double number = 0;
  const Unit* unit = nullptr;
  if (take_number(rest, number)) unit = rest.empty() ? &kSizeUnits[0] : find_unit(kSizeUnits, rest);
  if (unit == nullptr) {
    return invalid("'", text,
                   "' is not a size: write a number and one of B KB MB GB TB KiB MiB GiB TiB");
  }
  absl::StatusOr<std::uint64_t> bytes = scaled(text, number, unit->factor);
  if (bytes.ok() && rest.empty() && *bytes != 0 && *bytes < kLeastDeviceBytes) {
    return too_small(trimmed(text), *bytes);
  }
  return bytes;
}

absl::StatusOr<std::uint64_t> parse_device_bytes(std::string_view text) {
  absl::StatusOr<std::uint64_t> bytes = parse_bytes(text);
  if (bytes.ok() && *bytes < kLeastDeviceBytes) return too_small(trimmed(text), *bytes);
  return bytes;
}

absl::StatusOr<std::uint64_t> parse_rate(std::string_view text) {
  std::string_view size = trimmed(text);
  absl::StatusOr<std::uint64_t> bytes = invalid("no /s");
  if (size.ends_with("/s")) bytes = parse_bytes(size.substr(0, size.size() - 2));
  if (!bytes.ok()) {
    return absl::InvalidArgumentError(
        cat("'", text, "' is not a rate: write a size and /s, as in 4GB/s"));
  }
  return bytes;
}

absl::StatusOr<double> parse_number(std::string_view text) {
  std::string_view rest = trimmed(text);
  double number = 0;
  if (take_number(rest, number) && rest.empty()) return number;
  return absl::InvalidArgumentError(cat("'", text, "' is not a number of 0 or more"));
}

absl::StatusOr<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  std::string_view rest = trimmed(text);
  double number = 0;
  const Unit* unit = nullptr;
  if (take_number(rest, number)) {
    unit = rest.empty() && number == 0 ? &kTimeUnits[0] : find_unit(kTimeUnits, rest);
  }
  if (unit == nullptr) {
    return absl::InvalidArgumentError(
        cat("'", text, "' is not a time: write a number and one of ns us ms s m h d"));
  }
  auto value = scaled(text, number, unit->factor);
  if (!value.ok()) return value.status();
  return std::chrono::nanoseconds(static_cast<std::int64_t>(*value));
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::string_view kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  auto value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < std::size(kNames)) {
    value /= 1024;
    ++unit;
  }
  return two_decimals(value, kNames[unit]);
}

std::string format_rate(std::uint64_t bytes_per_s) {
  static constexpr std::string_view kNames[] = {"B/s", "KB/s", "MB/s", "GB/s", "TB/s"};
  std::size_t unit = 0;
  auto value = static_cast<double>(bytes_per_s);
  while (value >= 1000 && unit + 1 < std::size(kNames)) {
    value /= 1000;
    ++unit;
  }
  return two_decimals(value, kNames[unit]);
}

std::string format_duration(std::chrono::nanoseconds duration) {
  auto value = static_cast<double>(duration.count());
  const Unit* best = &kTimeUnits[0];
  for (const Unit& unit : kTimeUnits) {
    if (value >= unit.factor) best = &unit;
  }
  return two_decimals(value / best->factor, best->name);
}

}  // namespace plexrl::nodemgr::settings
