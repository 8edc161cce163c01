#include "tools/cli/table.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/verbs.h"

namespace plexrl::ctl {

std::string show_memory(const Json& answer) {
  using cli::Table;
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"JOB"},
               {"PID", kRight},
               {"GPU", kRight},
               {"KIND"},
               {"BYTES", kRight},
               {"TIER"},
               {"PAGEABLE"},
               {"REASON"}});
  for (const Json& row : array_of(answer, "memory")) {
    table.add_row({text_of(row, "job").substr(0, 8), count_of(row, "pid"), count_of(row, "gpu"),
                   text_of(row, "kind"), bytes_of(row, "bytes"), text_of(row, "tier"),
                   text_of(row, "pageable"), text_of(row, "reason")});
  }
  if (table.empty()) return heading(answer) + "no memory in use\n";
  Table sums({{"JOB"},
              {"PID", kRight},
              {"GPU", kRight},
              {"IN HBM BY THE DRIVER", kRight},
              {"BY THE ROWS ABOVE", kRight}});
  for (const Json& row : array_of(answer, "processes")) {
    sums.add_row({text_of(row, "job").substr(0, 8), count_of(row, "pid"), count_of(row, "gpu"),
                  bytes_of(row, "driver_bytes"), bytes_of(row, "accounted_bytes")});
  }
  std::string text = heading(answer) + table.str();
  if (!sums.empty()) text.append("\n").append(sums.str());
  return text;
}

}  // namespace plexrl::ctl
