#include "nodemgr/slab_requests.h"

#include <algorithm>
#include <functional>
#include <map>

#include "nodemgr/clock.h"
#include "nodemgr/ids.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

/// What of its slabs holds no evicted bytes, or soon will not.
std::uint64_t spare_of(const Node& node, const Session& session) {
  const std::uint64_t slabs = node.slabs->bytes_with(session.id);
  if (session.granted != wire::Epoch{}) return slabs;  // it has everything in HBM, or loads it
  std::uint64_t evicted = 0;
  for (const auto& [gpu, memory] : session.memory) evicted += memory.host;
  return slabs - std::min(slabs, evicted);
}

bool has_disk(const Session& session) { return (session.features & wire::kFeatureDisk) != 0; }

}  // namespace

void SlabRequests::ask(Session& session, std::uint64_t bytes, std::uint64_t request) {
  if (node_.slabs->ask(session.id, session.job->key, bytes, request)) return;
  // Who only wants to have some ready takes nothing from others. Who evicts has more to ask for.
  const std::uint64_t leaving = leases_.evicting_bytes(session);
  const bool is_recalled = leaving != 0 && recall(session, std::max(bytes, leaving));
  if (!is_recalled || has_disk(session)) return refuse(session, bytes, request);
  waiting_.push_back({session.id, bytes, request, boot_now() + kPatience});
  node_.loop.set_timer_once(kSlabTimer, waiting_.back().until, [this] { refuse_overdue(); });
}

bool SlabRequests::recall(const Session& asker, std::uint64_t bytes) {
  std::multimap<std::uint64_t, Session*, std::greater<>> by_spare;
  for (const auto& [id, other] : node_.sessions) {
    if (other.get() == &asker || other->client == nullptr) continue;
    const std::uint64_t spare = spare_of(node_, *other);
    if (spare != 0) by_spare.emplace(spare, other.get());
  }
  std::uint64_t left = bytes;
  for (auto [spare, other] : by_spare) {
    if (left == 0) break;
    const std::uint64_t asked = std::min(left, spare);
    other->client->send(wire::Type::kSlabReturn, 0, wire::Slab{0, asked});
    // Who computes gives when it rests, and copies of shared memory stay: others are asked as well.
    if (owing_.insert(other->id).second) left -= asked;
  }
  return !by_spare.empty();
}

void SlabRequests::given_back(const Session& session) {
  owing_.erase(session.id);
  serve_waiting();
}

void SlabRequests::ended(SessionKey session) {
  owing_.erase(session);
  serve_waiting();
}

void SlabRequests::serve_waiting() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Session* session = node_.find_session(it->session);
    const bool is_served = session == nullptr || session->client == nullptr ||
                           node_.slabs->ask(session->id, session->job->key, it->bytes, it->request);
    it = is_served ? waiting_.erase(it) : std::next(it);
  }
}

void SlabRequests::forget(SessionKey session) {
  waiting_.remove_if([session](const Waiting& waiting) { return waiting.session == session; });
}

void SlabRequests::refuse_overdue() {
  while (!waiting_.empty() && waiting_.front().until <= boot_now()) {
    const Waiting overdue = waiting_.front();
    waiting_.pop_front();
    if (Session* session = node_.find_session(overdue.session)) {
      refuse(*session, overdue.bytes, overdue.request);
    }
  }
  if (waiting_.empty()) return;
  node_.loop.set_timer(kSlabTimer, waiting_.front().until, [this] { refuse_overdue(); });
}

void SlabRequests::refuse(Session& session, std::uint64_t bytes, std::uint64_t request) {
  if (session.client == nullptr) return;
  session.client->send_error(
      wire::Type::kError, request, wire::kErrorNoHostMemory,
      cat("host budget or memory used up: a slab of ", bytes, " bytes does not fit"));
  if (has_disk(session)) return;  // that is where it goes
  node_.trace->add(TraceError{id_text(session.job->id), session.id, "no_host_memory", cat(bytes)});
}

void SlabRequests::hand_out() {
  for (const Slabs::Ready& ready : node_.slabs->finished()) {
    Session* session = node_.find_session(ready.session);
    if (session == nullptr || session->client == nullptr) continue;
    if (ready.id == 0) {
      session->client->send_error(wire::Type::kError, ready.request, wire::kErrorNoHostMemory,
                                  cat("no host memory for a slab of ", ready.bytes, " bytes"));
      continue;
    }
    int fds[] = {ready.fd};
    session->client->send(wire::Type::kSlab, ready.request, wire::Slab{ready.id, ready.bytes}, fds);
  }
}

}  // namespace plexrl::nodemgr
