// plexrl-clustermgr: knows every node of a cluster and what it runs.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "clustermgr/cluster.h"
#include "clustermgr/cluster_settings.h"
#include "clustermgr/etcd/etcd_store.h"
#include "clustermgr/host_port.h"
#include "clustermgr/metrics.h"
#include "clustermgr/server.h"
#include "clustermgr/sqlite_store.h"
#include "clustermgr/team_gpus.h"
#include "clustermgr/tls/verifier.h"
#include "nodemgr/daemon_start.h"
#include "nodemgr/log.h"
#include "nodemgr/service_manager.h"
#include "nodemgr/settings/cat.h"

extern char** environ;

namespace plexrl::clustermgr {
namespace {

using nodemgr::cat;
using nodemgr::log_line;
using nodemgr::LogLevel;
using nodemgr::settings::Values;

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

int say_usage(const absl::Status& status) {
  std::fprintf(stderr, "plexrl-clustermgr: %s\n", nodemgr::message_of(status).c_str());
  return kUsage;
}

void print_help() {
  std::printf(
      "plexrl-clustermgr: knows every node of a cluster and what it runs\n\n"
      "usage: plexrl-clustermgr [options]\n"
      "example: plexrl-clustermgr --network-listen 0.0.0.0:7460 --tls-dir /etc/plexrl/tls\n\n"
      "Each option is also an environment variable (PLEXRL_NETWORK_LISTEN) and, where it has a\n"
      "section, a key in clustermgr.toml ([network] listen). Option > environment > file >\n"
      "default.\n\n"
      "%s  --help, --version\n",
      nodemgr::settings::describe_flags(cluster_table()).c_str());
}

/// The manager's own certificate must be one that its clients will take.
absl::Status check_own(const tls::TlsFiles& files, const std::string& folder, Metrics& metrics) {
  const absl::StatusOr<tls::Verifier> verifier = tls::Verifier::make(files.authorities);
  if (!verifier.ok()) return verifier.status();
  const absl::StatusOr<tls::Identity> own =
      verifier->check(files.own.certificate, std::time(nullptr));
  if (!own.ok()) return nodemgr::invalid(folder, "/cert.pem: ", nodemgr::message_of(own.status()));
  if (own->role != tls::Role::kManager) {
    return nodemgr::invalid(folder, "/cert.pem: is of ", tls::text_of(*own),
                            ", and the cluster manager needs one of the role manager: "
                            "`plexrl-ctl tls init DIR --manager HOST` makes one");
  }
  const std::time_t expiry = tls::expiry_of(files.own.certificate).value_or(0);
  metrics.set_certificate_expiry(expiry);
  constexpr std::time_t kDay = 24 * 60 * 60;
  const std::time_t days = (expiry - std::time(nullptr)) / kDay;
  if (days < 30) {
    log_line(LogLevel::kWarning, "tls",
             cat("the certificate in ", folder, " expires in ", days,
                 " days, going on: make a new one with `plexrl-ctl tls init DIR --manager HOST`"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ServerOptions> server_options(const Values& values, Metrics& metrics) {
  const absl::StatusOr<HostPort> listen = parse_host_port(values.text("network.listen"));
  if (!listen.ok()) return listen.status();
  ServerOptions options;
  options.listen = *listen;
  options.max_message_bytes = values.bytes("network.max_message");
  options.max_threads = static_cast<int>(values.count("network.max_threads"));
  options.report_every = values.duration("nodes.report_every");
  // Several times while its patience lasts.
  options.ask_again = std::min<std::chrono::nanoseconds>(
      std::chrono::seconds(1), values.duration("placement.requester_lost_after") / 5);
  if (values.is_on("network.insecure_loopback")) {
    log_line(LogLevel::kWarning, "tls",
             "no certificates are asked for: whoever can connect on this machine may do "
             "everything (network.insecure_loopback)");
    return options;
  }
  const std::string& folder = values.text("tls.dir");
  absl::StatusOr<tls::TlsFiles> files = tls::read_tls_folder(folder);
  if (!files.ok()) return files.status();
  absl::Status status = check_own(*files, folder, metrics);
  if (!status.ok()) return status;
  options.tls = *std::move(files);
  return options;
}

absl::StatusOr<std::unique_ptr<Store>> open_store(const Values& values) {
  const std::string folder = cat(values.text("state_dir"), "/cluster");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  if (error) {
    return nodemgr::failed(folder, ": can't be made: ", error.message(), " (--state-dir)");
  }
  absl::StatusOr<std::unique_ptr<SqliteStore>> store =
      SqliteStore::open(folder + "/cluster.sqlite");
  if (!store.ok()) return store.status();
  return *std::move(store);
}

absl::StatusOr<std::unique_ptr<EtcdStore>> connect_to_etcd(const Values& values) {
  absl::StatusOr<EtcdOptions> options = parse_etcd_url(values.text("store.url"));
  if (!options.ok()) return options.status();
  options->lease = std::chrono::duration_cast<std::chrono::seconds>(values.duration("store.lease"));
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  options->name = cat(host, ", listens on ", values.text("network.listen"), ", pid ", ::getpid());
  if (values.is_set("store.tls_dir")) {
    absl::StatusOr<tls::TlsFiles> files = tls::read_tls_folder(values.text("store.tls_dir"));
    if (!files.ok()) return files.status();
    options->tls = *std::move(files);
  }
  return std::make_unique<EtcdStore>(*std::move(options));
}

/// Returns when this manager leads, true, or has been told to end. While it waits nobody can
/// connect to it, so clients try another address of theirs, or again.
absl::StatusOr<bool> wait_for_lead(EtcdStore& store, const sigset_t& signals) {
  constexpr timespec kTick = {1, 0};
  std::string said;
  for (;;) {
    const absl::StatusOr<bool> leads = store.try_to_lead();
    if (leads.ok() && *leads) return true;
    if (leads.status().code() == absl::StatusCode::kFailedPrecondition) return leads.status();
    const std::string why = leads.ok() ? cat("another manager leads: ", store.leader())
                                       : nodemgr::message_of(leads.status());
    if (why != said) {
      log_line(leads.ok() ? LogLevel::kInfo : LogLevel::kWarning, "store",
               cat("waiting for the lead: ", why));
    }
    if (said.empty()) nodemgr::tell_ready("waits for the lead");
    said = why;
    nodemgr::tell_alive();
    const int signal = ::sigtimedwait(&signals, nullptr, &kTick);
    if (signal == SIGTERM || signal == SIGINT) return false;
  }
}

/// Only the level of the log can change while it runs; a bad file changes nothing.
void reload(int argc, char** argv) {
  const auto loaded = load_cluster_settings(argc, argv, environ);
  if (!loaded.ok()) {
    log_line(LogLevel::kWarning, "main",
             cat("settings not reloaded: ", nodemgr::message_of(loaded.status()),
                 ", going on as before"));
    return;
  }
  nodemgr::set_log_level(loaded->values.text("log"));
  log_line(LogLevel::kInfo, "main",
           "log level read again; other settings and certificates need a restart");
}

/// Until it is told to end, or another manager may lead by now (`etcd` null: there is none).
absl::Status serve(Cluster& cluster, Server& server, const EtcdStore* etcd, const sigset_t& signals,
                   int argc, char** argv) {
  absl::Status status;
  // Told to systemd at each tick; its unit has to allow more than one.
  constexpr timespec kTick = {1, 0};
  for (;;) {
    const int signal = ::sigtimedwait(&signals, nullptr, &kTick);
    if (signal == SIGHUP) reload(argc, argv);
    if (signal == SIGTERM || signal == SIGINT) break;
    if (etcd != nullptr && !etcd->leads()) {
      status = absl::UnavailableError(
          "the lead is lost: etcd was not heard of for store.lease, or another manager has it; "
          "started again this one waits for it");
      break;
    }
    cluster.tick();
    nodemgr::tell_alive();
    server.set_ready(cluster.status().not_ready_reason.empty());
  }
  nodemgr::tell_stopping();
  log_line(LogLevel::kInfo, "main", "stopping");
  server.stop();
  return status;
}

ClusterConfig cluster_config(const Values& values, std::map<std::string, int> team_gpus) {
  ClusterConfig config;
  config.nodes = {values.duration("nodes.lost_after"), values.duration("nodes.jobs_lost_after")};
  config.chooser.max_sharers = static_cast<int>(values.count("placement.max_sharers"));
  config.chooser.team_gpus = std::move(team_gpus);
  config.requester_lost_after = values.duration("placement.requester_lost_after");
  return config;
}

absl::Status manage(const nodemgr::settings::Loaded& loaded, const sigset_t& signals, int argc,
                    char** argv) {
  const Values& values = loaded.values;
  absl::StatusOr<std::map<std::string, int>> teams = read_team_gpus(loaded.file);
  if (!teams.ok()) return teams.status();
  absl::StatusOr<std::unique_ptr<Metrics>> metrics = Metrics::serve(values.text("metrics.listen"));
  if (!metrics.ok()) return metrics.status();
  absl::StatusOr<ServerOptions> options = server_options(values, **metrics);
  if (!options.ok()) return options.status();
  std::unique_ptr<EtcdStore> etcd;
  std::unique_ptr<Store> file;
  if (values.is_set("store.url")) {
    absl::StatusOr<std::unique_ptr<EtcdStore>> connected = connect_to_etcd(values);
    if (!connected.ok()) return connected.status();
    etcd = *std::move(connected);
    const absl::StatusOr<bool> leads = wait_for_lead(*etcd, signals);
    if (!leads.ok()) return leads.status();
    if (!*leads) return absl::OkStatus();
  } else {
    absl::StatusOr<std::unique_ptr<Store>> opened = open_store(values);
    if (!opened.ok()) return opened.status();
    file = *std::move(opened);
  }
  Store& store = etcd != nullptr ? static_cast<Store&>(*etcd) : *file;
  absl::StatusOr<std::unique_ptr<Cluster>> cluster =
      Cluster::open(store, **metrics, cluster_config(values, *std::move(teams)));
  if (!cluster.ok()) return cluster.status();
  absl::StatusOr<std::unique_ptr<Server>> server =
      Server::start(*std::move(options), **cluster, **metrics);
  if (!server.ok()) return server.status();
  const Cluster::Status status = (*cluster)->status();
  log_line(LogLevel::kInfo, "main",
           cat("ready port=", (*server)->port(), " metrics=", (*metrics)->port(),
               " cluster=", status.cluster_id, " generation=", status.generation));
  nodemgr::say_ready(values.text("ready_fd"),
                     cat("ready port=", (*server)->port(), " metrics=", (*metrics)->port()));
  nodemgr::tell_ready(cat("port ", (*server)->port(), ", metrics ", (*metrics)->port()));
  return serve(**cluster, **server, etcd.get(), signals, argc, argv);
}

int run(int argc, char** argv) {
  const auto loaded = load_cluster_settings(argc, argv, environ);
  if (!loaded.ok()) return say_usage(loaded.status());
  if (loaded->line.help) return print_help(), kDone;
  if (loaded->line.version) return std::printf("plexrl-clustermgr %s\n", PLEXRL_VERSION), kDone;
  if (!loaded->line.arguments.empty()) {
    return say_usage(
        nodemgr::invalid("unexpected argument '", loaded->line.arguments.front(), "'"));
  }
  if (loaded->values.is_on("check_config")) {
    const absl::Status teams = read_team_gpus(loaded->file).status();
    if (!teams.ok()) return say_usage(teams);
    std::printf("settings are good%s%s\n", loaded->file.empty() ? "" : ", file ",
                loaded->file.c_str());
    return kDone;
  }
  nodemgr::set_log_program("clustermgr");
  nodemgr::set_log_level(loaded->values.text("log"));
  const sigset_t signals = nodemgr::take_signals();
  nodemgr::raise_descriptor_limit();
  const absl::Status status = manage(*loaded, signals, argc, argv);
  if (status.ok()) return kDone;
  log_line(LogLevel::kError, "main", nodemgr::message_of(status));
  return kFailed;
}

}  // namespace
}  // namespace plexrl::clustermgr

int main(int argc, char** argv) { return plexrl::clustermgr::run(argc, argv); }
