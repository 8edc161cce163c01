#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/nearest.h"
#include "nodemgr/settings/table.h"

namespace plexrl::nodemgr::settings {
namespace {

const Row* row_of_flag(std::span<const Row> table, std::string_view flag) {
  for (const Row& row : table) {
    if (flag_name(row) == flag) return &row;
  }
  return nullptr;
}

absl::Status unknown_flag(std::span<const Row> table, std::string_view flag) {
  std::vector<std::string> names = {"help", "version"};
  for (const Row& row : table) names.push_back(flag_name(row));
  std::string nearest = nearest_name(flag, names);
  return absl::InvalidArgumentError(
      cat("unknown option '--", flag, "'",
          nearest.empty() ? "" : cat(", did you mean '--", nearest, "'?")));
}

std::string default_note(const Row& row) {
  if (row.kind == Kind::kSwitch) return "";
  if (row.default_text[0] == '\0') return "";
  return cat(" [", row.default_text, "]");
}

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kBytes:
      return " SIZE";
    case Kind::kDuration:
      return " TIME";
    case Kind::kNumber:
      return " NUMBER";
    case Kind::kCount:
      return " N";
    case Kind::kText:
      return " TEXT";
    case Kind::kSwitch:
      return "";
  }
  return "";
}

}  // namespace

absl::StatusOr<CommandLine> apply_flags(Values& values, int argc, const char* const* argv) {
  CommandLine result;
  for (int i = 1; i < argc; ++i) {
    std::string_view argument = argv[i];
    if (argument == "--") {
      result.arguments.insert(result.arguments.end(), argv + i + 1, argv + argc);
      break;
    }
    if (argument == "-h") argument = "--help";
    if (!argument.starts_with("--")) {
      result.arguments.emplace_back(argument);
      continue;
    }
    argument.remove_prefix(2);
    std::size_t equals = argument.find('=');
    std::string_view flag = argument.substr(0, equals);
    const Row* row = row_of_flag(values.table(), flag);
    if (row == nullptr) {
      if (flag == "help") {
        result.help = true;
      } else if (flag == "version") {
        result.version = true;
      } else {
        return unknown_flag(values.table(), flag);
      }
      continue;
    }
    std::string text;
    if (equals != std::string_view::npos) {
      text = argument.substr(equals + 1);
    } else if (row->kind == Kind::kSwitch) {
      text = "true";
    } else if (i + 1 < argc) {
      text = argv[++i];
    } else {
      return invalid("option '--", flag, "' needs a value");
    }
    absl::Status status = values.set(row->name, std::move(text), cat("--", flag));
    if (!status.ok()) return status;
  }
  return result;
}

std::string describe_flags(std::span<const Row> table) {
  std::string text;
  for (const Row& row : table) {
    std::string left = cat("  --", flag_name(row), kind_name(row.kind));
    if (left.size() < 34) left.resize(34, ' ');
    text += cat(left, "  ", row.help, default_note(row), "\n");
  }
  return text;
}

}  // namespace plexrl::nodemgr::settings
