#include "nodemgr/manager.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "nodemgr/admin_actions.h"
#include "nodemgr/admin_answers.h"
#include "nodemgr/clock.h"
#include "nodemgr/gpu_lock.h"
#include "nodemgr/helper_process.h"
#include "nodemgr/host_memory.h"
#include "nodemgr/ids.h"
#include "nodemgr/joining.h"
#include "nodemgr/listener.h"
#include "nodemgr/log.h"
#include "nodemgr/recovery.h"
#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/places.h"
#include "nodemgr/settings/values.h"

namespace plexrl::nodemgr {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kDefaultOverhead = 1536 * kMiB;
constexpr std::uint64_t kJournalCompactBytes = 4 * kMiB;
constexpr int kPacketsPerTurn = 64;  // of one client, so that none keeps the others waiting
/// plexrl-run starts a manager before it connects: time to do so before idleness counts.
constexpr auto kFirstJobWithin = 30s;

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

NodeOptions options_from(const settings::Values& values) {
  NodeOptions options;
  options.node = values.is_set("node") ? values.text("node") : host_name();
  for (char& c : options.node) {
    if (c == '/') c = '_';  // it becomes part of a folder's name
  }
  options.state_dir =
      values.is_set("state_dir") ? values.text("state_dir") : default_state_folder(process_env());
  if (values.text("policy.hang_action") == "kill") options.hang_action = HangAction::kKill;
  options.gpu_memory = values.bytes("gpu.memory");
  options.gpu_overhead = values.bytes("gpu.overhead");
  options.host_budget = values.bytes("host.budget");
  if (options.host_budget == 0) options.host_budget = default_host_budget();
  options.disk_budget = values.bytes("disk.budget");
  options.job_quotas = job_quotas(values);
  options.disk_folder =
      values.is_set("disk.dir") ? values.text("disk.dir") : cat(options.state_dir, "/spill");
  options.grace = values.duration("policy.grace");
  options.drain_budget = values.duration("policy.drain_budget");
  options.join_wait = values.duration("policy.join_wait");
  options.checkpoint_after = values.duration("policy.checkpoint_after");
  options.checkpoint_helper = beside_this_program("plexrl-checkpoint");
  return options;
}

std::chrono::seconds as_seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time);
}

