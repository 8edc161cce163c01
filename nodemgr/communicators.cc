#include "nodemgr/communicators.h"

#include <algorithm>
#include <iterator>

#include "nodemgr/clock.h"

namespace plexrl::nodemgr {
namespace {

/// Of one process: more than any has, few enough to look through.
constexpr std::size_t kMost = 4096;
/// A wait for the others that is not worth a meeting, and how many of them in a row end it.
constexpr auto kShortWait = std::chrono::milliseconds(10);
constexpr int kShortWaits = 32;
/// A gang that can't give back the part of its GPUs that it has (what runs there may wait for the
/// very rank that we keep waiting) is not waited for any longer.
constexpr auto kPatience = std::chrono::seconds(10);

}  // namespace

Communicators::Communicators(Node& node, Leases& leases) : node_(node), leases_(leases) {
  leases_.add_after_step([this] { look(); });
}

bool Communicators::is_for_me(wire::Type type) {
  switch (type) {
    case wire::Type::kCommJoin:
    case wire::Type::kCommLeave:
    case wire::Type::kCommWaits:
    case wire::Type::kCommStays:
    case wire::Type::kCommAt:
    case wire::Type::kCommMeet:
      return true;
    default:
      return false;
  }
}

bool Communicators::handle(Session& session, const Packet& packet) {
  const bool has_count = packet.type == wire::Type::kCommAt || packet.type == wire::Type::kCommMeet;
  wire::CommRef reference{};
  wire::CommAt count{};
  if (has_count ? !packet.read(count) : !packet.read(reference)) return false;
  if (count.is_outstanding > 1) return false;
  const bool meets = packet.type == wire::Type::kCommMeet;
  if (meets && packet.request == 0) return false;
  if (has_count) reference.comm = count.comm;
  const Name name{session.job->key, reference.comm.hi, reference.comm.lo};
  if (packet.type == wire::Type::kCommJoin) {
    join(session, name);
    if (packet.request != 0)
      joining_.push_back({session.id, packet.request, reference, boot_now()});
    look();
    return true;
  }
  const auto found = all_.find(name);
  if (found == all_.end() || found->second.ranks.count(session.id) == 0) {
    if (packet.request != 0) {
      session.client->send(meets ? wire::Type::kCommMet : wire::Type::kCommJoined, packet.request,
                           reference);
    }
    return true;
  }
  Communicator& communicator = found->second;
  switch (packet.type) {
    case wire::Type::kCommLeave:
      leave(session.id, name);
      break;
    case wire::Type::kCommStays:
      communicator.stays = true;
      set_mode(name, communicator, wire::kTogether);
      if (packet.request != 0)
        joining_.push_back({session.id, packet.request, reference, boot_now()});
      break;
    case wire::Type::kCommWaits:
      if (!communicator.stays && communicator.ranks.size() > 1)
        set_mode(name, communicator, wire::kMeets);
      break;
    default:
      at(session, communicator, count, meets ? packet.request : 0);
  }
  look();
  return true;
}

void Communicators::join(Session& session, const Name& name) {
  std::size_t own = 0;
  for (const auto& [other, communicator] : all_) own += communicator.ranks.count(session.id);
  if (own >= kMost) return;
  Communicator& communicator = all_[name];
  Rank& rank = communicator.ranks[session.id] = {};
  if (communicator.mode == wire::kMeets) {  // it may have been told over a connection that is lost
    session.client->send(wire::Type::kCommMode, 0,
                         wire::CommMode{{name.hi, name.lo}, wire::kMeets, 0});
    rank.is_outstanding = true;  // until it says so
  }
  if (communicator.united) unite(communicator);
}

void Communicators::leave(SessionKey session, const Name& name) {
  const auto found = all_.find(name);
  if (found == all_.end()) return;
  found->second.ranks.erase(session);
  if (found->second.ranks.empty()) all_.erase(found);
  some_apart_ = true;
}

void Communicators::set_mode(const Name& name, Communicator& communicator, wire::CommModes mode) {
  if (communicator.mode == mode) return;
  communicator.mode = mode;
  communicator.short_waits = 0;
  for (auto& [id, rank] : communicator.ranks) {
    // Until it has said what it has under way nothing is known to have ended.
    rank.is_outstanding = true;
    const Session* const session = node_.find_session(id);
    if (session == nullptr || session->client == nullptr) continue;
    session->client->send(wire::Type::kCommMode, 0,
                          wire::CommMode{{name.hi, name.lo}, static_cast<std::uint32_t>(mode), 0});
  }
  if (mode == wire::kTogether) {
    communicator.united = true;
    unite(communicator);
  }
}

void Communicators::at(Session& session, Communicator& communicator, const wire::CommAt& at,
                       std::uint64_t request) {
  Rank& rank = communicator.ranks[session.id];
  rank.submitted = std::max(rank.submitted, at.submitted);
  rank.is_outstanding = at.is_outstanding != 0;
  if (request == 0) return;
  if (rank.request != 0) {  // one at a time; who asks twice is not kept waiting for that
    session.client->send(wire::Type::kCommMet, rank.request, wire::CommRef{at.comm});
  }
  rank.request = request;
  rank.since = boot_now();
}

/// Whether nobody is missed for what those who wait are about to submit.
bool Communicators::have_come(const Communicator& communicator) {
  if (communicator.mode == wire::kTogether) return true;
  std::uint64_t number = 0;
  for (const auto& [id, rank] : communicator.ranks) {
    if (rank.request != 0) number = std::max(number, rank.submitted);
  }
  return std::all_of(communicator.ranks.begin(), communicator.ranks.end(),
                     [&](const auto& entry) { return entry.second.submitted >= number; });
}

/// False: they could not be, now.
bool Communicators::unite(const Communicator& communicator) {
  Session* first = nullptr;
  bool all = true;
  for (const auto& [id, rank] : communicator.ranks) {
    Session* const session = node_.find_session(id);
    if (session == nullptr || session->gang == 0) continue;  // united when it has a GPU
    if (first != nullptr) all &= leases_.unite(*first, *session);
    first = session;
  }
  return all;
}

void Communicators::answer(const Name& name, Communicator& communicator) {
  auto first = std::chrono::nanoseconds::max();
  auto last = std::chrono::nanoseconds{0};
  for (auto& [id, rank] : communicator.ranks) {
    if (rank.request == 0) continue;
    first = std::min(first, rank.since);
    last = std::max(last, rank.since);
    rank.is_outstanding = true;
    const std::uint64_t request = std::exchange(rank.request, 0);
    const Session* const session = node_.find_session(id);
    if (session != nullptr && session->client != nullptr)
      session->client->send(wire::Type::kCommMet, request, wire::CommRef{{name.hi, name.lo}});
  }
  communicator.is_ready = false;
  communicator.short_waits = last - first < kShortWait ? communicator.short_waits + 1 : 0;
  // Now, because they have all their GPUs or none.
  if (communicator.short_waits >= kShortWaits) set_mode(name, communicator, wire::kTogether);
}

/// False while they hold a part of the GPUs that they need; then they ask for all.
bool Communicators::has_all_or_none(const Communicator& communicator) {
  bool all = true;
  for (const auto& [id, rank] : communicator.ranks) {
    const Session* const session = node_.find_session(id);
    if (session == nullptr || leases_.has_all_or_none(*session)) continue;
    all = false;
    leases_.want_all(*session);
  }
  return all;
}

void Communicators::look_at(const Name& name, Communicator& communicator,
                            std::chrono::nanoseconds now) {
  bool waits = false;
  bool is_over = true;
  auto due = std::chrono::nanoseconds::max();
  for (const auto& [id, rank] : communicator.ranks) {
    waits |= rank.request != 0;
    is_over &= !rank.is_outstanding;
    if (rank.request != 0) due = std::min(due, rank.since + node_.options.join_wait);
  }
  if (!waits) communicator.is_ready = false;
  if (communicator.mode == wire::kMeets && communicator.united && is_over &&
      !communicator.is_ready) {
    communicator.united = false;
    some_apart_ = true;
  }
  if (!waits) {
    if (communicator.united) unite(communicator);  // what could not be before
    return;
  }
  if (!communicator.is_ready && (have_come(communicator) || now >= due)) {
    communicator.is_ready = communicator.united = true;
    communicator.ready_since = now;
  }
  if (!communicator.is_ready) return;
  const bool is_united = unite(communicator) && !leases_.has_news();
  const bool is_late = now >= communicator.ready_since + kPatience;
  if ((is_united && has_all_or_none(communicator)) || is_late) answer(name, communicator);
}

/// Who has become a rank of a communicator goes on when its gang has all its GPUs or none: else its
/// first collective could wait on a part of them.
void Communicators::answer_joining() {
  for (auto it = joining_.begin(); it != joining_.end() && !leases_.has_news();) {
    Session* const session = node_.find_session(it->session);
    const auto communicator = all_.find({session == nullptr ? JobKey{} : session->job->key,
                                         it->reference.comm.hi, it->reference.comm.lo});
    const bool is_there = session != nullptr && session->client != nullptr;
    const bool waits = is_there && communicator != all_.end() && communicator->second.united &&
                       boot_now() < it->since + kPatience &&
                       (!unite(communicator->second) || leases_.has_news() ||
                        !has_all_or_none(communicator->second));
    if (waits) {
      ++it;
      continue;
    }
    if (is_there) session->client->send(wire::Type::kCommJoined, it->request, it->reference);
    it = joining_.erase(it);
  }
}

void Communicators::look() {
  if (looking_) return;
  looking_ = true;
  const auto now = boot_now();
  for (auto& [name, communicator] : all_) look_at(name, communicator, now);
  answer_joining();
  if (some_apart_) part_what_is_apart();
  looking_ = false;
  auto due = policy::kNever;
  for (const auto& [name, communicator] : all_) {
    for (const auto& [id, rank] : communicator.ranks) {
      if (rank.request == 0) continue;
      due = std::min(due, communicator.is_ready ? communicator.ready_since + kPatience
                                                : rank.since + node_.options.join_wait);
    }
  }
  for (const Joining& one : joining_) due = std::min(due, one.since + kPatience);
  if (due == policy::kNever) {
    node_.loop.cancel_timer(kMeetingTimer);
  } else {
    node_.loop.set_timer(kMeetingTimer, due, [this] { look(); });
  }
  if (leases_.has_news()) leases_.step();
}

/// The processes of a gang by what they have to have in common: GPUs, and communicators that are
/// united.
std::vector<std::set<SessionKey>> Communicators::parts_of(const LeaseGang& gang) const {
  std::vector<std::set<SessionKey>> parts;
  const auto join_parts = [&](const std::set<SessionKey>& together) {
    std::set<SessionKey> all = together;
    for (auto it = parts.begin(); it != parts.end();) {
      const bool meets = std::any_of(it->begin(), it->end(),
                                     [&](SessionKey id) { return together.count(id) != 0; });
      if (meets) all.insert(it->begin(), it->end());
      it = meets ? parts.erase(it) : std::next(it);
    }
    if (!all.empty()) parts.push_back(std::move(all));
  };
  std::map<int, std::set<SessionKey>> by_gpu;
  for (const SessionKey id : gang.sessions) {
    join_parts({id});
    const Session* const session = node_.find_session(id);
    if (session == nullptr) continue;
    for (const auto& [gpu, memory] : session->memory) by_gpu[gpu].insert(id);
  }
  for (const auto& [gpu, together] : by_gpu) join_parts(together);
  for (const auto& [name, communicator] : all_) {
    if (!communicator.united) continue;
    std::set<SessionKey> together;
    for (const auto& [id, rank] : communicator.ranks) {
      if (gang.sessions.count(id) != 0) together.insert(id);
    }
    join_parts(together);
  }
  return parts;
}

void Communicators::part_what_is_apart() {
  some_apart_ = false;
  std::vector<std::uint64_t> gangs;
  for (const auto& [id, gang] : leases_.gangs()) gangs.push_back(id);
  for (const std::uint64_t id : gangs) {
    LeaseGang* const gang = leases_.find_gang(id);
    const auto parts = parts_of(*gang);
    // One at a time: the policy has to hear of it. The rest after the next step.
    if (parts.size() > 1) {
      leases_.part(*gang, parts.back());
      some_apart_ = true;
    }
  }
}

void Communicators::attached(Session& session) {
  for (const auto& [name, communicator] : all_) {
    if (communicator.united && communicator.ranks.count(session.id) != 0) unite(communicator);
  }
}

void Communicators::lost(const Session& session) {
  std::erase_if(joining_, [&](const Joining& one) { return one.session == session.id; });
  for (auto& [name, communicator] : all_) {
    const auto rank = communicator.ranks.find(session.id);
    if (rank != communicator.ranks.end()) rank->second.request = 0;
  }
}

void Communicators::ended(const Session& session) {
  for (auto it = all_.begin(); it != all_.end();) {
    some_apart_ |= it->second.ranks.erase(session.id) != 0;
    it = it->second.ranks.empty() ? all_.erase(it) : std::next(it);
  }
}

}  // namespace plexrl::nodemgr
