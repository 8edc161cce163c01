#pragma once

namespace plexrl::cli {

/// What may be drawn on a file descriptor.
struct Terminal {
  bool is_terminal = false;
  bool has_colour =
      false;  ///< a terminal, TERM is not "dumb", NO_COLOR unset or empty (no-color.org)
  bool has_unicode = false;  ///< the locale's character set (LC_ALL, LC_CTYPE, LANG) is UTF-8
  int columns = 80;          ///< the terminal's, else $COLUMNS, else 80
};

/// Looks at `fd` and the environment.
Terminal terminal_of(int fd);

}  // namespace plexrl::cli