/// What the driver keeps for itself: used, and no process's. More than an eighth is not that but
/// something the driver does not attribute.
std::uint64_t driver_reserve(GpuProbe& probe, int index, std::uint64_t total) {
  std::optional<GpuUse> use = probe.use(index);
  if (!use || !use->knows_processes) return 0;
  std::uint64_t reserve = use->used_bytes;
  for (const GpuUse::Process& process : use->processes) {
    reserve -= std::min(reserve, process.bytes);
  }
  return reserve <= total / 8 ? reserve : 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Manager>> Manager::start(const settings::Values& values,
                                                        std::unique_ptr<GpuProbe> probe,
                                                        PassedSockets sockets) {
  std::unique_ptr<Manager> manager(new Manager);
  manager->started_ = boot_now();
  manager->probe_ = std::move(probe);
  manager->node_.options = options_from(values);
  manager->exit_when_idle_ = values.is_on("exit_when_idle");
  absl::Status status;
  if (sockets.any()) {
    manager->socket_path_ = sockets.jobs.path;
    manager->admin_path_ = sockets.admin.path;
  } else {
    manager->socket_path_ = values.is_set("socket") ? values.text("socket") : default_socket_path();
    manager->admin_path_ =
        std::filesystem::path(manager->socket_path_).replace_filename("admin.sock");
    status = prepare_socket_folder(manager->socket_path_);
  }
  if (status.ok()) status = manager->take_gpus(values);
  if (!status.ok()) return status;
  manager->start_parts(values);
  status = manager->open_disk();
  if (!status.ok()) return status;
  // Clients come last, when everything they may ask for is there.
  status = manager->open_sockets(std::move(sockets));
  if (!status.ok()) return status;
  return manager;
}

Manager::~Manager() {
  keep_what_was_learned();
  if (observer_ != nullptr) {
    observer_.reset();
    if (owns_observer_file_) ::unlink(observer_path().c_str());
  }
  if (node_.trace != nullptr) {
    if (leases_ != nullptr) leases_->trace_open_gaps();
    TraceSession stop;
    stop.event = TraceSession::Event::kManagerStop;
    node_.trace->add(stop);
    node_.trace->flush();
  }
  if (owns_socket_files_) {
    ::unlink(socket_path_.c_str());
    ::unlink(admin_path_.c_str());
  }
}

std::string Manager::observer_path() const {
  return std::filesystem::path(socket_path_).replace_filename("observer.sock");
}

absl::Status Manager::take_gpus(const settings::Values& values) {
  std::vector<GpuInfo> found = probe_->gpus();
  if (found.empty()) return absl::NotFoundError("no GPU: the driver names none");
  for (std::size_t i = 0; i < found.size(); ++i) {
    absl::StatusOr<ScopedFd> lock =
        lock_gpu(found[i].uuid_text, values.text("lock_dir"), socket_path_);
    if (!lock.ok()) return lock.status();
    gpu_locks_.push_back(*std::move(lock));
    NodeGpu& gpu = node_.gpus[static_cast<int>(i)];
    gpu.info = found[i];
    // A part of what jobs may have here: a budget far below the GPU's size must still hold a job.
    std::uint64_t budget = node_.options.gpu_memory != 0
                               ? std::min(node_.options.gpu_memory, gpu.info.total_bytes)
                               : gpu.info.total_bytes;
    gpu.overhead = node_.options.gpu_overhead != 0 ? node_.options.gpu_overhead
                                                   : std::min(kDefaultOverhead, budget / 16);
    node_.simulated |= gpu.info.simulated;
    gpu.reserved = driver_reserve(*probe_, static_cast<int>(i), gpu.info.total_bytes);
  }
  size_chunks();
  for (auto& [index, gpu] : node_.gpus) node_.set_others(index, 0);
  return absl::OkStatus();
}

void Manager::open_accounts() {
  auto accounts = Accounts::open(cat(node_.options.state_dir, "/accounts.sqlite"),
                                 wall_now_ns() / 1'000'000'000);
  if (accounts.ok()) {
    node_.accounts = *std::move(accounts);
    return;
  }
  node_.accounts_problem = message_of(accounts.status());
  log_line(LogLevel::kWarning, "accounts",
           cat(node_.accounts_problem, ": plexrl-ctl usage has nothing to tell"));
}

absl::Status Manager::open_disk() {
  // Without a budget for more, what earlier managers wrote for processes that live is still read.
  const bool has_files = std::any_of(node_.sessions.begin(), node_.sessions.end(),
                                     [](const auto& one) { return one.second->spill_inode != 0; });
  if (node_.options.disk_budget == 0 && !has_files) return absl::OkStatus();
  auto tier = DiskTier::open({node_.options.disk_folder, node_.options.disk_budget,
                              static_cast<std::uint32_t>(node_.generation)});
  if (!tier.ok()) return tier.status();
  node_.disk = *std::move(tier);
  node_.look_outside();
  node_.set_staging_aside();
  node_.loop.watch(node_.disk->store().event_fd(), EPOLLIN,
                   [this](std::uint32_t) { sessions_->hand_out_moves(); });
  log_line(LogLevel::kInfo, "disk",
           cat("folder='", node_.disk->folder(), "' bytes=", node_.ledger.disk()));
  if (!node_.disk->warning().empty()) {
    log_line(LogLevel::kWarning, "disk", node_.disk->warning());
  }
  return absl::OkStatus();
}

void Manager::size_chunks() {
  std::uint64_t smallest = ~std::uint64_t{0};
  for (const auto& [index, gpu] : node_.gpus) smallest = std::min(smallest, gpu.info.total_bytes);
  // 32 MiB on a real GPU; a small (simulated) one still has some dozens of chunks.
  node_.chunk_bytes =
      std::clamp<std::uint64_t>(smallest / 64 / (2 * kMiB) * (2 * kMiB), 2 * kMiB, 32 * kMiB);
  std::uint64_t least = std::min(64 * kMiB, smallest / 32);
  node_.reserve_bytes = std::max(2 * node_.chunk_bytes, least);
}

/// Promises go by what there is at the time; an administrator may have meant another machine.
void Manager::warn_of_host_budget() const {
  const std::uint64_t has =
      host_bytes_left() + (node_.slabs != nullptr ? node_.slabs->bytes_in_use() : 0);
  if (node_.options.host_budget <= has) return;
  log_line(LogLevel::kWarning, "main",
           cat("host.budget = ", settings::format_bytes(node_.options.host_budget),
               " is more than this machine, or the manager's memory cgroup, has now: ",
               settings::format_bytes(has), "; no more than there is will be promised"));
}

void Manager::start_parts(const settings::Values& values) {
  node_.ledger.set_host_budget(node_.options.host_budget);
  warn_of_host_budget();
  TraceOptions trace;
  trace.folder = values.is_set("trace.dir") ? values.text("trace.dir")
                                            : cat(node_.options.state_dir, "/trace");
  trace.node = node_.options.node;
  trace.max_bytes = values.bytes("trace.max_bytes");
  trace.max_age = as_seconds(values.duration("trace.max_age"));
  node_.trace = std::make_unique<TraceWriter>(std::move(trace));

  open_accounts();
  node_.profiles = std::make_unique<Profiles>(cat(node_.options.state_dir, "/profiles"));
  leases_ = std::make_unique<Leases>(node_);
  leases_->set_config(policy_config(values));
  jobs_ = std::make_unique<Jobs>(node_, [this] { became_idle(); });
  watch_ = std::make_unique<GpuWatch>(node_, *probe_, *leases_, [this] { jobs_->admit_waiting(); });
  sessions_ = std::make_unique<Sessions>(node_, *leases_, [this](Job& job, const Session& session) {
    watch_->process_ended(session);
    jobs_->process_ended(job);
  });
  checkpoints_ = std::make_unique<Checkpoints>(node_, *leases_, *sessions_, *probe_,
                                               [this] { jobs_->admit_waiting(); });
  for (const auto& [index, gpu] : node_.gpus) leases_->gpu_changed(index);
  recover(node_, *jobs_, *sessions_, *leases_);
  node_.slabs = std::make_unique<Slabs>(node_.options.host_budget, node_.generation << 32 | 1);
  sessions_->count_slabs_of_awaited();
  node_.loop.watch(node_.slabs->event_fd(), EPOLLIN,
                   [this](std::uint32_t) { sessions_->hand_out_slabs(); });

  TraceSession begin;
  begin.event = TraceSession::Event::kManagerStart;
  begin.simulated = node_.simulated;
  begin.text = cat("generation ", node_.generation);
  node_.trace->add(begin);
  for (const auto& [index, gpu] : node_.gpus) {
    TraceSession record;
    record.event = TraceSession::Event::kGpu;
    record.gpu_index = index;
    record.gpu_uuid = gpu.info.uuid_text;
    record.gpu_name = gpu.info.name;
    record.gpu_total_bytes = gpu.info.total_bytes;
    record.simulated = gpu.info.simulated;
    node_.trace->add(record);
  }
  jobs_->trace_restored();
  watch_->look();
  keep_time();
  leases_->step();
  if (exit_when_idle_ && node_.jobs.empty()) {
    node_.loop.set_timer(kIdleTimer, boot_now() + kFirstJobWithin, [this] { became_idle(); });
  }
}

absl::Status Manager::open_sockets(PassedSockets sockets) {
  if (!sockets.any()) {
    const bool is_system = ::getuid() == 0;
    absl::StatusOr<ScopedFd> jobs =
        listen_at(socket_path_, SOCK_SEQPACKET, is_system ? 0666 : 0600);
    if (!jobs.ok()) return jobs.status();
    absl::StatusOr<ScopedFd> admin = listen_at(admin_path_, SOCK_STREAM, is_system ? 0660 : 0600);
    if (!admin.ok()) {
      ::unlink(socket_path_.c_str());
      return admin.status();
    }
    if (is_system) give_to_group(admin_path_, "plexrl");
    owns_socket_files_ = true;
    sockets.jobs.fd = *std::move(jobs);
    sockets.admin.fd = *std::move(admin);
  }
  listener_ = std::move(sockets.jobs.fd);
  node_.loop.watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_all(); });
  admin_ = std::make_unique<AdminServer>(
      node_.loop, std::move(sockets.admin.fd),
      [this](const std::string& request) { return answer_admin(request); });
  open_observer_socket(std::move(sockets.observer));
  return absl::OkStatus();
}

