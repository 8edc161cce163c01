#include "nodemgr/exports.h"

#include <vector>

#include "nodemgr/ids.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 48;
constexpr std::uint64_t kUnit = std::uint64_t{2} << 20;
/// Of one job, entries and claims each; more than processes that share memory ever have.
constexpr std::size_t kMostNames = 65536;

bool makes_sense(const wire::Export& what) {
  if (what.chunks == 0 || what.bytes == 0 || what.bytes > kMaxBytes || what.bytes % kUnit != 0 ||
      what.chunk_bytes == 0 || what.chunk_bytes % kUnit != 0) {
    return false;
  }
  return (what.bytes - 1) / what.chunk_bytes + 1 == what.chunks;
}

Session* living(Node& node, SessionKey id) {
  Session* session = node.find_session(id);
  return session != nullptr && session->client != nullptr ? session : nullptr;
}

}  // namespace

bool Exports::is_for_me(wire::Type type) {
  switch (type) {
    case wire::Type::kExport:
    case wire::Type::kImport:
    case wire::Type::kFetchHandles:
    case wire::Type::kHandles:
    case wire::Type::kParked:
    case wire::Type::kImportClosed:
    case wire::Type::kExportEnded:
    case wire::Type::kSharesTold:
      return true;
    default:
      return false;
  }
}

bool Exports::is_sharing(SessionKey session) const {
  for (const auto& [job, shares] : shares_) {
    for (const auto& [id, entry] : shares.entries) {
      if (entry.importers.count(session) != 0) return true;
      if (entry.owner == session && !entry.importers.empty()) return true;
    }
    for (const auto& [id, claim] : shares.claims) {
      if (claim.importers.count(session) != 0) return true;
    }
  }
  return false;
}

bool Exports::handle(Session& session, const Packet& packet) {
  switch (packet.type) {
    case wire::Type::kExport:
      return on_export(session, packet);
    case wire::Type::kImport:
      return on_import(session, packet);
    case wire::Type::kFetchHandles:
      return on_fetch(session, packet);
    case wire::Type::kHandles:
      return on_handles(session, packet);
    case wire::Type::kParked:
      return on_parked(session, packet);
    case wire::Type::kImportClosed:
      return on_closed(session, packet);
    case wire::Type::kSharesTold:
      return on_told(session);
    default:
      return on_ended(session, packet);
  }
}

Exports::Entry* Exports::find(Shares& shares, std::uint64_t id) {
  auto it = shares.entries.find(id);
  return it != shares.entries.end() ? &it->second : nullptr;
}

bool Exports::on_export(Session& session, const Packet& packet) {
  wire::Export body{};
  if (!packet.read(body) || !makes_sense(body) ||
      session.memory.find(static_cast<int>(body.gpu)) == session.memory.end()) {
    return false;
  }
  Shares& shares = shares_of(session);
  const Entry* known = body.id == 0 ? nullptr : find(shares, body.id);
  if (known != nullptr && known->owner != session.id) {
    // A journal that was lost may have made it another's before this one was back.
    log_line(LogLevel::kWarning, "exports",
             cat("pid=", session.process.pid,
                 " has come back too late with memory that it shared: another process of its job "
                 "owns it, theirs are two from now on"));
    session.client->send_error(wire::Type::kError, packet.request, wire::kErrorInternal,
                               "another process of the job owns this memory");
    return true;
  }
  if (known == nullptr && shares.entries.size() >= kMostNames) {
    session.client->send(wire::Type::kExported, packet.request, wire::Exported{});
    return true;
  }
  if (body.id == 0) {
    // Names of earlier managers are not met again.
    body.id = node_.generation << 32 | next_id_++;
    body.tag = random_id();
  }
  Entry& entry = shares.entries[body.id];
  entry.owner = session.id;
  entry.what = body;
  session.client->send(wire::Type::kExported, packet.request, wire::Exported{body.id, body.tag});
  owner_back(shares, body.id, entry);
  return true;
}

bool Exports::on_import(Session& session, const Packet& packet) {
  wire::Import body{};
  if (!packet.read(body)) return false;
  if (packet.request == 0) return claim(session, body);
  Entry* entry = find(shares_of(session), body.id);
  if (entry == nullptr || entry->ended || !equal_secrets(entry->what.tag, body.tag)) {
    session.client->send_error(wire::Type::kError, packet.request, wire::kErrorUnknownType,
                               "no such memory of this job");
    return true;
  }
  entry->importers.insert(session.id);
  wire::Imported answer{};
  answer.gpu = entry->what.gpu;
  answer.chunks = entry->what.chunks;
  answer.bytes = entry->what.bytes;
  answer.chunk_bytes = entry->what.chunk_bytes;
  auto gpu = node_.gpus.find(static_cast<int>(entry->what.gpu));
  if (gpu != node_.gpus.end()) answer.uuid = gpu->second.info.uuid;
  session.client->send(wire::Type::kImported, packet.request, answer);
  return true;
}

