#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "tools/cli/exit_status.h"
#include "tools/cli/format.h"
#include "tools/trace/report_json.h"
#include "tools/trace/timeline.h"
#include "tools/trace/verbs.h"

namespace plexrl::trace {

int print_timeline(const Model& model, const VerbOptions& options) {
  if (options.from_ns && model.start_ns + *options.from_ns >= model.end_ns) {
    std::cerr << "plexrl-trace: --from " << cli::format_ns(static_cast<double>(*options.from_ns))
              << " lies past the end of the trace, which is "
              << cli::format_ns(static_cast<double>(model.end_ns - model.start_ns)) << " long\n";
    return cli::kFailed;
  }
  const std::int64_t from = model.start_ns + options.from_ns.value_or(0);
  const std::int64_t to =
      options.to_ns ? model.start_ns + *options.to_ns : std::max(model.end_ns, from + 1);
  if (from >= to) {
    std::cerr << "plexrl-trace: --from must lie before --to\n";
    return cli::kUsage;
  }
  if (options.json) {
    std::cout << timeline_json(model, from, to).dump() << "\n";
    return cli::kDone;
  }
  const cli::Terminal terminal = cli::terminal_of(STDOUT_FILENO);
  const TimelineView view{.from_ns = from,
                          .to_ns = to,
                          .columns = options.width > 0 ? options.width : terminal.columns,
                          .has_colour = terminal.has_colour,
                          .has_unicode = terminal.has_unicode};
  std::cout << heading(model) << "\n" << draw_timeline(model, view);
  return cli::kDone;
}

}  // namespace plexrl::trace
