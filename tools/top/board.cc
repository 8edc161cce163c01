#include "tools/top/board.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "tools/cli/format.h"
#include "tools/cli/table.h"
#include "tools/ctl/answer.h"

namespace plexrl::top {
namespace {

using ctl::array_of;
using ctl::text_of;

constexpr std::size_t kNarrow = 110;  ///< below this many columns bars are short
constexpr const char* kKeys =
    "q quit  s sort  r reverse  / filter  p pause, resume  n priority  ? help";
constexpr const char* kHelp[] = {
    "q         end",
    "up, down  choose a job (also k, j)",
    "s, r      sort by the next column; turn the order round",
    "/         only jobs with a text in id, name, user, team or state; Esc: all",
    "p         pause the job: it gives its GPUs back at the next cut; or resume it",
    "n         give the job another priority, 0 (last) to 100 (first)",
    "",
    "Letters in a GPU's memory bar are the jobs with memory there, '*' is others'.",
    "SLOW  its time over its time alone    WAKE  when it should want a GPU again",
    "A narrow terminal leaves columns out.",
};

double number_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

// ---- lines of cells

struct Cell {
  std::string text;
  Look look = Look::kPlain;
};

struct Column {
  const char* title;
  bool is_right = false;
  bool may_shrink = false;  ///< is cut where the line is too long
  int rank = 0;             ///< where it still is, those with the highest rank above 0 go first
};

// The first `columns` code points.
std::string cut(const std::string& text, std::size_t columns) {
  const std::string shown = cli::printable(text);
  std::size_t end = 0;
  for (std::size_t seen = 0; end < shown.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(shown[end]) & 0xC0) != 0x80;
    if (begins && seen++ == columns) break;
  }
  return shown.substr(0, end);
}

Line line_of(const std::vector<Column>& columns, const std::vector<std::size_t>& widths,
             const std::vector<Cell>& cells) {
  Line line;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::string text = cut(cells[i].text, widths[i]);
    const std::string blanks(widths[i] - cli::display_width(text), ' ');
    const bool is_last = i + 1 == columns.size();
    line.push_back({columns[i].is_right ? blanks + text
                    : is_last           ? text
                                        : text + blanks,
                    cells[i].look});
    if (!is_last) line.push_back({"  "});
  }
  return line;
}

constexpr std::size_t kLeastShrunk = 8;

// Each column's width: that of its widest cell; `least`: that those that may shrink can be cut to.
struct Width {
  std::size_t full, least;
};

std::size_t least_room(const std::vector<Width>& widths) {
  std::size_t room = 0;
  for (const Width& width : widths) room += width.least + 2;
  return room - 2;
}

// A title and a line for each row, within `room` columns if the columns of rank 0 can be: first
// columns go, then the last ones that may shrink do so.
std::vector<Line> grid(std::vector<Column> columns, std::vector<std::vector<Cell>> rows,
                       std::size_t room) {
  std::vector<Width> widths;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    std::size_t width = cli::display_width(columns[i].title);
    for (const auto& row : rows) width = std::max(width, cli::display_width(row[i].text));
    widths.push_back({width, columns[i].may_shrink ? std::min(width, kLeastShrunk) : width});
  }
  while (least_room(widths) > room) {
    const auto worst =
        std::max_element(columns.begin(), columns.end(),
                         [](const Column& a, const Column& b) { return a.rank < b.rank; });
    if (worst->rank == 0) break;
    const auto place = worst - columns.begin();
    columns.erase(worst);
    widths.erase(widths.begin() + place);
    for (auto& row : rows) row.erase(row.begin() + place);
  }
  std::size_t left = room - std::min(room, least_room(widths));
  std::vector<std::size_t> shown;
  for (const auto& [full, least] : widths) {
    const std::size_t more = std::min(left, full - least);
    shown.push_back(least + more);
    left -= more;
  }
  std::vector<Cell> titles;
  for (const Column& column : columns) titles.push_back({column.title, Look::kTitle});
  std::vector<Line> lines = {line_of(columns, shown, titles)};
  for (const auto& row : rows) lines.push_back(line_of(columns, shown, row));
  return lines;
}

