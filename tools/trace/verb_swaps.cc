#include <iostream>

#include "tools/cli/exit_status.h"
#include "tools/cli/format.h"
#include "tools/cli/table.h"
#include "tools/trace/report_json.h"
#include "tools/trace/verbs.h"

namespace plexrl::trace {

int print_swaps(const Model& model, const VerbOptions& options) {
  if (options.json) {
    std::cout << swaps_json(model).dump() << "\n";
    return cli::kDone;
  }
  using cli::Table;
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"AT", kRight},
               {"GPU", kRight},
               {"OUT"},
               {"IN"},
               {"REASON"},
               {"NEEDED", kRight},
               {"MOVED OUT", kRight},
               {"MOVED IN", kRight},
               {"TO DISK", kRight},
               {"FROM DISK", kRight},
               {"UNTOUCHED", kRight},
               {"REPEATED", kRight},
               {"UNCHANGED", kRight},
               {"SHARED", kRight},
               {"DRAIN", kRight},
               {"EVICT", kRight},
               {"LOAD", kRight},
               {"LINK", kRight}});
  auto bytes = [](std::uint64_t value) { return cli::format_bytes(static_cast<double>(value)); };
  auto time = [](std::uint64_t ns) { return cli::format_ns(static_cast<double>(ns)); };
  auto name = [&](const std::string& id) { return id.empty() ? "" : model.job_name(id); };
  for (const auto& [at_ns, swap] : model.swaps) {
    table.add_row(
        {relative_time(model, at_ns), std::to_string(swap.gpu_index()), name(swap.out_job_id()),
         name(swap.in_job_id()), swap.reason(), bytes(swap.needed_bytes()), bytes(swap.out_bytes()),
         bytes(swap.in_bytes()), bytes(swap.out_disk_bytes()), bytes(swap.in_disk_bytes()),
         bytes(swap.untouched_bytes()), bytes(swap.repeated_bytes()), bytes(swap.unchanged_bytes()),
         bytes(swap.shared_bytes()), time(swap.drain_ns()), time(swap.evict_ns()),
         time(swap.load_ns()), swap.link_ratio() > 0 ? cli::format_ratio(swap.link_ratio()) : ""});
  }
  std::cout << heading(model) << "\n" << (table.empty() ? "no swaps\n" : table.str());
  return cli::kDone;
}

}  // namespace plexrl::trace