void Manager::open_observer_socket(PassedSocket passed) {
  owns_observer_file_ = !passed.fd.is_open();
  absl::StatusOr<ScopedFd> observer =
      passed.fd.is_open() ? std::move(passed.fd) : listen_at(observer_path(), SOCK_STREAM, 0600);
  if (!observer.ok()) {
    log_line(LogLevel::kWarning, "observer",
             cat(message_of(observer.status()), ": no plexrl-observer can connect, going on"));
    return;
  }
  observer_ =
      std::make_unique<ObserverLink>(node_.loop, *std::move(observer), leases_->gaps(),
                                     [this](std::uint64_t gang) { return look_at_gang(gang); });
  observer_->set_on_openers(
      [this](std::optional<ObserverOpeners> told) { take_openers(std::move(told)); });
}

void Manager::take_openers(std::optional<ObserverOpeners> told) {
  node_.openers.reset();
  if (told) {
    node_.openers.emplace();
    for (ObserverOpeners::Process& process : told->processes) {
      if (process.is_preloaded) continue;  // a session, or a child of one that has its files
      node_.openers->push_back({process.pid,
                                process.uid,
                                std::move(process.command),
                                {process.files.begin(), process.files.end()}});
    }
  }
  watch_->openers_changed();
}

ObserverLink::Gang Manager::look_at_gang(std::uint64_t id) {
  ObserverLink::Gang found;
  const LeaseGang* gang = leases_->find_gang(id);
  if (gang == nullptr) return found;
  for (const SessionKey key : gang->sessions) {
    if (const Session* session = node_.find_session(key)) {
      found.processes.push_back(session->process.pid);
    }
  }
  return found;
}

