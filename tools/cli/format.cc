#include "tools/cli/format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace plexrl::cli {
namespace {

std::string print(const char* format, double value, const char* unit) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), format, value, unit);
  return text.data();
}

// Three significant digits.
std::string scaled(double value, const char* unit) {
  const double size = std::fabs(value);
  return print(size < 9.995 ? "%.2f %s" : size < 99.95 ? "%.1f %s" : "%.0f %s", value, unit);
}

}  // namespace

std::string format_bytes(double bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (std::fabs(bytes) >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  const bool is_whole = bytes == std::floor(bytes);
  return unit == 0 || is_whole ? print("%.0f %s", bytes, kUnits[unit])
                               : scaled(bytes, kUnits[unit]);
}

std::string format_ns(double ns) {
  const double size = std::fabs(ns);
  if (size == 0) return "0 s";
  if (size < 1e3) return print("%.0f %s", ns, "ns");
  if (size < 1e6) return scaled(ns / 1e3, "us");
  if (size < 1e9) return scaled(ns / 1e6, "ms");
  if (size < 120e9) return scaled(ns / 1e9, "s");
  std::array<char, 64> text;
  const auto seconds = static_cast<long long>(ns / 1e9);
  if (size < 7200e9) {
    std::snprintf(text.data(), text.size(), "%lldm%02llds", seconds / 60, seconds % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%lldh%02lldm", seconds / 3600, seconds / 60 % 60);
  }
  return text.data();
}

std::string format_ratio(double ratio) { return print("%.1f %s", ratio * 100, "%"); }

std::string format_factor(double factor) { return print("%.2f%s", factor, "x"); }

Figure format_figure(std::string name, double value) {
  const auto take_unit = [&name](const std::string& unit) {
    if (name == unit) return true;
    if (!name.ends_with("_" + unit)) return false;
    name.resize(name.size() - unit.size() - 1);
    return true;
  };
  std::string text;
  if (take_unit("ns")) {
    text = format_ns(value);
  } else if (take_unit("s")) {
    text = format_ns(value * 1e9);
  } else if (take_unit("bytes")) {
    text = format_bytes(value);
  } else if (take_unit("ratio")) {
    const bool is_factor = name == "slowdown" || name == "response";
    text = is_factor ? format_factor(value) : format_ratio(value);
  } else {
    text = print("%.6g%s", value, "");
  }
  std::replace(name.begin(), name.end(), '_', ' ');
  return {name, text};
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string cell = "\"";
  for (const char c : text) {
    if (c == '"') cell += '"';
    cell += c;
  }
  return cell + "\"";
}

std::string format_rfc3339(int64_t realtime_ns) {
  constexpr int64_t kSecond = 1'000'000'000;
  int64_t fraction = realtime_ns % kSecond;
  if (fraction < 0) fraction += kSecond;
  const std::time_t seconds = (realtime_ns - fraction) / kSecond;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 64> text;
  const size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text.data() + length, text.size() - length, ".%09lldZ",
                static_cast<long long>(fraction));
  return text.data();
}

}  // namespace plexrl::cli