// ---- GPUs

char letter_of(std::size_t place) {
  return place < 26   ? static_cast<char>('a' + place)
         : place < 52 ? static_cast<char>('A' + place - 26)
                      : '+';
}

using Letters = std::map<std::string, char>;

// Jobs keep their letter as long as those before them stay.
Letters letters_of(const Json& status) {
  Letters letters;
  for (const Json& job : array_of(status, "jobs")) {
    letters.emplace(text_of(job, "id"), letter_of(letters.size()));
  }
  return letters;
}

std::string bar(double share, std::size_t columns) {
  const auto full = static_cast<std::size_t>(
      std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(columns)));
  return absl::StrCat("[", std::string(full, '|'), std::string(columns - full, ' '), "]");
}

std::string memory_bar(const Json& gpu, const Json& memory, const Letters& letters,
                       std::size_t columns) {
  const double total = number_of(gpu, "total_bytes");
  if (total <= 0) return bar(0, columns);
  std::map<char, double> by_job;
  for (const Json& row : array_of(memory, "memory")) {
    const auto job = letters.find(text_of(row, "job"));
    if (job == letters.end() || text_of(row, "tier") != "hbm") continue;
    if (number_of(row, "gpu") == number_of(gpu, "index"))
      by_job[job->second] += number_of(row, "bytes");
  }
  by_job['~'] = number_of(gpu, "used_by_others_bytes");  // after all letters
  std::string text;
  double before = 0;
  for (const auto& [letter, bytes] : by_job) {
    before += bytes;
    const auto until = static_cast<std::size_t>(
        std::lround(std::min(before / total, 1.0) * static_cast<double>(columns)));
    if (until > text.size()) text.append(until - text.size(), letter == '~' ? '*' : letter);
  }
  return absl::StrCat("[", text, std::string(columns - text.size(), ' '), "]");
}

std::string job_name(const Json& status, const std::string& id) {
  for (const Json& job : array_of(status, "jobs")) {
    if (text_of(job, "id") == id) return text_of(job, "name");
  }
  return id.substr(0, 8);
}

std::vector<Line> gpu_lines(const Json& status, const Json& memory, std::size_t room) {
  const Letters letters = letters_of(status);
  const std::size_t bar_columns = room < kNarrow ? 8 : 20;
  std::vector<std::vector<Cell>> rows;
  for (const Json& gpu : array_of(status, "gpus")) {
    std::string queue;
    for (const Json& id : array_of(gpu, "queue")) {
      if (id.is_string())
        absl::StrAppend(&queue, queue.empty() ? "" : " ", job_name(status, id.get<std::string>()));
    }
    const std::string holder = text_of(gpu, "holder");
    const double used =
        number_of(gpu, "used_by_plexrl_bytes") + number_of(gpu, "used_by_others_bytes");
    rows.push_back(
        {{ctl::count_of(gpu, "index")},
         {bar(number_of(gpu, "duty_ratio"), bar_columns) + " " + ctl::ratio_of(gpu, "duty_ratio"),
          Look::kGood},
         {memory_bar(gpu, memory, letters, bar_columns) + " " + cli::format_bytes(used),
          Look::kBusy},
         {ctl::rate_of(gpu, "out_bytes_s")},
         {ctl::rate_of(gpu, "in_bytes_s")},
         {holder.empty() ? "-" : job_name(status, holder)},
         {queue.empty() ? "-" : queue, queue.empty() ? Look::kDim : Look::kBad}});
  }
  return grid({{"GPU", true},
               {"DUTY"},
               {"MEMORY"},
               {"OUT", true, false, 2},
               {"IN", true, false, 1},
               {"HOLDER", false, true},
               {"QUEUE", false, true}},
              rows, room);
}

// ---- jobs