std::string Manager::answer_admin(const std::string& request) {
  const AdminContext context{node_, *leases_, socket_path_, started_, boot_now(), observer_.get()};
  if (is_reload(request)) {
    return admin_outcome(context, on_reload_ ? on_reload_() : absl::OkStatus());
  }
  if (is_usage(request)) node_.keep_accounts();
  auto done = admin_act(context, {node_, *jobs_, *leases_}, request);
  return done ? *std::move(done) : admin_answer(context, request);
}

int Manager::run_once(std::chrono::nanoseconds longest) {
  int served = node_.loop.run_once(longest);
  drop_broken();
  auto beat = static_cast<std::uint64_t>(boot_now().count());
  for (auto& [id, session] : node_.sessions) {
    if (auto* page = static_cast<wire::ControlPage*>(session->control.data())) {
      std::atomic_ref<std::uint64_t>(page->heartbeat_ns).store(beat, std::memory_order_relaxed);
    }
  }
  if (node_.trace->is_dirty() || leases_->has_untraced_gaps()) {
    node_.loop.set_timer_once(kTraceTimer, boot_now() + 500ms, [this] {
      leases_->trace_open_gaps();
      node_.trace->flush();
    });
  }
  if (!node_.journal_failed && node_.journal->bytes() > kJournalCompactBytes) {
    node_.journal_failed = !node_.journal->rewrite(snapshot(node_, *leases_)).ok();
  }
  return served;
}

void Manager::keep_what_was_learned() {
  node_.keep_accounts();
  if (leases_ == nullptr || jobs_ == nullptr) return;
  leases_->note_gaps();
  jobs_->keep_gaps();
}

void Manager::keep_time() {
  // Wall time may be set while we run: an anchor now and then keeps the two together.
  node_.loop.set_timer(kClockTimer, boot_now() + 60s, [this] {
    node_.trace->add_clock();
    keep_what_was_learned();
    keep_time();
  });
}

