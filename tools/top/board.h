#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/ctl/admin_client.h"

/// What plexrl-top shows, as text: no terminal, no clock, no socket.
namespace plexrl::top {

using ctl::Json;

enum class Look : std::uint8_t { kPlain, kTitle, kDim, kGood, kBusy, kBad, kChosen };

/// A piece of a line, UTF-8 without control characters.
struct Span {
  std::string text;
  Look look = Look::kPlain;
};
using Line = std::vector<Span>;

/// By what the jobs are in order.
enum class Order : std::uint8_t { kArrival, kName, kState, kHbm, kShare, kWait, kSlowdown };
/// The word of an order on the command line and the screen, and back; kArrival for no such word.
const char* order_name(Order order);
const std::vector<std::string>& order_names();
Order order_named(const std::string& name);

/// What the user has chosen to see.
struct View {
  Order order = Order::kArrival;
  bool is_reversed = false;
  std::string filter;   ///< only jobs with this in id, name, user, team or state; empty: all
  std::string chosen;   ///< the id of the marked job; empty or gone: the first one is
  std::string prompt;   ///< what is being typed, with its question; empty: nothing
  std::string message;  ///< the last line, instead of the keys
  bool shows_help = false;
};

struct Size {
  int rows, columns;
};

/// The jobs of an answer that the view shows, in its order.
std::vector<Json> jobs_shown(const Json& status, const View& view);

/// The id of the marked one of `jobs`; empty when there is none.
std::string chosen_id(const std::vector<Json>& jobs, const View& view);

/// `status` and `memory` are the manager's answers to those verbs; keys that are absent leave
/// blanks. The result has at most `size.rows` lines of at most `size.columns` columns. Where not
/// all jobs fit, those around the marked one are shown, and how many there are.
std::vector<Line> draw(const Json& status, const Json& memory, const View& view, Size size);

/// The same for a pipe: every job, as wide as it gets, without marks and keys.
std::string draw_once(const Json& status, const Json& memory, const View& view);

}  // namespace plexrl::top