bool Exports::on_fetch(Session& session, const Packet& packet) {
  wire::Handles body{};
  if (!packet.read(body) || body.count == 0 || body.count > wire::kMaxPacketFds) return false;
  Entry* entry = find(shares_of(session), body.id);
  if (entry == nullptr) return true;  // freed and forgotten meanwhile
  if (entry->importers.count(session.id) == 0 || body.first >= entry->what.chunks ||
      body.count > entry->what.chunks - body.first) {
    return false;
  }
  body.importer = session.id;
  Session* owner = living(node_, entry->owner);
  if (owner != nullptr) owner->client->send(wire::Type::kFetchHandles, 0, body);
  return true;
}

bool Exports::on_handles(Session& session, const Packet& packet) {
  wire::Handles body{};
  if (!packet.read(body) || packet.fds.size() != body.count) return false;
  Entry* entry = find(shares_of(session), body.id);
  if (entry == nullptr || entry->owner != session.id) return true;
  if (entry->importers.count(body.importer) == 0) return true;  // it has closed it meanwhile
  Session* importer = living(node_, body.importer);
  if (importer == nullptr) return true;
  int fds[wire::kMaxPacketFds] = {};
  for (std::size_t i = 0; i < packet.fds.size(); ++i) fds[i] = packet.fds[i].get();
  importer->client->send(wire::Type::kHandles, 0, body, std::span(fds, packet.fds.size()));
  return true;
}

bool Exports::on_parked(Session& session, const Packet& packet) {
  wire::Parked body{};
  if (!packet.read(body)) return false;
  Entry* entry = find(shares_of(session), body.id);
  if (entry == nullptr || entry->owner != session.id) return true;
  if (body.chunk >= entry->what.chunks) return false;
  entry->parked.erase(body.chunk);
  if (body.slab != 0) entry->parked[body.chunk] = {body.slab, body.offset};
  for (SessionKey importer : entry->importers) {
    if (Session* other = living(node_, importer)) other->client->send(wire::Type::kParked, 0, body);
  }
  return true;
}

bool Exports::end_if_unused(JobKey job, std::uint64_t id, const Entry& entry) {
  // After a restart others may still have to come back; the owner asks again when all have.
  if (!entry.ended || !entry.importers.empty() || !is_all_told(job)) return false;
  if (Session* owner = living(node_, entry.owner)) {
    owner->client->send(wire::Type::kExportUnused, 0, wire::ExportRef{id});
  }
  return true;
}

void Exports::leave(const Session& importer, std::uint64_t id) {
  Shares& shares = shares_of(importer);
  Entry* entry = find(shares, id);
  if (entry == nullptr) return;
  entry->importers.erase(importer.id);
  if (end_if_unused(importer.job->key, id, *entry)) shares.entries.erase(id);
}

bool Exports::on_closed(Session& session, const Packet& packet) {
  wire::ExportRef body{};
  if (!packet.read(body)) return false;
  leave(session, body.id);
  give_up_claim(shares_of(session), body.id, session.id);
  return true;
}

bool Exports::on_ended(Session& session, const Packet& packet) {
  wire::ExportRef body{};
  if (!packet.read(body)) return false;
  Entry* entry = find(shares_of(session), body.id);
  // After a restart some importers may still have to come back; then it is asked again.
  const bool is_used = entry != nullptr && entry->owner == session.id &&
                       (!entry->importers.empty() || !is_all_told(session.job->key));
  if (is_used) entry->ended = true;
  if (entry != nullptr && entry->owner == session.id && !is_used) {
    shares_of(session).entries.erase(body.id);
  }
  session.client->send(is_used ? wire::Type::kExportEnded : wire::Type::kExportUnused,
                       packet.request, body);
  return true;
}

void Exports::session_gone(const Session& session) {
  const JobKey job = session.job->key;
  Shares& shares = shares_[job];
  std::vector<std::uint64_t> claimed;
  for (const auto& [id, claim] : shares.claims) {
    if (claim.importers.count(session.id) != 0) claimed.push_back(id);
  }
  for (std::uint64_t id : claimed) give_up_claim(shares, id, session.id);
  for (auto it = shares.entries.begin(); it != shares.entries.end();) {
    auto& [id, entry] = *it;
    entry.importers.erase(session.id);
    if (entry.owner == session.id) bequeath(id, entry, session);
    const bool is_over = entry.owner == 0 || end_if_unused(job, id, entry);
    it = is_over ? shares.entries.erase(it) : std::next(it);
  }
  if (shares.entries.empty() && shares.claims.empty()) shares_.erase(job);
  if (session.shares_untold) told(job);
}

