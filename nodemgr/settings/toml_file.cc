#include <algorithm>

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/table.h"
#include "nodemgr/settings/toml_read.h"

namespace plexrl::nodemgr::settings {
namespace {

/// The text a user would have written for a TOML scalar.
absl::StatusOr<std::string> scalar_text(const toml::node& node, const std::string& origin) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return std::string(flag->get() ? "true" : "false");
  if (const auto* whole = node.as_integer()) return cat(whole->get());
  if (const auto* number = node.as_floating_point()) return cat(number->get());
  return invalid(origin, ": is neither text, number nor boolean");
}

struct Names {
  std::vector<std::string> sections;

  Names(std::span<const Row> table, std::span<const std::string> others)
      : sections(others.begin(), others.end()) {
    for (const Row& row : table) {
      std::string_view name = row.name;
      std::size_t dot = name.find('.');
      if (row.in_file && dot != std::string_view::npos) sections.emplace_back(name.substr(0, dot));
    }
  }
};

absl::Status apply_section(Values& values, const std::string& path, std::string_view section,
                           const toml::table& table) {
  std::vector<std::string> known;
  for (const Row& row : values.table()) {
    std::string_view name = row.name;
    if (row.in_file && name.starts_with(cat(section, "."))) {
      known.emplace_back(name.substr(section.size() + 1));
    }
  }
  for (const auto& [key, node] : table) {
    std::string origin = place_of(path, node);
    if (std::find(known.begin(), known.end(), key.str()) == known.end()) {
      return unknown_name("key", key.str(), origin, known);
    }
    auto text = scalar_text(node, origin);
    if (!text.ok()) return text.status();
    absl::Status status = values.set(cat(section, ".", key.str()), *std::move(text), origin);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status apply_table(Values& values, const std::string& path, const toml::table& root,
                         std::span<const std::string> other_sections) {
  Names names(values.table(), other_sections);
  for (const auto& [key, node] : root) {
    std::string_view section = key.str();
    std::string origin = place_of(path, node);
    if (std::find(names.sections.begin(), names.sections.end(), section) == names.sections.end()) {
      return unknown_name("section", section, origin, names.sections);
    }
    if (std::find(other_sections.begin(), other_sections.end(), section) != other_sections.end()) {
      continue;
    }
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      return absl::InvalidArgumentError(
          cat(origin, ": '", section, "' is a section: write [", section, "]"));
    }
    absl::Status status = apply_section(values, path, section, *table);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status apply_file(Values& values, const std::string& path,
                        std::span<const std::string> other_sections) {
  absl::StatusOr<toml::table> root = read_toml(path);
  if (!root.ok()) return root.status();
  Values changed = values;
  absl::Status status = apply_table(changed, path, *root, other_sections);
  if (status.ok()) values = std::move(changed);
  return status;
}

}  // namespace plexrl::nodemgr::settings
