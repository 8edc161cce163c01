#include "clustermgr/cluster_settings.h"

#include <filesystem>
#include <vector>

#include "clustermgr/etcd/etcd_url.h"
#include "clustermgr/host_port.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::clustermgr {
namespace {

using nodemgr::cat;
using nodemgr::invalid;
using nodemgr::settings::Kind;
using nodemgr::settings::Row;
using nodemgr::settings::Values;

/// Read by team_gpus.h.
const std::string kOtherSections[] = {"team"};

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = {
      {"network.listen", Kind::kText, "0.0.0.0:7460", "where node managers and tools connect"},
      {"network.insecure_loopback", Kind::kSwitch, "false",
       "no certificates: whoever can connect may do everything; only on a loopback address"},
      {"network.max_message", Kind::kBytes, "4MiB", "a larger request is refused"},
      {"network.max_threads", Kind::kCount, "64", "that answer requests; at least 4"},
      {"tls.dir", Kind::kText, "/etc/plexrl/tls", "folder with ca.pem, cert.pem and key.pem"},
      {"metrics.listen", Kind::kText, "127.0.0.1:7461", "where Prometheus reads; off: nowhere"},
      {"nodes.report_every", Kind::kDuration, "2s", "how often a node says how it is"},
      {"nodes.lost_after", Kind::kDuration, "30s", "silent for so long a node is lost"},
      {"nodes.jobs_lost_after", Kind::kDuration, "5m",
       "and its jobs are, when it is not back after so long"},
      {"placement.max_sharers", Kind::kCount, "5",
       "jobs that take turns on the same GPUs, at most"},
      {"placement.requester_lost_after", Kind::kDuration, "30s",
       "a job that has not begun gives up its place when plexrl-run is silent for so long"},
      {"store.url",
       Kind::kText,
       "",
       "etcd://HOST:PORT[,HOST:PORT]…[/PREFIX]: what outlives the manager is there, and several "
       "managers wait for the lead; else it is in the state folder",
       true,
       {},
       "store"},
      {"store.tls_dir", Kind::kText, "",
       "folder with ca.pem, cert.pem and key.pem for etcd; else only etcd of this machine"},
      {"store.lease", Kind::kDuration, "10s",
       "silent for so long towards etcd a manager leads no more"},
      {"state_dir", Kind::kText, "/var/lib/plexrl", "what outlives the manager: DIR/cluster/",
       false},
      {"config", Kind::kText, "", "settings file; else /etc/plexrl/clustermgr.toml", false},
      {"log",
       Kind::kText,
       "info",
       "least level of log lines",
       false,
       {"debug", "info", "warning", "error"}},
      {"ready_fd", Kind::kText, "",
       "descriptor on which `ready port=N metrics=N` is written once clients may connect", false},
      {"check_config", Kind::kSwitch, "false", "read all settings, say whether they are good, end",
       false},
  };
  return kRows;
}

std::string config_file(const Values& values) {
  if (values.is_set("config")) return values.text("config");
  const std::string system = "/etc/plexrl/clustermgr.toml";
  std::error_code error;
  return std::filesystem::exists(system, error) ? system : "";
}

absl::Status check_together(const Values& values) {
  const absl::StatusOr<HostPort> listen = parse_host_port(values.text("network.listen"));
  if (!listen.ok()) return invalid("network.listen: ", nodemgr::message_of(listen.status()));
  if (values.is_on("network.insecure_loopback") && !is_loopback(listen->host)) {
    return invalid("network.insecure_loopback: others than this machine could reach ",
                   values.text("network.listen"),
                   ": listen on 127.0.0.1:PORT, or use certificates (plexrl-ctl tls init DIR)");
  }
  if (values.text("metrics.listen") != "off") {
    const absl::StatusOr<HostPort> metrics = parse_host_port(values.text("metrics.listen"));
    if (!metrics.ok()) {
      return invalid("metrics.listen: ", nodemgr::message_of(metrics.status()), ", and not 'off'");
    }
  }
  if (values.is_set("store.url")) {
    const absl::StatusOr<EtcdOptions> etcd = parse_etcd_url(values.text("store.url"));
    if (!etcd.ok()) return invalid("store.url: ", nodemgr::message_of(etcd.status()));
    for (const HostPort& one : etcd->endpoints) {
      if (!values.is_set("store.tls_dir") && !is_loopback(one.host)) {
        return invalid("store.url: without certificates anybody could be ", text_of(one),
                       ": give store.tls_dir");
      }
    }
  }
  if (values.duration("store.lease") < std::chrono::seconds(2)) {
    return invalid("store.lease ", values.text("store.lease"),
                   " is less than 2s, the shortest of etcd's");
  }
  const auto every = values.duration("nodes.report_every");
  if (every < std::chrono::milliseconds(10) || values.duration("nodes.lost_after") < 2 * every) {
    return invalid("nodes.lost_after ", values.text("nodes.lost_after"), " is less than two of ",
                   "nodes.report_every ", values.text("nodes.report_every"),
                   ", or that less than 10ms");
  }
  const std::uint64_t sharers = values.count("placement.max_sharers");
  if (sharers < 1 || sharers > 64) {
    return invalid("placement.max_sharers ", sharers, " is not between 1 and 64");
  }
  if (values.duration("placement.requester_lost_after") < std::chrono::milliseconds(100)) {
    return invalid("placement.requester_lost_after ", values.text("placement.requester_lost_after"),
                   " is less than 100ms");
  }
  constexpr std::uint64_t kLeast = 64 << 10;
  constexpr std::uint64_t kMost = 64 << 20;
  const std::uint64_t message = values.bytes("network.max_message");
  if (message < kLeast || message > kMost) {
    return invalid("network.max_message ", values.text("network.max_message"),
                   " is not between 64KiB and 64MiB");
  }
  const std::uint64_t threads = values.count("network.max_threads");
  if (threads < 4 || threads > 4096) {
    return invalid("network.max_threads ", threads, " is not between 4 and 4096");
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const Row> cluster_table() { return rows(); }

absl::StatusOr<nodemgr::settings::Loaded> load_cluster_settings(int argc, const char* const* argv,
                                                                const char* const* environment) {
  absl::StatusOr<nodemgr::settings::Loaded> loaded = nodemgr::settings::load(
      cluster_table(), kOtherSections, config_file, argc, argv, environment);
  if (!loaded.ok()) return loaded.status();
  absl::Status status = check_together(loaded->values);
  if (!status.ok()) return status;
  return loaded;
}

}  // namespace plexrl::clustermgr
