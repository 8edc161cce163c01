#include "nodemgr/sessions.h"

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "nodemgr/clock.h"
#include "nodemgr/host_memory.h"
#include "nodemgr/ids.h"
#include "nodemgr/joining.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

constexpr std::uint64_t kFeatures = wire::kFeatureSlabs | wire::kFeaturePrefetch |
                                    wire::kFeatureCommunicators | wire::kFeatureSharesTold |
                                    wire::kFeatureSlabsHeld;
constexpr auto kLookForReplaced = std::chrono::seconds(1);

TraceSession trace_of(const Session& session, TraceSession::Event event) {
  TraceSession record;
  record.event = event;
  record.job_id = id_text(session.job->id);
  record.job_name = session.job->name;
  record.session = session.id;
  record.pid = session.process.pid;
  record.gang = session.gang;
  record.text = session.command;
  return record;
}

}  // namespace

JournalRecord process_record(const Session& session) {
  JournalRecord record{"process", {}};
  record.fields["session"] = cat(session.id);
  record.fields["job"] = id_text(session.job->id);
  record.fields["pid"] = cat(session.process.pid);
  record.fields["start"] = cat(session.process.start_time_ticks);
  record.fields["command"] = session.command;
  return record;
}

JournalRecord attach_record(const Node& node, const Session& session, int gpu) {
  JournalRecord record{"attach", {}};
  record.fields["session"] = cat(session.id);
  record.fields["gpu"] = node.gpus.at(gpu).info.uuid_text;
  record.fields["overhead"] = cat(node.ledger.overhead(session.id, gpu));
  record.fields["pageable"] = cat(node.ledger.pageable(session.id, gpu));
  record.fields["unpageable"] = cat(node.ledger.unpageable(session.id, gpu));
  return record;
}

void refuse_packet(Client& client, const Packet& packet, wire::ErrorCode code,
                   const std::string& why) {
  log_line(LogLevel::kWarning, "client",
           cat("packet refused pid=", client.pid, " uid=", client.uid,
               " type=", static_cast<int>(packet.type), ": ", why));
  client.send_error(wire::Type::kError, packet.request, code, why);
  client.broken = true;
}

void Sessions::hello(Client& client, const Packet& packet) {
  wire::Hello hello{};
  if (!packet.read(hello) || client.session != nullptr || client.job != nullptr) {
    return refuse_packet(client, packet, wire::kErrorMalformed, "kHello has a wrong size or place");
  }
  auto refuse = [&](wire::ErrorCode code, const std::string& why) {
    client.send_error(wire::Type::kRefused, packet.request, code, why);
  };
  if (hello.min_version > wire::kVersion || hello.version < wire::kMinVersion) {
    return refuse(wire::kErrorVersion, cat("this manager speaks version ", wire::kVersion));
  }
  Job* job = node_.find_job(hello.job);
  if (const auto refusal = refusal_to_join(job, hello.secret, client)) {
    return refuse(refusal->code, refusal->why);
  }
  bool again = (hello.flags & wire::kHelloResume) != 0;
  if (!again) end_replaced({client.pid, hello.start_time_ticks});
  Session* session = again ? admit_again(client, hello, *job) : admit_new(client, hello, *job);
  if (session == nullptr) {
    return refuse(wire::kErrorInternal, "the process can't be followed: is /proc mounted?");
  }
  client.session = session;
  session->client = &client;
  const std::uint64_t disk = node_.disk != nullptr ? std::uint64_t{wire::kFeatureDisk} : 0;
  session->features = hello.features & (kFeatures | disk);
  node_.set_staging_aside();
  welcome(client, *session, packet.request);
  // One with a shim from before kSharesTold never says it; what it shares nobody waits for.
  if (again) session->shares_untold = (session->features & wire::kFeatureSharesTold) != 0;
  if (again && !session->shares_untold) exports_.told(job->key);
  leases_.thaw();
}

/// A process that was here comes back with kHelloResume. One that begins anew has become another
/// program by exec, which keeps pid and start; what it was is gone.
void Sessions::end_replaced(const ProcessIdentity& process) {
  std::vector<SessionKey> replaced;
  for (const auto& [id, session] : node_.sessions) {
    if (session->process == process) replaced.push_back(id);
  }
  for (const SessionKey id : replaced) ended(id);
}

