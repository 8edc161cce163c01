#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

/// Settings of a program: one table of rows feeds flags (`--trace-max-bytes`), environment
/// (`PLEXRL_TRACE_MAX_BYTES`), the TOML file (`[trace] max_bytes`) and the documentation.
/// Precedence: flag > environment > file > default.
namespace plexrl::nodemgr::settings {

enum class Kind { kBytes, kDuration, kNumber, kCount, kText, kSwitch };

/// One setting. `name` is `section.key`, or `key` alone when it has no place in the file.
struct Row {
  const char* name;
  Kind kind;
  const char* default_text;  ///< as a user would write it; "" means "decided at run time"
  const char* help;
  bool in_file = true;
  std::vector<const char*> words = {};  ///< kText: the words allowed; empty: any
  const char* flag = "";                ///< when it is not made of the name
};

/// `trace.max_bytes` → `trace-max-bytes`, unless the row says otherwise.
std::string flag_name(const Row& row);
/// `trace.max_bytes` → `PLEXRL_TRACE_MAX_BYTES`.
std::string environment_name(const Row& row);

/// The values of a table's rows, as text that has been checked. Copyable; not thread-safe.
class Values {
 public:
  explicit Values(std::span<const Row> table);

  /// Checks `text` against the row's kind. `origin` (a flag, a variable, file:line) begins the
  /// error message.
  [[nodiscard]] absl::Status set(std::string_view name, std::string text, std::string_view origin);

  /// Each must be asked with the row's own kind; a wrong name or kind is a bug and aborts.
  std::uint64_t bytes(std::string_view name) const;
  std::chrono::nanoseconds duration(std::string_view name) const;
  double number(std::string_view name) const;
  std::uint64_t count(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  bool is_on(std::string_view name) const;
  /// False while the value is the run-time default "".
  bool is_set(std::string_view name) const { return !text(name).empty(); }

  std::span<const Row> table() const { return table_; }

 private:
  const Row* find(std::string_view name) const;
  const std::string& checked_text(std::string_view name, Kind kind) const;

  std::span<const Row> table_;
  std::map<std::string, std::string, std::less<>> text_;
};

/// Applies every variable of the environment (`NAME=value`, ends with null, as `environ`) that a
/// row owns.
[[nodiscard]] absl::Status apply_environment(Values& values, const char* const* environment);

/// Applies a TOML file. An unknown section or key is an error that names the nearest one; a missing
/// file is NotFound. Tables of tables (`[[team]]`) are accepted when listed in `other_sections`.
[[nodiscard]] absl::Status apply_file(Values& values, const std::string& path,
                                      std::span<const std::string> other_sections);

struct CommandLine {
  bool help = false;
  bool version = false;
  std::vector<std::string> arguments;  ///< what is no flag, or follows `--`
};

/// Applies `--name value`, `--name=value`, and `--name` alone for switches. An unknown flag is an
/// error that names the nearest one.
[[nodiscard]] absl::StatusOr<CommandLine> apply_flags(Values& values, int argc,
                                                      const char* const* argv);

/// The `--help` lines of the table: flag, default with unit, what it does.
std::string describe_flags(std::span<const Row> table);

}  // namespace plexrl::nodemgr::settings
