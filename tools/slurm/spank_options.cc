#include "tools/slurm/spank_options.h"

#include <algorithm>
#include <array>

namespace plexrl::slurm {
namespace {

constexpr std::array<std::string_view, 9> kWithValue = {
    "name", "team", "priority", "memory", "max-slowdown", "max-wait", "evict", "export", "simgpu"};
constexpr std::array<std::string_view, 3> kAlone = {"no-wait", "require", "simgpu"};

bool is_among(const auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string complaint(std::string_view key, bool has_value) {
  std::string text = "--plexrl: ";
  if (has_value && is_among(kAlone, key)) {
    text.append(key).append(" stands alone, without a value");
  } else if (!has_value && is_among(kWithValue, key)) {
    text.append(key).append(" needs a value: ").append(key).append("=…");
  } else {
    text.append("unknown key '").append(key).append("'; known are ").append(kSpankKeys);
  }
  return text;
}

}  // namespace

SpankOptions parse_spank_options(std::string_view text) {
  SpankOptions options;
  while (!text.empty()) {
    const bool takes_all = text.starts_with("simgpu=");
    const std::size_t end = takes_all ? text.size() : std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    const std::size_t equals = word.find('=');
    const bool has_value = equals != std::string_view::npos;
    const std::string_view key = word.substr(0, equals);
    if (!(has_value ? is_among(kWithValue, key) : is_among(kAlone, key))) {
      options.error = complaint(key, has_value);
      return options;
    }
    options.words.push_back("--" + std::string(word));
  }
  return options;
}

}  // namespace plexrl::slurm