Session* Sessions::admit_new(Client& client, const wire::Hello& hello, Job& job) {
  auto session = std::make_unique<Session>();
  session->id = (node_.generation << 32) | node_.next_session++;
  session->job = &job;
  session->process = {client.pid, hello.start_time_ticks};
  session->command = field_text(hello.command);
  session->pidfd = open_process(session->process);
  if (!session->pidfd.is_open() || !make_pages(*session)) return nullptr;
  job.sessions.insert(session->id);
  node_.journal_append(process_record(*session));
  Session& added = *(node_.sessions[session->id] = std::move(session));
  watch_process(added);
  node_.trace->add(trace_of(added, TraceSession::Event::kProcessJoin));
  log_line(
      LogLevel::kInfo, "sessions",
      cat("process joins job='", job.name, "' pid=", client.pid, " command='", added.command, "'"));
  return &added;
}

Session* Sessions::admit_again(Client& client, const wire::Hello& hello, Job& job) {
  Session* session = node_.find_session(hello.session);
  bool same = session != nullptr && session->job == &job && session->process.pid == client.pid &&
              session->process.start_time_ticks == hello.start_time_ticks;
  if (!same) {
    // Not in the journal: it is admitted as new, and says with kResumeState what it has.
    session = admit_new(client, hello, job);
    if (session != nullptr) session->awaited = true;
    return session;
  }
  if (session->client != nullptr) {  // its old connection has not been seen to end yet
    session->client->session = nullptr;
    session->client->broken = true;
  }
  if (!make_pages(*session)) return nullptr;
  // Awaited anew: the connection alone may have been lost, then its kResumeState confirms the
  // lease.
  session->awaited = true;
  session->resume_left = 0;
  session->believed = {};
  session->gate_open = false;
  session->edge = {};
  return session;
}

bool Sessions::make_pages(Session& session) {
  absl::StatusOr<SharedPage> control = SharedPage::written_here("plexrl-control");
  absl::StatusOr<SharedPage> activity = SharedPage::written_there("plexrl-activity");
  if (!control.ok() || !activity.ok()) {
    log_line(LogLevel::kError, "sessions", message_of(control.status()));
    return false;
  }
  auto* page = static_cast<wire::ControlPage*>(control->data());
  page->magic = wire::kMagic;
  page->version = wire::kVersion;
  page->generation = node_.generation;
  session.control = *std::move(control);
  session.activity = *std::move(activity);
  return true;
}

void Sessions::welcome(Client& client, Session& session, std::uint64_t request) {
  node_.publish(*session.job);
  wire::Welcome body{};
  body.version = wire::kVersion;
  body.features = session.features;
  body.session = session.id;
  body.generation = node_.generation;
  body.grace_ns = static_cast<std::uint64_t>(node_.options.grace.count());
  body.drain_budget_ns = static_cast<std::uint64_t>(node_.options.drain_budget.count());
  body.reserve_bytes = node_.reserve_bytes;
  body.chunk_bytes = node_.chunk_bytes;
  int fds[] = {session.control.fd(), session.activity.fd()};
  client.send(wire::Type::kWelcome, request, body, fds);
  session.control.close_descriptor();
  session.activity.close_descriptor();
}

void Sessions::watch_process(Session& session) {
  SessionKey id = session.id;
  node_.loop.watch(session.pidfd.get(), EPOLLIN, [this, id](std::uint32_t) { ended(id); });
}

void Sessions::expect(std::unique_ptr<Session> session) {
  session->awaited = session->shares_untold = true;
  session->job->sessions.insert(session->id);
  Session& added = *(node_.sessions[session->id] = std::move(session));
  watch_process(added);
  node_.loop.set_timer_once(kReplacedTimer, boot_now() + kLookForReplaced,
                            [this] { look_for_replaced(); });
}

void Sessions::exiting(Job& job) {
  job.exiting = true;
  for (SessionKey id : job.sessions) {
    if (Session* session = node_.find_session(id)) leases_.on_exiting(*session);
  }
}