void Manager::accept_all() {
  while (true) {
    ScopedFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) return;
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) continue;
    Client& client = clients_.emplace_back();
    client.socket = std::move(socket);
    client.pid = peer.pid;
    client.uid = peer.uid;
    node_.loop.watch(client.socket.get(), EPOLLIN,
                     [this, &client](std::uint32_t) { receive(client); });
  }
}

void Manager::receive(Client& client) {
  for (int i = 0; i < kPacketsPerTurn && !client.broken; ++i) {
    Packet packet;
    std::string why;
    switch (receive_packet(client.socket.get(), packet, why)) {
      case Received::kNothing:
        return leases_->step();
      case Received::kEnd:
        client.broken = true;
        break;
      case Received::kMalformed:
        refuse_packet(client, packet, wire::kErrorMalformed, why);
        break;
      case Received::kPacket:
        dispatch(client, packet);
        break;
    }
  }
  leases_->step();
}

void Manager::dispatch(Client& client, const Packet& packet) {
  switch (packet.type) {
    case wire::Type::kJobSubmit:
      node_.loop.cancel_timer(kIdleTimer);
      return jobs_->submit(client, packet);
    case wire::Type::kJobResume:
      node_.loop.cancel_timer(kIdleTimer);
      return jobs_->resume(client, packet);
    case wire::Type::kJobJoin:
      return answer_join(node_, client, packet);
    case wire::Type::kJobParent:
      return jobs_->name_parent(client, packet);
    case wire::Type::kHello:
      watch_->process_joined();
      return sessions_->hello(client, packet);
    default:
      break;
  }
  if (client.session != nullptr) return sessions_->message(client, packet);
  if (client.job != nullptr && packet.type == wire::Type::kExiting) {
    return sessions_->exiting(*client.job);
  }
  if (client.job != nullptr) {
    return client.send_error(wire::Type::kError, packet.request, wire::kErrorUnknownType,
                             "plexrl-run has nothing to say of this type");
  }
  refuse_packet(client, packet, wire::kErrorMalformed,
                "the first message must be kHello or kJobSubmit");
}

void Manager::drop_broken() {
  // Dropping one may break others (a send fails), so until none is left.
  bool dropped = true;
  while (dropped) {
    dropped = false;
    for (auto it = clients_.begin(); it != clients_.end(); ++it) {
      if (!it->broken) continue;
      node_.loop.forget(it->socket.get());
      Session* session = it->session;
      Job* job = it->job;
      clients_.erase(it);
      if (session != nullptr) sessions_->disconnected(*session);
      if (job != nullptr) jobs_->runner_disconnected(*job);
      dropped = true;
      break;
    }
  }
}

void Manager::became_idle() {
  if (exit_when_idle_) wants_to_end_ = true;
}

void Manager::set_teams(Teams teams) {
  leases_->set_weights(teams.weights_after(node_.teams));
  node_.teams = std::move(teams);
  leases_->step();
}

void Manager::reload(const settings::Values& values) {
  NodeOptions fresh = options_from(values);
  node_.options.host_budget = fresh.host_budget;
  node_.options.job_quotas = fresh.job_quotas;
  node_.options.grace = fresh.grace;
  node_.options.hang_action = fresh.hang_action;
  node_.options.drain_budget = fresh.drain_budget;
  node_.options.join_wait = fresh.join_wait;
  node_.options.checkpoint_after = fresh.checkpoint_after;
  node_.ledger.set_host_budget(fresh.host_budget);
  node_.slabs->set_budget(fresh.host_budget);
  node_.look_outside();
  warn_of_host_budget();
  if (node_.disk != nullptr && fresh.disk_folder == node_.options.disk_folder) {
    node_.disk->set_budget(fresh.disk_budget);
    node_.look_outside();
  } else if (fresh.disk_budget != node_.options.disk_budget) {
    // Processes that have joined do not know of it.
    log_line(LogLevel::kWarning, "disk", "disk.budget and disk.dir change at the next start");
  }
  node_.trace->set_limits(values.bytes("trace.max_bytes"),
                          as_seconds(values.duration("trace.max_age")));
  leases_->set_config(policy_config(values));
  jobs_->admit_waiting();
  leases_->step();
}

}  // namespace plexrl::nodemgr
