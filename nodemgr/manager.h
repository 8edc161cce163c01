#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nodemgr/admin_server.h"
#include "nodemgr/checkpoints.h"
#include "nodemgr/daemon_settings.h"
#include "nodemgr/gpu_watch.h"
#include "nodemgr/jobs.h"
#include "nodemgr/leases.h"
#include "nodemgr/node.h"
#include "nodemgr/observer_link.h"
#include "nodemgr/service_manager.h"
#include "nodemgr/sessions.h"

namespace plexrl::nodemgr {

/// The daemon without its process: GPUs, sockets and state of one node. Tests run it in their own
/// process with GPUs of their own.
class Manager {
 public:
  /// Takes the GPUs (locks them), opens sockets, journal and trace. Errors: no GPU, a GPU or the
  /// socket is another manager's, a folder can't be had.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Manager>> start(
      const settings::Values& values, std::unique_ptr<GpuProbe> probe, PassedSockets sockets = {});
  ~Manager();

  /// Serves what is ready, waiting for it at most `longest` (negative: for ever). Returns how many
  /// things were served.
  int run_once(std::chrono::nanoseconds longest);
  /// The last job has gone and `exit_when_idle` is set.
  bool wants_to_end() const { return wants_to_end_; }
  /// New settings for what may change while it runs: [policy], [trace] limits, [host] budget.
  void reload(const settings::Values& values);

  /// For tests: what no setting changes.
  NodeOptions& options() { return node_.options; }

  /// What the administration verb `reload` does; its outcome is the answer.
  void set_on_reload(std::function<absl::Status()> reload) { on_reload_ = std::move(reload); }

  /// The answer to one line of the administration socket.
  std::string answer_admin(const std::string& request);

  /// Asks the driver about the GPUs, as it does by itself every now and then.
  void look_at_gpus() { watch_->look(); }

  /// The teams of this node from now on. Jobs that are admitted keep the team they have and what
  /// they were promised; `reload`, after this, looks at those that wait.
  void set_teams(Teams teams);

  /// What `status` says of settings that change nothing.
  void set_without_effect(std::vector<std::string> lines) {
    node_.without_effect = std::move(lines);
  }

  EventLoop& loop() { return node_.loop; }
  const Node& node() const { return node_; }
  const Leases& leases() const { return *leases_; }
  const std::string& socket_path() const { return socket_path_; }
  const std::string& admin_path() const { return admin_path_; }
  std::string observer_path() const;

 private:
  Manager() = default;
  absl::Status take_gpus(const settings::Values& values);
  void open_observer_socket(PassedSocket passed);
  absl::Status open_sockets(PassedSockets sockets);
  void start_parts(const settings::Values& values);
  void open_accounts();
  absl::Status open_disk();
  void size_chunks();
  void warn_of_host_budget() const;
  void keep_time();
  void keep_what_was_learned();

  void accept_all();
  void receive(Client& client);
  void dispatch(Client& client, const Packet& packet);
  void drop_broken();
  void became_idle();
  void take_openers(std::optional<ObserverOpeners> told);
  ObserverLink::Gang look_at_gang(std::uint64_t gang);

  Node node_;
  std::unique_ptr<GpuProbe> probe_;
  std::vector<ScopedFd> gpu_locks_;
  std::string socket_path_;
  std::string admin_path_;
  bool owns_socket_files_ = false;
  bool owns_observer_file_ = false;
  ScopedFd listener_;
  std::list<Client> clients_;
  std::unique_ptr<Leases> leases_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<Jobs> jobs_;
  std::unique_ptr<GpuWatch> watch_;
  std::unique_ptr<Checkpoints> checkpoints_;
  std::unique_ptr<AdminServer> admin_;
  std::unique_ptr<ObserverLink> observer_;
  std::function<absl::Status()> on_reload_;
  std::chrono::nanoseconds started_{0};
  bool exit_when_idle_ = false;
  bool wants_to_end_ = false;
};

}  // namespace plexrl::nodemgr