void Sessions::disconnected(Session& session) {
  session.client = nullptr;
  slab_requests_.forget(session.id);
  disk_requests_.forget(session.id);
  if (has_ended(session.pidfd) || is_replaced(session)) return ended(session.id);
  communicators_.lost(session);
  leases_.lost(session);
  leases_.step();
  look_for_replaced();
}

/// A program that is replaced by exec takes its threads and its connection with it, before the
/// connection is seen to end; the process lives on, and may never use CUDA again.
bool Sessions::is_replaced(const Session& session) const {
  return session.client == nullptr && !may_have_thread(session.process.pid, wire::kAgentThreadName);
}

/// Those that have no connection may exec before they are back, which no descriptor tells.
void Sessions::look_for_replaced() {
  std::vector<SessionKey> replaced;
  bool is_any_away = false;
  for (const auto& [id, session] : node_.sessions) {
    if (is_replaced(*session)) {
      replaced.push_back(id);
    } else if (session->client == nullptr) {
      is_any_away = true;
    }
  }
  for (const SessionKey id : replaced) ended(id);
  if (is_any_away) {
    node_.loop.set_timer_once(kReplacedTimer, boot_now() + kLookForReplaced,
                              [this] { look_for_replaced(); });
  }
}

void Sessions::ended(SessionKey id) {
  auto it = node_.sessions.find(id);
  if (it == node_.sessions.end()) return;
  std::unique_ptr<Session> session = std::move(it->second);
  Job& job = *session->job;
  node_.loop.forget(session->pidfd.get());
  if (session->client != nullptr) {
    session->client->session = nullptr;
    session->client->broken = true;
  }
  log_line(LogLevel::kInfo, "sessions",
           cat("process has gone job='", job.name, "' pid=", session->process.pid));
  node_.trace->add(trace_of(*session, TraceSession::Event::kProcessEnd));
  JournalRecord record{"process_end", {}};
  record.fields["session"] = cat(id);
  node_.journal_append(record);
  node_.sessions.erase(it);
  job.sessions.erase(id);
  node_.ledger.detach(id);
  exports_.session_gone(*session);
  node_.slabs->drop_session(id);
  disk_requests_.ended(id);
  node_.set_staging_aside();
  slab_requests_.ended(id);
  communicators_.ended(*session);
  leases_.leave(*session);
  leases_.thaw();
  node_.publish(job);
  process_ended_(job, *session);
  leases_.step();
}

void Sessions::reserve_slabs(int gpu) {
  std::uint64_t in_all = 0;
  std::map<JobKey, std::uint64_t> pageable;
  for (const auto& [id, session] : node_.sessions) {
    std::uint64_t bytes = node_.ledger.pageable(id, gpu);
    pageable[session->job->key] += bytes;
    in_all += bytes + node_.ledger.unpageable(id, gpu) + node_.ledger.overhead(id, gpu);
  }
  std::uint64_t usable = node_.ledger.usable(gpu);
  if (pageable.size() < 2 || in_all <= usable) return;
  for (auto& [key, bytes] : pageable) {
    Job& job = *node_.jobs.at(key);
    std::uint64_t may_leave = std::min(bytes, in_all - usable);
    std::uint64_t count = (may_leave + node_.chunk_bytes - 1) / node_.chunk_bytes;
    node_.slabs->reserve(key, node_.chunk_bytes, count);
    // Those with the most are asked first when something has to leave (Leases::evict).
    std::multimap<std::uint64_t, Session*, std::greater<>> by_size;
    for (SessionKey id : job.sessions) {
      if (Session* session = node_.find_session(id)) {
        by_size.emplace(node_.ledger.pageable(id, gpu), session);
      }
    }
    for (auto [has, session] : by_size) {
      session->may_leave[gpu] = std::min(has, may_leave);
      may_leave -= session->may_leave[gpu];
      node_.publish_may_leave(*session);
    }
  }
}

void Sessions::count_slabs_of_awaited() {
  for (const auto& [id, session] : node_.sessions) {
    if (!session->awaited) continue;
    node_.slabs->count_held(id, session->job->key, mapped_slab_bytes(session->process.pid));
  }
}

}  // namespace plexrl::nodemgr
