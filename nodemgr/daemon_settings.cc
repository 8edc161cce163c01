#include "nodemgr/daemon_settings.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/load.h"

namespace plexrl::nodemgr {
namespace {

using settings::Kind;

const std::vector<settings::Row>& rows() {
  static const std::vector<settings::Row> kRows = {
      {"gpu.memory", Kind::kBytes, "0", "memory of each GPU that jobs may use; 0: all of it"},
      {"gpu.overhead", Kind::kBytes, "0",
       "set aside for a process that has not been measured; 0: 1.5GiB, at most a 16th of the GPU"},
      {"host.budget", Kind::kBytes, "0",
       "host memory for evicted bytes, as far as there is so much; 0: 80 % of what is available"},
      {"disk.budget", Kind::kBytes, "0",
       "disk space for evicted bytes that find no host memory; 0: none go to disk"},
      {"disk.dir", Kind::kText, "",
       "folder for them, on a local disk; else spill/ in the state folder"},
      {"job.hbm", Kind::kBytes, "",
       "most that one job may be promised of HBM, on all its GPUs together; else no quota"},
      {"job.host", Kind::kBytes, "",
       "most host memory for what one job is promised, all of which may have to leave HBM"},
      {"job.disk", Kind::kBytes, "", "and most disk space, beside it"},
      {"trace.dir", Kind::kText, "", "folder of traces; else trace/ in the state folder"},
      {"trace.max_bytes", Kind::kBytes, "1GiB", "size of all traces together"},
      {"trace.max_age", Kind::kDuration, "30d", "traces older than this are removed"},
      {"policy.grace", Kind::kDuration, "5ms", "idle for so long: the GPU may go to another"},
      {"policy.quantum_factor", Kind::kNumber, "10",
       "a busy holder runs so many times the cost of a switch"},
      {"policy.min_quantum", Kind::kDuration, "100ms", "and no less than this"},
      {"policy.switch_share", Kind::kNumber, "0.05",
       "share of time (0..1) that switching may take when all jobs are always busy"},
      {"policy.prefetch_share", Kind::kNumber, "0.5",
       "share of the link (0..1) for memory that comes back before a job asks; 0: none does"},
      {"policy.max_wait", Kind::kDuration, "2m", "no gang waits longer in one stretch"},
      {"policy.hang_after", Kind::kDuration, "5m",
       "a job that others wait for, can't be cut and finishes nothing for so long hangs"},
      {"policy.hang_action",
       Kind::kText,
       "warn",
       "what then: wait says nothing, warn says so in the log and the trace, kill ends it",
       true,
       {"wait", "warn", "kill"}},
      {"policy.checkpoint_after", Kind::kDuration, "10m",
       "a job with --evict=checkpoint that has done nothing for so long may be checkpointed"},
      {"policy.join_wait", Kind::kDuration, "1s",
       "where ranks meet before a collective, one waits so long for the others, off its GPU"},
      {"policy.drain_budget", Kind::kDuration, "250ms",
       "an attempt to withdraw ends after so long without progress"},
      {"cluster.manager",
       Kind::kText,
       "",
       "HOST:PORT of a cluster manager that is told of this node",
       true,
       {},
       "cluster"},
      {"cluster.tls", Kind::kText, "/etc/plexrl/tls",
       "folder with ca.pem, cert.pem and key.pem of this node"},
      {"cluster.insecure_loopback", Kind::kSwitch, "false",
       "without certificates, to a cluster manager on this machine that allows it"},
      {"metrics.listen", Kind::kText, "",
       "HOST:PORT for Prometheus, or off; else 127.0.0.1:7462, and off where plexrl-run started "
       "it"},
      {"socket", Kind::kText, "", "where jobs connect; else /run/plexrl or the user's own", false},
      {"state_dir", Kind::kText, "", "journal and traces; else /var/lib/plexrl or the user's own",
       false},
      {"lock_dir", Kind::kText, "/run/lock/plexrl", "locks, one for each GPU", false},
      {"node", Kind::kText, "", "name of this node; else the host's", false},
      {"config", Kind::kText, "", "settings file", false},
      {"log",
       Kind::kText,
       "info",
       "least level of log lines",
       false,
       {"debug", "info", "warning", "error"}},
      {"exit_when_idle", Kind::kSwitch, "false", "end when the last job has gone", false},
      {"ready_fd", Kind::kText, "", "descriptor on which `ready` is written once jobs may connect",
       false},
      {"check_config", Kind::kSwitch, "false", "read all settings, say whether they are good, end",
       false},
  };
  return kRows;
}

std::string config_file(const settings::Values& values) {
  if (values.is_set("config")) return values.text("config");
  std::error_code error;
  const char* home = std::getenv("HOME");
  if (::getuid() != 0 && home != nullptr) {
    std::string own = cat(home, "/.config/plexrl/nodemgr.toml");
    if (std::filesystem::exists(own, error)) return own;
  }
  const std::string system = "/etc/plexrl/nodemgr.toml";
  return std::filesystem::exists(system, error) ? system : "";
}

absl::Status check_ranges(const settings::Values& values) {
  double share = values.number("policy.switch_share");
  if (share <= 0 || share > 1) {
    return invalid("policy.switch_share ", share, " is not above 0 and at most 1");
  }
  const double prefetch_share = values.number("policy.prefetch_share");
  if (prefetch_share < 0 || prefetch_share > 1) {
    return invalid("policy.prefetch_share ", prefetch_share, " is not between 0 and 1");
  }
  const std::string& dir = values.text("disk.dir");
  if (!dir.empty() && dir.front() != '/') {
    return invalid(
        "disk.dir '", dir,
        "' is not absolute: the next manager, which may start elsewhere, has to find it");
  }
  const std::string& listen = values.text("metrics.listen");
  if (!listen.empty() && listen != "off" && listen.find(':') == std::string::npos) {
    return invalid("metrics.listen '", listen, "': write HOST:PORT, as 127.0.0.1:7462, or off");
  }
  if (values.duration("policy.max_wait").count() <= 0) {
    return invalid("policy.max_wait must be more than 0");
  }
  if (values.duration("policy.hang_after").count() <= 0) {
    return invalid("policy.hang_after must be more than 0; hang_action = \"wait\" turns it off");
  }
  if (values.duration("policy.checkpoint_after").count() <= 0) {
    return invalid("policy.checkpoint_after must be more than 0");
  }
  if (values.duration("policy.drain_budget").count() <= 0) {
    return invalid("policy.drain_budget must be more than 0");
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const settings::Row> daemon_table() { return rows(); }

policy::Config policy_config(const settings::Values& values) {
  policy::Config config;
  config.grace = values.duration("policy.grace");
  config.quantum_factor = values.number("policy.quantum_factor");
  config.min_quantum = values.duration("policy.min_quantum");
  config.switch_share = values.number("policy.switch_share");
  config.prefetch_share = values.number("policy.prefetch_share");
  config.max_wait = values.duration("policy.max_wait");
  config.drain_budget = values.duration("policy.drain_budget");
  config.hang_after = values.text("policy.hang_action") == "wait"
                          ? policy::Duration{0}
                          : values.duration("policy.hang_after");
  return config;
}

Quotas job_quotas(const settings::Values& values) {
  Quotas quotas;
  for (const Tier tier : kTiers) {
    const std::string name = cat("job.", tier_name(tier));
    if (values.is_set(name)) quota_of(quotas, tier) = values.bytes(name);
  }
  return quotas;
}

namespace {

struct Reserved {
  const char* name;
  const char* why;
};
/// None in this version.
constexpr std::array<Reserved, 0> kReserved{};

std::vector<std::string> without_effect(const settings::Values& values) {
  std::vector<std::string> lines;
  for (const Reserved& reserved : kReserved) {
    for (const settings::Row& row : daemon_table()) {
      const std::string& text = values.text(row.name);
      if (std::string_view(row.name) != reserved.name || text == row.default_text) continue;
      lines.push_back(cat(row.name, " = ", text, " has no effect yet: ", reserved.why));
    }
  }
  return lines;
}

}  // namespace

absl::StatusOr<LoadedSettings> load_settings(int argc, const char* const* argv,
                                             const char* const* environment) {
  const std::vector<std::string> other_sections = {"team"};
  absl::StatusOr<settings::Loaded> read =
      settings::load(daemon_table(), other_sections, config_file, argc, argv, environment);
  if (!read.ok()) return read.status();
  LoadedSettings loaded{
      std::move(read->values), std::move(read->line), std::move(read->file), {}, {}};
  if (!loaded.file.empty()) {
    absl::StatusOr<Teams> teams = Teams::from_file(loaded.file);
    if (!teams.ok()) return teams.status();
    loaded.teams = *std::move(teams);
  }
  absl::Status status = check_ranges(loaded.values);
  if (!status.ok()) return status;
  loaded.without_effect = without_effect(loaded.values);
  return loaded;
}

}  // namespace plexrl::nodemgr
