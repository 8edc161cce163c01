#pragma once

#include <string>
#include <vector>

namespace plexrl::cli {

/// A table of text for the terminal: columns two spaces apart, numbers to the right, no borders.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns);

  /// `cells` has one entry per column. An empty cell is shown as "-".
  void add_row(std::vector<std::string> cells);

  bool empty() const { return rows_.empty(); }

  /// Title line and rows, each ended by a newline; no trailing blanks.
  std::string str() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Terminal columns that UTF-8 text takes, one per code point (no wide or combining characters are
/// drawn by our tools; names that have them are only misaligned).
size_t display_width(const std::string& text);

/// `text` with control characters replaced by '?', so that a name from another process can't drive
/// the terminal.
std::string printable(const std::string& text);

}  // namespace plexrl::cli