bool has_disk_tier(const Json& status) {
  const auto manager = status.find("manager");
  return manager != status.end() && manager->is_object() && !text_of(*manager, "disk_dir").empty();
}

Look look_of(const std::string& state) {
  if (state == "running") return Look::kGood;
  if (state == "loading" || state == "draining") return Look::kBusy;
  if (state == "waiting" || state == "queued") return Look::kBad;
  return Look::kDim;
}

std::string why_of(const Json& job) {
  const std::string queued = text_of(job, "queued_reason");
  if (!queued.empty()) return queued;
  for (const Json& gang : array_of(job, "gangs")) {
    if (const auto waits = text_of(gang, "waits_for"); !waits.empty()) return waits;
  }
  for (const Json& gang : array_of(job, "gangs")) {
    if (const auto why = text_of(gang, "exclusive_reason"); !why.empty())
      return absl::StrCat("exclusive: ", why);
  }
  const std::string cause = ctl::gap_of(job);
  return cause.empty() ? "" : absl::StrCat("idle: ", cause);
}

std::vector<Cell> job_cells(const Json& job, const Letters& letters) {
  const std::string state = text_of(job, "state"), id = text_of(job, "id");
  const auto letter = letters.find(id);
  std::string gpus;
  for (const Json& gang : array_of(job, "gangs")) {
    const auto list = ctl::list_of(gang, "gpus");
    if (!list.empty()) absl::StrAppend(&gpus, gpus.empty() ? "" : " | ", list);
  }
  return {{letter == letters.end() ? "" : std::string(1, letter->second), Look::kDim},
          {id.substr(0, 8), Look::kDim},
          {text_of(job, "name")},
          {text_of(job, "user")},
          {ctl::count_of(job, "priority")},
          {state, look_of(state)},
          {gpus},
          {ctl::bytes_of(job, "hbm_bytes")},
          {ctl::bytes_of(job, "host_bytes")},
          {ctl::bytes_of(job, "disk_bytes")},
          {ctl::ratio_of(job, "share_ratio")},
          {ctl::times_of(job, "slowdown_ratio")},
          {ctl::seconds_of(job, "next_wake_s")},
          {why_of(job)}};
}

// A gang of a job that has several: its state and what it waits for.
std::vector<Cell> gang_cells(const Json& gang) {
  const std::string state = text_of(gang, "state");
  std::vector<Cell> cells(14);
  cells[2] = {absl::StrCat("  gang ", text_of(gang, "id")), Look::kDim};
  cells[5] = {state, look_of(state)};
  cells[6] = {ctl::list_of(gang, "gpus")};
  cells[13] = {text_of(gang, "waits_for")};
  return cells;
}

struct JobLines {
  Line title;
  std::vector<Line> lines;
  std::vector<std::string> ids;  ///< whose line it is
};

JobLines job_lines(const Json& status, const std::vector<Json>& jobs, std::size_t room) {
  const Letters letters = letters_of(status);
  std::vector<std::vector<Cell>> rows;
  JobLines result;
  for (const Json& job : jobs) {
    rows.push_back(job_cells(job, letters));
    result.ids.push_back(text_of(job, "id"));
    const Json& gangs = array_of(job, "gangs");
    for (const Json& gang : gangs) {
      if (gangs.size() < 2) break;
      rows.push_back(gang_cells(gang));
      result.ids.push_back(text_of(job, "id"));
    }
  }
  std::vector<Column> columns = {{" "},
                                 {"ID", false, false, 1},
                                 {"JOB", false, true},
                                 {"USER", false, true, 5},
                                 {"PRIO", true},
                                 {"STATE"},
                                 {"GPU"},
                                 {"HBM", true},
                                 {"HOST", true, false, 4},
                                 {"DISK", true, false, 3},
                                 {"SHARE", true},
                                 {"SLOW", true},
                                 {"WAKE", true, false, 2},
                                 {"WHY", false, true}};
  if (!has_disk_tier(status)) {
    constexpr std::ptrdiff_t kDisk = 9;
    columns.erase(columns.begin() + kDisk);
    for (auto& row : rows) row.erase(row.begin() + kDisk);
  }
  auto lines = grid(std::move(columns), std::move(rows), room);
  result.title = std::move(lines.front());
  lines.erase(lines.begin());
  result.lines = std::move(lines);
  return result;
}

