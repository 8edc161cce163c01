#include <unistd.h>

#include <iostream>

#include "tools/cli/exit_status.h"
#include "tools/trace/html_report.h"
#include "tools/trace/verbs.h"

namespace plexrl::trace {

int write_report(const Model& model, const VerbOptions& options) {
  if (options.output.empty() && isatty(STDOUT_FILENO)) {
    std::cerr << "plexrl-trace: a report is a page for a browser: name a file with --output\n";
    return cli::kUsage;
  }
  return write_output(html_report(model), options);
}

}  // namespace plexrl::trace
