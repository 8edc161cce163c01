#pragma once

#include <optional>

#include "tools/top/board.h"

namespace plexrl::top {

/// Keys that are no characters.
enum Key : int { kUp = 0x110000, kDown, kEnter, kEscape, kBackspace };

/// What a key asks for besides another view.
struct Wish {
  bool quits = false;
  std::optional<Json> request;  ///< for the manager: {"verb": …, "job": …}
  std::string done;             ///< what to say when the manager has done it
};

/// Keeps what is being typed. One thread.
class Keys {
 public:
  /// `key`: a Unicode code point or a Key. Changes the view; `status` is what the screen shows.
  Wish press(int key, const Json& status, View& view);

 private:
  enum class Typing { kNothing, kFilter, kPriority };

  Wish type(int key, View& view);
  Wish command(int key, const Json& status, View& view);
  void show_typed(View& view) const;

  Typing typing_ = Typing::kNothing;
  std::string typed_;
  std::string job_;  ///< whose priority is typed
};

}  // namespace plexrl::top