// Those that fit, with the marked one among them.
void add_jobs(const JobLines& jobs, const std::string& chosen, std::size_t room,
              std::vector<Line>& out) {
  const auto first = std::find(jobs.ids.begin(), jobs.ids.end(), chosen) - jobs.ids.begin();
  const auto marked = static_cast<std::size_t>(first);
  const std::size_t count = jobs.lines.size();
  std::size_t begin = 0;
  if (count > room && marked < count)
    begin = std::min(marked - std::min(marked, room / 2), count - room);
  for (std::size_t i = begin; i < std::min(count, begin + room); ++i) {
    out.push_back(jobs.lines[i]);
    if (jobs.ids[i] != chosen) continue;
    for (Span& span : out.back()) span.look = Look::kChosen;
  }
}

// ---- the whole

Line head_line(const Json& status) {
  const auto manager = status.find("manager");
  std::string text = absl::StrCat("node ", cli::printable(text_of(status, "node")));
  const auto simulated = status.find("simulated");
  if (simulated != status.end() && simulated->is_boolean() && simulated->get<bool>())
    text += " (simulated GPU)";
  if (manager != status.end() && manager->is_object()) {
    absl::StrAppend(&text, ", up ", ctl::seconds_of(*manager, "uptime_s"), ", host memory ",
                    ctl::bytes_of(*manager, "host_used_bytes"), " of ",
                    ctl::bytes_of(*manager, "host_budget_bytes"));
    if (has_disk_tier(status)) {
      absl::StrAppend(&text, ", disk ", ctl::bytes_of(*manager, "disk_used_bytes"), " of ",
                      ctl::bytes_of(*manager, "disk_budget_bytes"));
    }
    const auto draining = manager->find("draining");
    if (draining != manager->end() && draining->is_boolean() && draining->get<bool>())
      text += ", draining";
  }
  return {{text, Look::kTitle}};
}

Line counts_line(const std::vector<Json>& shown, const Json& status, const View& view) {
  const std::size_t all = array_of(status, "jobs").size();
  std::string text = absl::StrCat(shown.size() == all ? "" : absl::StrCat(shown.size(), " of "),
                                  all, all == 1 ? " job" : " jobs", ", by ", order_name(view.order),
                                  view.is_reversed ? ", reversed" : "");
  if (!view.filter.empty()) absl::StrAppend(&text, ", with '", cli::printable(view.filter), "'");
  return {{text, Look::kDim}};
}

void cut_to(std::vector<Line>& lines, Size size) {
  if (lines.size() > static_cast<std::size_t>(size.rows))
    lines.resize(static_cast<std::size_t>(size.rows));
  for (Line& line : lines) {
    std::size_t left = static_cast<std::size_t>(size.columns);
    for (Span& span : line) {
      span.text = cut(span.text, left);
      left -= cli::display_width(span.text);
    }
  }
}

bool has(const Json& job, const std::string& word) {
  for (const char* key : {"id", "name", "user", "team", "state"}) {
    if (text_of(job, key).find(word) != std::string::npos) return true;
  }
  return false;
}

struct OrderRow {
  Order order;
  const char* name;
  const char* key;  ///< of the job: a text where smaller comes first, else a number, larger first
  bool is_text;
};
constexpr OrderRow kOrders[] = {
    {Order::kArrival, "arrival", nullptr, false},
    {Order::kName, "name", "name", true},
    {Order::kState, "state", "state", true},
    {Order::kHbm, "hbm", "hbm_bytes", false},
    {Order::kShare, "share", "share_ratio", false},
    {Order::kWait, "wait", "wait_s", false},
    {Order::kSlowdown, "slowdown", "slowdown_ratio", false},
};

