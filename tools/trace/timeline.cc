#include "tools/trace/timeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/cli/format.h"
#include "tools/cli/table.h"
#include "tools/trace/timeline_rows.h"

namespace plexrl::trace {
namespace {

struct Look {
  const char* state;
  const char* word;     ///< in the legend
  const char* plain;    ///< one column
  const char* unicode;  ///< one column
  const char* colour;   ///< SGR parameters
};

// In order of what is shown when two states take as much of a cell.
constexpr std::array<Look, 8> kLooks = {{
    {"running", "busy", "#", "█", "32"},
    {kHeldIdle, "held, idle", "=", "━", "36"},
    {"loading", "paging", "+", "▓", "35"},
    {"draining", "draining", "-", "▒", "33"},
    {"waiting", "waiting", ".", "░", "31"},
    {"queued", "queued", "q", "q", "31"},
    {"paused", "paused", "p", "p", "90"},
    {"idle", "idle", "_", "·", "90"},
}};
constexpr int kNothing = -1;
constexpr int kLongestLabel = 24;

int look_of(const std::string& state) {
  for (size_t i = 0; i < kLooks.size(); ++i) {
    if (state == kLooks[i].state) return static_cast<int>(i);
  }
  return kNothing;
}

// The state with most time in each cell, or kNothing where less than half of it is known.
std::vector<int> cells_of(const TimelineRow& row, const TimelineView& view, int count) {
  const double cell_ns = static_cast<double>(view.to_ns - view.from_ns) / count;
  std::vector<std::array<double, kLooks.size()>> time(count);
  for (const TimelineSlice& slice : row.slices) {
    const int look = look_of(slice.state);
    const double begin = static_cast<double>(std::max(slice.start_ns, view.from_ns) - view.from_ns);
    const double end = static_cast<double>(std::min(slice.end_ns, view.to_ns) - view.from_ns);
    if (look == kNothing || begin >= end) continue;
    const int last = std::min(count - 1, static_cast<int>(end / cell_ns));
    for (int cell = static_cast<int>(begin / cell_ns); cell <= last; ++cell) {
      time[cell][look] +=
          std::max(0.0, std::min(end, (cell + 1) * cell_ns) - std::max(begin, cell * cell_ns));
    }
  }
  std::vector<int> cells;
  for (const auto& shares : time) {
    double known = 0;
    for (const double share : shares) known += share;
    const auto most = std::max_element(shares.begin(), shares.end());
    cells.push_back(known * 2 < cell_ns ? kNothing : static_cast<int>(most - shares.begin()));
  }
  return cells;
}

std::string paint(int look, int count, const TimelineView& view) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += look == kNothing ? " " : view.has_unicode ? kLooks[look].unicode : kLooks[look].plain;
  }
  if (!view.has_colour || look == kNothing) return text;
  return std::string("\x1b[") + kLooks[look].colour + "m" + text + "\x1b[0m";
}

std::string padded(const std::string& text, size_t width) {
  const size_t have = cli::display_width(text);
  return text + std::string(have < width ? width - have : 0, ' ');
}

std::string scale(const Model& model, const TimelineView& view, size_t label_width, int cells) {
  const std::string left = cli::format_ns(static_cast<double>(view.from_ns - model.start_ns));
  const std::string right = cli::format_ns(static_cast<double>(view.to_ns - model.start_ns));
  const size_t used = left.size() + right.size();
  const size_t gap = static_cast<size_t>(cells) > used ? cells - used : 1;
  return std::string(label_width + 1, ' ') + left + std::string(gap, ' ') + right + "\n";
}

std::string legend(const TimelineView& view) {
  std::string line;
  int width = 0;
  for (size_t i = 0; i < kLooks.size(); ++i) {
    if (kLooks[i].state == std::string("queued") || kLooks[i].state == std::string("paused"))
      continue;
    const std::string word = kLooks[i].word;
    line += (line.empty() ? "" : "  ") + paint(static_cast<int>(i), 1, view) + " " + word;
    width += static_cast<int>(word.size()) + 4;
  }
  return line + "\n";
}

}  // namespace

std::string draw_timeline(const Model& model, const TimelineView& view) {
  const auto rows = timeline_rows(model);
  size_t label_width = 0;
  for (const TimelineRow& row : rows)
    label_width = std::max(label_width, cli::display_width(row.label));
  label_width = std::min<size_t>(label_width, kLongestLabel);
  const int cells = std::max(1, std::max(view.columns, 40) - static_cast<int>(label_width) - 1);

  std::string out = scale(model, view, label_width, cells);
  for (const TimelineRow& row : rows) {
    std::string label = cli::printable(row.label);
    if (cli::display_width(label) > label_width) label.resize(label_width);
    out += padded(label, label_width) + " ";
    const auto looks = cells_of(row, view, cells);
    for (size_t begin = 0; begin < looks.size();) {
      size_t end = begin;
      while (end < looks.size() && looks[end] == looks[begin]) ++end;
      out += paint(looks[begin], static_cast<int>(end - begin), view);
      begin = end;
    }
    out += "\n";
  }
  return out + legend(view);
}

}  // namespace plexrl::trace
