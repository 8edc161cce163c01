#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iostream>
#include <system_error>

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

int write_output(const std::string& bytes, const VerbOptions& options) {
  if (options.output.empty()) {
    std::cout << bytes << std::flush;
    return std::cout ? cli::kDone : cli::kFailed;
  }
  std::ofstream file(options.output, std::ios::binary | std::ios::trunc);
  file << bytes << std::flush;
  if (!file) {
    std::cerr << "plexrl-trace: " << options.output << ": "
              << std::generic_category().message(errno) << "\n";
    return cli::kFailed;
  }
  return cli::kDone;
}

int write_export(const Model& model, const VerbOptions& options) {
  if (options.output.empty() && options.format == "perfetto" && isatty(STDOUT_FILENO)) {
    std::cerr << "plexrl-trace: a Perfetto trace is binary: name a file with --output\n";
    return cli::kUsage;
  }
  return write_output(exported(model, options.format), options);
}

}  // namespace plexrl::trace
