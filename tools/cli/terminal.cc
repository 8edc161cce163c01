#include "tools/cli/terminal.h"

#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace plexrl::cli {
namespace {

std::string_view env(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = env(name);
    if (value.empty()) continue;
    const auto dot = value.find('.');
    if (dot == std::string_view::npos) return false;
    const std::string_view charset = value.substr(dot + 1);
    return strncasecmp(charset.data(), "utf-8", 5) == 0 ||
           strncasecmp(charset.data(), "utf8", 4) == 0;
  }
  return false;
}

}  // namespace

Terminal terminal_of(int fd) {
  Terminal terminal;
  terminal.is_terminal = isatty(fd) != 0;
  terminal.has_colour = terminal.is_terminal && env("NO_COLOR").empty() && env("TERM") != "dumb";
  terminal.has_unicode = locale_is_utf8();
  winsize size{};
  if (terminal.is_terminal && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.columns = size.ws_col;
  } else if (const int columns = std::atoi(std::string(env("COLUMNS")).c_str()); columns > 0) {
    terminal.columns = columns;
  }
  return terminal;
}

}  // namespace plexrl::cli
