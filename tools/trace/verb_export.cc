#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iostream>

#include "tools/cli/exit_status.h"
#include "tools/trace/export_csv.h"
#include "tools/trace/export_perfetto.h"
#include "tools/trace/report_json.h"
#include "tools/trace/verbs.h"

namespace plexrl::trace {
namespace {

std::string exported(const Model& model, const std::string& format) {
  if (format == "perfetto") return export_perfetto(model);
  if (format == "csv") return export_csv(model);
  return export_json(model).dump() + "\n";
}

}  // namespace

int write_export(const Model& model, const VerbOptions& options) {
  if (options.output.empty() && options.format == "perfetto" && isatty(STDOUT_FILENO)) {
    std::cerr << "plexrl-trace: a Perfetto trace is binary: name a file with --output\n";
    return cli::kUsage;
  }
  const std::string bytes = exported(model, options.format);
  if (options.output.empty()) {
    std::cout << bytes << std::flush;
    return std::cout ? cli::kDone : cli::kFailed;
  }
  std::ofstream file(options.output, std::ios::binary | std::ios::trunc);
  file << bytes << std::flush;
  if (!file) {
    std::cerr << "plexrl-trace: " << options.output << ": " << strerror(errno) << "\n";
    return cli::kFailed;
  }
  return cli::kDone;
}

}  // namespace plexrl::trace
