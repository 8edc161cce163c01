#include "tools/sim/html.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace plexrl::sim {
namespace {

constexpr int kWidth = 960;
constexpr int kRow = 14;
constexpr std::size_t kMostSlots = 200;

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string digits(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}
std::string digits(const std::optional<double>& value) { return value ? digits(*value) : ""; }

/// Distinct for neighbours; the same for the same number in every chart.
std::string colour(std::size_t number) {
  return "hsl(" + std::to_string(number * 137 % 360) + ",55%,55%)";
}

std::string bar(double x, double y, double width, double height, const std::string& fill,
                const std::string& title) {
  return "<rect x=\"" + digits(x) + "\" y=\"" + digits(y) + "\" width=\"" +
         digits(std::max(width, 0.5)) + "\" height=\"" + digits(height) + "\" fill=\"" + fill +
         "\"><title>" + escaped(title) + "</title></rect>\n";
}

std::string label(double x, double y, const std::string& text) {
  return "<text x=\"" + digits(x) + "\" y=\"" + digits(y) + "\">" + escaped(text) + "</text>\n";
}

std::string svg(double height, const std::string& inside) {
  return "<svg viewBox=\"0 0 " + std::to_string(kWidth) + " " + digits(height) +
         "\" width=\"100%\">\n" + inside + "</svg>\n";
}

std::string rows_table(const Report& report) {
  std::string html =
      "<table><tr><th>what (simulated)<th>value<th>± sd<th>unit<th>goal<th>met<th>best known"
      "<th>bound<th>seeds</tr>\n";
  for (const Row& row : report.rows) {
    std::string met = row.met() ? (*row.met() ? "yes" : "no") : "";
    html += "<tr><td>" + escaped(row.name) + "<td>" +
            (row.error.empty() ? digits(row.value) : escaped(row.error)) + "<td>" +
            (row.rounds > 1 ? digits(row.spread) : "") + "<td>" + escaped(row.unit) + "<td>" +
            digits(row.goal) + "<td class=\"" + met + "\">" + met + "<td>" +
            digits(row.best_known) + "<td>" + digits(row.bound) + "<td>" +
            std::to_string(row.rounds) + "</tr>\n";
    for (const std::string& one : row.assumptions) {
      html += "<tr class=\"aside\"><td colspan=\"9\">" + escaped(one) + "</tr>\n";
    }
    if (row.bound && !row.bound_name.empty()) {
      html += "<tr class=\"aside\"><td colspan=\"9\">bound: " + escaped(row.bound_name) + "</tr>\n";
    }
  }
  return html + "</table>\n";
}

/// A line per slot: which jobs are on it, when.
std::string time_line(const Result& result) {
  std::string inside;
  double scale = result.end_s > 0 ? (kWidth - 130) / result.end_s : 0;
  std::size_t shown = std::min(result.slots.size(), kMostSlots);
  std::vector<std::vector<std::size_t>> jobs(result.slots.size());
  for (std::size_t j = 0; j < result.jobs.size(); ++j) {
    for (int slot : result.jobs[j].slots) jobs[static_cast<std::size_t>(slot)].push_back(j);
  }
  double y = 0;
  for (std::size_t s = 0; s < shown; ++s) {
    const SlotUse& slot = result.slots[s];
    inside += label(0, y + kRow - 4,
                    slot.pool + " " + std::to_string(slot.number) + " (" +
                        std::to_string(slot.gpus) + " GPUs)");
    double lane = static_cast<double>(kRow - 2) /
                  static_cast<double>(std::max<std::size_t>(1, jobs[s].size()));
    for (std::size_t i = 0; i < jobs[s].size(); ++i) {
      const JobResult& job = result.jobs[jobs[s][i]];
      inside += bar(130 + job.started_s * scale, y + lane * static_cast<double>(i),
                    (job.finished_s - job.started_s) * scale, lane, colour(jobs[s][i]),
                    job.name + ": slowdown " + digits(job.slowdown));
    }
    y += kRow;
  }
  std::string note = shown < result.slots.size()
                         ? "<p>The first " + std::to_string(shown) + " of " +
                               std::to_string(result.slots.size()) + " slots.</p>\n"
                         : "";
  return svg(y + 4, inside) + note;
}

std::string histogram(const std::vector<double>& values, double from, double to,
                      const std::string& unit) {
  constexpr int kBins = 40;
  constexpr double kHeight = 120;
  std::vector<int> bins(kBins);
  int most = 1;
  for (double value : values) {
    int bin = std::clamp(static_cast<int>((value - from) / (to - from) * kBins), 0, kBins - 1);
    most = std::max(most, ++bins[static_cast<std::size_t>(bin)]);
  }
  std::string inside;
  double width = static_cast<double>(kWidth) / kBins;
  for (int i = 0; i < kBins; ++i) {
    double height = kHeight * bins[static_cast<std::size_t>(i)] / most;
    double at = from + (to - from) * i / kBins;
    inside += bar(width * i, kHeight - height, width - 2, height, "#4a7ab5",
                  digits(at) + unit + ": " + std::to_string(bins[static_cast<std::size_t>(i)]));
  }
  inside += label(0, kHeight + 14, digits(from) + unit);
  inside += label(kWidth - 60, kHeight + 14, digits(to) + unit);
  return svg(kHeight + 18, inside);
}

std::string run_section(const SchedulerRun& run) {
  const Result& result = run.result;
  std::string html = "<h2>" + escaped(run.scheduler) + "</h2>\n<h3>Jobs on slots over time</h3>\n" +
                     time_line(result);
  std::vector<double> duty;
  for (const SlotUse& slot : result.slots) {
    if (slot.closed_s > slot.opened_s) {
      duty.push_back(slot.worked_s / (slot.closed_s - slot.opened_s));
    }
  }
  std::vector<double> slowdown;
  for (const JobResult& job : result.jobs) {
    if (job.finished) slowdown.push_back(job.slowdown);
  }
  double largest = slowdown.empty() ? 2 : *std::max_element(slowdown.begin(), slowdown.end());
  html += "<h3>Duty of slots</h3>\n" + histogram(duty, 0, 1, "");
  html += "<h3>Slowdown of jobs</h3>\n" + histogram(slowdown, 1, std::max(1.1, largest), "×");
  return html;
}

std::string list(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string html = std::string("<h2>") + title + "</h2><ul>\n";
  for (const std::string& line : lines) html += "<li>" + escaped(line) + "\n";
  return html + "</ul>\n";
}

}  // namespace

std::string to_html(const Report& report, const std::vector<SchedulerRun>& runs) {
  std::string html =
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>plexrl-sim " +
      escaped(report.name) +
      "</title>\n<style>body{font:14px sans-serif;max-width:1100px;margin:2em auto}"
      "table{border-collapse:collapse}td,th{padding:2px 8px;text-align:left;border-bottom:1px "
      "solid #ddd}.aside td{color:#666;font-size:12px;border:0;padding-left:2em}"
      ".yes{color:#080}.no{color:#b00}text{font:10px sans-serif}</style>\n<h1>" +
      escaped(report.name) + " (simulated)</h1>\n<p><code>" + escaped(report.command) +
      "</code>, first seed " + std::to_string(report.first_seed) + "</p>\n";
  html += rows_table(report);
  for (const SchedulerRun& run : runs) html += run_section(run);
  html += list("Where inputs come from", report.origins);
  html += list("Notes", report.notes);
  return html + "</html>\n";
}

}  // namespace plexrl::sim