const OrderRow& row_of(Order order) { return kOrders[static_cast<std::size_t>(order)]; }

}  // namespace

const char* order_name(Order order) { return row_of(order).name; }

const std::vector<std::string>& order_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const OrderRow& row : kOrders) names.emplace_back(row.name);
    return names;
  }();
  return kNames;
}

Order order_named(const std::string& name) {
  for (const OrderRow& row : kOrders) {
    if (name == row.name) return row.order;
  }
  return Order::kArrival;
}

std::vector<Json> jobs_shown(const Json& status, const View& view) {
  std::vector<Json> jobs;
  for (const Json& job : array_of(status, "jobs")) {
    if (has(job, view.filter)) jobs.push_back(job);
  }
  const OrderRow& row = row_of(view.order);
  if (row.key != nullptr) {
    std::stable_sort(jobs.begin(), jobs.end(), [&](const Json& a, const Json& b) {
      return row.is_text ? text_of(a, row.key) < text_of(b, row.key)
                         : number_of(a, row.key) > number_of(b, row.key);
    });
  }
  if (view.is_reversed) std::reverse(jobs.begin(), jobs.end());
  return jobs;
}

std::string chosen_id(const std::vector<Json>& jobs, const View& view) {
  for (const Json& job : jobs) {
    if (text_of(job, "id") == view.chosen) return view.chosen;
  }
  return jobs.empty() ? "" : text_of(jobs.front(), "id");
}

std::vector<Line> draw(const Json& status, const Json& memory, const View& view, Size size) {
  const auto room = static_cast<std::size_t>(size.columns);
  std::vector<Line> lines = {head_line(status)};
  if (view.shows_help) {
    lines.push_back({});
    for (const char* text : kHelp) lines.push_back({{text}});
    lines.push_back({});
    lines.push_back({{"any key goes back", Look::kDim}});
    cut_to(lines, size);
    return lines;
  }
  for (Line& line : gpu_lines(status, memory, room)) lines.push_back(std::move(line));
  // With many GPUs half of the screen is theirs.
  const auto most = static_cast<std::size_t>(std::max(size.rows / 2, 3));
  if (lines.size() > most) {
    const std::size_t hidden = lines.size() - most + 1;
    lines.resize(most - 1);
    lines.push_back({{absl::StrCat("and ", hidden, " more GPUs (plexrl-ctl gpus)"), Look::kDim}});
  }
  const std::vector<Json> shown = jobs_shown(status, view);
  lines.push_back(counts_line(shown, status, view));
  const JobLines jobs = job_lines(status, shown, room);
  lines.push_back(jobs.title);
  const std::size_t used = lines.size() + 1;  // the last line is for keys and messages
  const auto rows = static_cast<std::size_t>(size.rows);
  if (rows > used) add_jobs(jobs, chosen_id(shown, view), rows - used, lines);
  if (rows > lines.size()) lines.resize(rows - 1);
  if (!view.prompt.empty()) {
    lines.push_back({{view.prompt + "_", Look::kTitle}});
  } else if (!view.message.empty()) {
    lines.push_back({{view.message, Look::kBad}});
  } else {
    lines.push_back({{kKeys, Look::kDim}});
  }
  cut_to(lines, size);
  return lines;
}

std::string draw_once(const Json& status, const Json& memory, const View& view) {
  constexpr std::size_t kWide = 1 << 16;
  std::vector<Line> lines = {head_line(status)};
  for (Line& line : gpu_lines(status, memory, kWide)) lines.push_back(std::move(line));
  const JobLines jobs = job_lines(status, jobs_shown(status, view), kWide);
  lines.push_back({});
  lines.push_back(jobs.title);
  lines.insert(lines.end(), jobs.lines.begin(), jobs.lines.end());
  std::string text;
  for (const Line& line : lines) {
    std::string whole;
    for (const Span& span : line) whole += span.text;
    whole.erase(whole.find_last_not_of(' ') + 1);
    text += whole + "\n";
  }
  return text;
}

}  // namespace plexrl::top