/// A surviving importer becomes the owner, with the slabs that hold evicted bytes.
void Exports::bequeath(std::uint64_t id, Entry& entry, const Session& dead) {
  entry.owner = 0;
  Session* heir = nullptr;
  for (SessionKey importer : entry.importers) {
    Session* session = living(node_, importer);
    if (session == nullptr) continue;
    if (heir == nullptr) {
      heir = session;
    } else if (session != heir) {
      session->client->send(wire::Type::kOwnerGone, 0, wire::OwnerGone{id, 0, 0});
    }
  }
  if (heir == nullptr) return;
  hand_to_heir(id, entry, *heir, dead.id);
  log_line(LogLevel::kInfo, "exports",
           cat("the owner of shared memory is gone, pid=", heir->process.pid, " keeps it"));
  entry.owner = heir->id;
  entry.importers.erase(heir->id);
}

void Exports::hand_to_heir(std::uint64_t id, Entry& entry, Session& heir, SessionKey from) {
  for (auto& [chunk, parked] : entry.parked) {
    std::uint64_t bytes = 0;
    int fd = node_.slabs->hand_over(parked.slab, from, heir.id, &bytes);
    if (fd < 0) continue;
    int fds[] = {fd};
    heir.client->send(wire::Type::kParked, 0,
                      wire::Parked{id, chunk, 0, parked.slab, bytes, parked.offset}, fds);
  }
  heir.client->send(wire::Type::kOwnerGone, 0, wire::OwnerGone{id, 1, 0});
}

// ---- after a restart

bool Exports::claim(Session& session, const wire::Import& import) {
  Shares& shares = shares_of(session);
  if (Entry* entry = find(shares, import.id)) {
    if (!equal_secrets(entry->what.tag, import.tag)) return false;
    if (entry->owner == session.id) {
      // Who knows that it is the heir says kExport: its connection was lost with the news.
      hand_to_heir(import.id, *entry, session, session.id);
      return true;
    }
    entry->importers.insert(session.id);
    session.client->send(wire::Type::kOwnerBack, 0, wire::ExportRef{import.id});
    return true;
  }
  if (shares.claims.size() >= kMostNames) return true;
  Claim& claim = shares.claims.try_emplace(import.id, Claim{import.tag, {}, 0}).first->second;
  if (!equal_secrets(claim.tag, import.tag)) return true;
  claim.importers.insert(session.id);
  if (claim.candidate == session.id) {
    // Asked before, it claims it still: its connection may have been lost with the question.
    ask(import.id, claim, session);
  } else if (claim.candidate == 0 && is_all_told(session.job->key)) {
    ask_next(import.id, claim);
  }
  return true;
}

void Exports::owner_back(Shares& shares, std::uint64_t id, Entry& entry) {
  auto it = shares.claims.find(id);
  if (it == shares.claims.end()) return;
  const Claim claim = std::move(it->second);
  shares.claims.erase(it);
  if (!equal_secrets(claim.tag, entry.what.tag)) return;
  for (SessionKey importer : claim.importers) {
    Session* session = importer == entry.owner ? nullptr : node_.find_session(importer);
    if (session == nullptr) continue;
    entry.importers.insert(importer);
    if (session->client != nullptr) {
      session->client->send(wire::Type::kOwnerBack, 0, wire::ExportRef{id});
    }
  }
}

void Exports::give_up_claim(Shares& shares, std::uint64_t id, SessionKey importer) {
  auto it = shares.claims.find(id);
  if (it == shares.claims.end()) return;
  Claim& claim = it->second;
  claim.importers.erase(importer);
  if (claim.importers.empty()) {
    shares.claims.erase(it);
  } else if (claim.candidate == importer) {
    ask_next(id, claim);
  }
}

bool Exports::on_told(Session& session) {
  session.shares_untold = false;
  told(session.job->key);
  return true;
}

bool Exports::is_all_told(JobKey job) const {
  for (const auto& [id, session] : node_.sessions) {
    if (session->job->key == job && session->shares_untold) return false;
  }
  return true;
}

void Exports::told(JobKey job) {
  if (!is_all_told(job)) return;
  if (auto shares = shares_.find(job); shares != shares_.end()) {
    for (auto& [id, claim] : shares->second.claims) {
      if (claim.candidate == 0) ask_next(id, claim);
    }
  }
  for (auto& [id, session] : node_.sessions) {
    if (session->job->key == job && session->client != nullptr) {
      session->client->send(wire::Type::kSharesTold, 0, std::span<const std::byte>());
    }
  }
}

void Exports::ask(std::uint64_t id, Claim& claim, Session& candidate) {
  claim.candidate = candidate.id;
  candidate.client->send(wire::Type::kOwnerGone, 0, wire::OwnerGone{id, 1, 1});
}

void Exports::ask_next(std::uint64_t id, Claim& claim) {
  claim.candidate = 0;
  for (SessionKey importer : claim.importers) {
    Session* session = living(node_, importer);
    if (session != nullptr) return ask(id, claim, *session);
  }
}

}  // namespace plexrl::nodemgr
