// simgpu-stat: what the devices of a simulated machine hold and have done.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/simgpu/driver/machine.h"

namespace plexrl::simgpu {
namespace {

constexpr int kSchema = 1;

/// Lag as a share of the modelled time: beyond 0.05 a measurement says more about this host than
/// about the model.
double lag_ratio(const Machine::Counters& counters) {
  const double busy = static_cast<double>(counters.busy_ns.load());
  return busy > 0 ? static_cast<double>(counters.lag_ns.load()) / busy : 0.0;
}

nlohmann::ordered_json describe(Machine& machine, int device) {
  const Machine::Counters& counters = machine.counters(device);
  nlohmann::ordered_json processes = nlohmann::ordered_json::array();
  for (const Machine::Usage& use : machine.usage(device)) {
    processes.push_back({{"pid", use.pid}, {"bytes", use.bytes}});
  }
  return {{"index", device},
          {"uuid", uuid_text(machine.uuid(device))},
          {"total_bytes", machine.total_bytes(device)},
          {"free_bytes", machine.free_bytes(device)},
          {"busy_ns", counters.busy_ns.load()},
          {"lag_ns", counters.lag_ns.load()},
          {"lag_ratio", lag_ratio(counters)},
          {"kernels", counters.kernels.load()},
          {"to_device_bytes", counters.to_device_bytes.load()},
          {"to_host_bytes", counters.to_host_bytes.load()},
          {"processes", processes}};
}

void print_json(Machine& machine) {
  char node[256] = "";
  gethostname(node, sizeof node - 1);
  nlohmann::ordered_json out = {{"schema", kSchema},
                                {"simulated", true},
                                {"node", node},
                                {"name", machine.spec().name},
                                {"figures", machine.spec().device_part()},
                                {"driver_ns", machine.driver_ns()},
                                {"gpus", nlohmann::ordered_json::array()}};
  for (int i = 0; i < machine.spec().gpus; ++i) out["gpus"].push_back(describe(machine, i));
  std::printf("%s\n", out.dump(2).c_str());
}

void print_text(Machine& machine) {
  std::printf("%s (simulated): %s\ncalls of memory management took %.3f s\n",
              machine.spec().name.c_str(), machine.spec().device_part().c_str(),
              static_cast<double>(machine.driver_ns()) / 1e9);
  for (int i = 0; i < machine.spec().gpus; ++i) {
    const Machine::Counters& counters = machine.counters(i);
    constexpr double kMiB = 1 << 20;
    std::printf(
        "%d %s: %.0f of %.0f MiB free, busy %.3f s, lag %.3f s (%.1f %%), %llu kernels, "
        "%.1f MiB in, %.1f MiB out\n",
        i, uuid_text(machine.uuid(i)).c_str(), static_cast<double>(machine.free_bytes(i)) / kMiB,
        static_cast<double>(machine.total_bytes(i)) / kMiB,
        static_cast<double>(counters.busy_ns.load()) / 1e9,
        static_cast<double>(counters.lag_ns.load()) / 1e9, lag_ratio(counters) * 100,
        static_cast<unsigned long long>(counters.kernels.load()),
        static_cast<double>(counters.to_device_bytes.load()) / kMiB,
        static_cast<double>(counters.to_host_bytes.load()) / kMiB);
    for (const Machine::Usage& use : machine.usage(i)) {
      std::printf("  pid %d: %.0f MiB\n", static_cast<int>(use.pid),
                  static_cast<double>(use.bytes) / kMiB);
    }
  }
}

int main_of(int argc, char** argv) {
  CLI::App app{
      "Shows the devices of a simulated machine: memory, processes, work done, and how far "
      "the host lags behind the model.\nExample: simgpu-stat demo --json"};
  std::string name = "default";
  bool json = false;
  app.add_option("NAME", name, "the machine: name= of PLEXRL_SIMGPU")->capture_default_str();
  app.add_flag("--json", json, "one JSON object (bytes, ns) on stdout");
  app.set_version_flag("--version", PLEXRL_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::string error;
  const auto machine = Machine::observe(name, &error);
  if (machine == nullptr) {
    std::fprintf(stderr, "simgpu-stat: %s\n",
                 error.empty() ? ("no process uses a simulated GPU called '" + name + "'").c_str()
                               : error.c_str());
    return 1;
  }
  if (json) {
    print_json(*machine);
  } else {
    print_text(*machine);
  }
  return 0;
}

}  // namespace
}  // namespace plexrl::simgpu

int main(int argc, char** argv) { return plexrl::simgpu::main_of(argc, argv); }
