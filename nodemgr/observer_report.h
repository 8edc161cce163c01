#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "nodemgr/gap_causes.h"

/// What plexrl-observer sends, a JSON object a line. It is checked here, whoever sends it.
namespace plexrl::nodemgr {

inline constexpr int kObserverVersion = 1;

/// {"hello": {"version": 1, "lacks": ["…"]}}: the first line.
struct ObserverHello {
  int version = 0;
  std::vector<std::string> lacks;  ///< what it can't see here, in words
};

/// {"causes": {"gap": 7, "final": true,
///             "causes": [{"cause": "sleep", "detail": "", "time_ns": 1}]}}
struct ObserverCauses {
  std::uint64_t gap = 0;
  bool is_final = false;
  GapCauses causes;
};

/// {"openers": [{"pid": 1, "uid": 0, "command": "x", "files": ["nvidia0"], "preloaded": false}]}:
/// all processes that have GPUs' device files open, each time that they have changed.
struct ObserverOpeners {
  struct Process {
    std::int64_t pid = 0;
    std::uint32_t uid = 0;
    std::string command;
    std::vector<std::string> files;  ///< names in /dev
    bool is_preloaded = false;       ///< with the job's preload in it, and at work
  };
  std::vector<Process> processes;
};

/// A line of a kind that only a later observer sends.
struct ObserverUnknown {};

using ObserverLine = std::variant<ObserverUnknown, ObserverHello, ObserverCauses, ObserverOpeners>;

/// Errors: what makes no sense, in words.
[[nodiscard]] absl::StatusOr<ObserverLine> parse_observer_line(const std::string& line);

}  // namespace plexrl::nodemgr
