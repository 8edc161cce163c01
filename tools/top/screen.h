#pragma once

#include <chrono>
#include <optional>

#include "tools/top/board.h"

namespace plexrl::top {

/// The terminal, taken over from construction to destruction (ncurses). At most one at a time, and
/// one thread. SIGINT
/// and SIGTERM leave the terminal as it was.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  /// False where the terminal can't be used (TERM unknown): nothing else may be called then.
  bool is_ready() const { return terminal_ != nullptr; }

  Size size() const;
  void show(const std::vector<Line>& lines);

  /// A character or a Key (keys.h); none after `patience`, or when the terminal's size changed.
  std::optional<int> wait_key(std::chrono::milliseconds patience);

 private:
  void* terminal_;
};

}  // namespace plexrl::top
