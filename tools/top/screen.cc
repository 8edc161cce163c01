#include "tools/top/screen.h"

#include <curses.h>
#include <unistd.h>

#include "tools/cli/terminal.h"
#include "tools/top/keys.h"

namespace plexrl::top {
namespace {

constexpr int kEscapeWaitMs = 50;  // for the rest of a key's sequence; ssh sends it in one piece

// Colours are pairs with the number of the look.
struct LookColour {
  Look look;
  short colour;
};
constexpr LookColour kColours[] = {
    {Look::kGood, COLOR_GREEN}, {Look::kBusy, COLOR_MAGENTA}, {Look::kBad, COLOR_RED}};

attr_t attribute_of(Look look, bool has_colour) {
  switch (look) {
    case Look::kPlain:
      return A_NORMAL;
    case Look::kTitle:
      return A_BOLD;
    case Look::kDim:
      return A_DIM;
    case Look::kChosen:
      return A_REVERSE;
    default:
      return has_colour ? COLOR_PAIR(static_cast<int>(look)) : A_NORMAL;
  }
}

}  // namespace

Screen::Screen() : terminal_(newterm(nullptr, stdout, stdin)) {
  if (terminal_ == nullptr) return;
  cbreak();
  noecho();
  keypad(stdscr, TRUE);
  set_escdelay(kEscapeWaitMs);
  curs_set(0);
  if (!cli::terminal_of(STDOUT_FILENO).has_colour || !has_colors()) return;
  start_color();
  use_default_colors();
  for (const auto& [look, colour] : kColours) init_pair(static_cast<short>(look), colour, -1);
}

Screen::~Screen() {
  if (terminal_ == nullptr) return;
  endwin();
  delscreen(static_cast<SCREEN*>(terminal_));
}

Size Screen::size() const { return {getmaxy(stdscr), getmaxx(stdscr)}; }

void Screen::show(const std::vector<Line>& lines) {
  const bool has_colour =
      COLORS > 0 && COLOR_PAIRS > 0 && cli::terminal_of(STDOUT_FILENO).has_colour;
  erase();
  for (std::size_t row = 0; row < lines.size(); ++row) {
    move(static_cast<int>(row), 0);
    for (const Span& span : lines[row]) {
      attrset(static_cast<int>(attribute_of(span.look, has_colour)));
      addstr(span.text.c_str());
    }
  }
  attrset(A_NORMAL);
  refresh();
}

std::optional<int> Screen::wait_key(std::chrono::milliseconds patience) {
  timeout(static_cast<int>(patience.count()));
  const int key = getch();
  switch (key) {
    case ERR:
    case KEY_RESIZE:
      return std::nullopt;
    case KEY_UP:
      return kUp;
    case KEY_DOWN:
      return kDown;
    case '\n':
    case '\r':
    case KEY_ENTER:
      return kEnter;
    case 27:
      return kEscape;
    case '\b':
    case 127:
    case KEY_BACKSPACE:
      return kBackspace;
    default:
      return key;
  }
}

}  // namespace plexrl::top
