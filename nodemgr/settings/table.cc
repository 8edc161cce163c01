#include "nodemgr/settings/table.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/nearest.h"
#include "nodemgr/settings/values.h"

namespace plexrl::nodemgr::settings {
namespace {

template <typename Number>
bool parse_whole(std::string_view text, Number& number) {
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && rest == text.data() + text.size();
}

std::string replaced(std::string text, std::string_view any_of, char with) {
  for (char& c : text) {
    if (any_of.find(c) != std::string_view::npos) c = with;
  }
  return text;
}

std::string upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

std::string joined(const std::vector<const char*>& words) {
  std::string text;
  for (const char* word : words) text += cat(text.empty() ? "" : " ", word);
  return text;
}

absl::Status check_words(const Row& row, const std::string& text) {
  if (row.words.empty()) return absl::OkStatus();
  for (const char* word : row.words) {
    if (text == word) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(cat("'", text, "' is none of ", joined(row.words)));
}

/// Errors say what is wrong with the text, not where it came from.
absl::Status check(const Row& row, const std::string& text) {
  switch (row.kind) {
    case Kind::kBytes:
      return parse_bytes(text).status();
    case Kind::kDuration:
      return parse_duration(text).status();
    case Kind::kNumber:
      return parse_number(text).status();
    case Kind::kCount: {
      std::uint64_t number = 0;
      if (parse_whole(text, number)) return absl::OkStatus();
      return invalid("'", text, "' is not a whole number");
    }
    case Kind::kSwitch:
      if (text == "true" || text == "false") return absl::OkStatus();
      return invalid("'", text, "' is neither true nor false");
    case Kind::kText:
      return check_words(row, text);
  }
  return absl::OkStatus();
}

}  // namespace

std::string flag_name(const Row& row) {
  return row.flag[0] != '\0' ? row.flag : replaced(row.name, "._", '-');
}

std::string environment_name(const Row& row) {
  return cat("PLEXRL_", upper(replaced(row.name, ".", '_')));
}

Values::Values(std::span<const Row> table) : table_(table) {
  for (const Row& row : table_) text_[row.name] = row.default_text;
}

const Row* Values::find(std::string_view name) const {
  for (const Row& row : table_) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

absl::Status Values::set(std::string_view name, std::string text, std::string_view origin) {
  const Row* row = find(name);
  if (row == nullptr) {
    std::vector<std::string> names;
    for (const Row& known : table_) names.emplace_back(known.name);
    std::string nearest = nearest_name(name, names);
    return absl::InvalidArgumentError(
        cat(origin, ": unknown setting '", name, "'",
            nearest.empty() ? "" : cat(", did you mean '", nearest, "'?")));
  }
  absl::Status status = check(*row, text);
  if (!status.ok()) return invalid(origin, ": ", message_of(status));
  text_.find(name)->second = std::move(text);
  return absl::OkStatus();
}

const std::string& Values::checked_text(std::string_view name, Kind kind) const {
  const Row* row = find(name);
  if (row == nullptr || row->kind != kind) {
    std::fprintf(stderr, "setting '%.*s' asked by a wrong name or kind\n",
                 static_cast<int>(name.size()), name.data());
    std::abort();
  }
  return text_.find(name)->second;
}

std::uint64_t Values::bytes(std::string_view name) const {
  return parse_bytes(checked_text(name, Kind::kBytes)).value_or(0);
}

std::chrono::nanoseconds Values::duration(std::string_view name) const {
  return parse_duration(checked_text(name, Kind::kDuration)).value_or(std::chrono::nanoseconds{0});
}

double Values::number(std::string_view name) const {
  return parse_number(checked_text(name, Kind::kNumber)).value_or(0);
}

std::uint64_t Values::count(std::string_view name) const {
  std::uint64_t number = 0;
  parse_whole(checked_text(name, Kind::kCount), number);
  return number;
}

const std::string& Values::text(std::string_view name) const {
  const Row* row = find(name);
  return checked_text(name, row == nullptr ? Kind::kText : row->kind);
}

bool Values::is_on(std::string_view name) const {
  return checked_text(name, Kind::kSwitch) == "true";
}

absl::Status apply_environment(Values& values, const char* const* environment) {
  for (; *environment != nullptr; ++environment) {
    std::string_view entry = *environment;
    std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    for (const Row& row : values.table()) {
      std::string name = environment_name(row);
      if (entry.substr(0, equals) != name) continue;
      absl::Status status = values.set(row.name, std::string(entry.substr(equals + 1)), name);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace plexrl::nodemgr::settings
