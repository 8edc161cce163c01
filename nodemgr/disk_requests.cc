#include "nodemgr/disk_requests.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <utility>

#include "nodemgr/fault_point.h"
#include "nodemgr/ids.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

using disk::DiskStore;
using disk::SpillFile;

/// No file system holds more; keeps sums from wrapping round.
constexpr std::uint64_t kMostOffset = std::uint64_t{1} << 48;

bool is_place(std::uint64_t offset, std::uint64_t bytes, std::uint64_t most_bytes) {
  return bytes != 0 && bytes <= most_bytes && bytes % wire::kDiskUnit == 0 &&
         offset <= kMostOffset && offset % wire::kDiskUnit == 0;
}

/// Sealed memory: reading and writing it waits for nobody, and it stays as long as it is.
bool is_memory(int fd, std::uint64_t least_bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  const int flags = ::fcntl(fd, F_GETFL);
  struct stat file {};
  constexpr int kWanted = F_SEAL_SHRINK | F_SEAL_GROW;
  return seals >= 0 && (seals & kWanted) == kWanted && (seals & F_SEAL_WRITE) == 0 && flags >= 0 &&
         (flags & O_ACCMODE) == O_RDWR && (flags & O_APPEND) == 0 && ::fstat(fd, &file) == 0 &&
         static_cast<std::uint64_t>(file.st_size) >= least_bytes;
}

wire::DiskOutcome outcome_of(DiskStore::Outcome outcome) {
  switch (outcome) {
    case DiskStore::Outcome::kDone:
      return wire::kDiskDone;
    case DiskStore::Outcome::kFull:
      return wire::kDiskFull;
    case DiskStore::Outcome::kDamaged:
      return wire::kDiskDamaged;
    case DiskStore::Outcome::kFailed:
      break;
  }
  return wire::kDiskFailed;
}

}  // namespace

JournalRecord spill_record(SessionKey session, std::uint64_t inode) {
  JournalRecord record{"spill", {}};
  record.fields["session"] = cat(session);
  record.fields["inode"] = cat(inode);
  return record;
}

bool DiskRequests::is_for_me(wire::Type type) {
  switch (type) {
    case wire::Type::kDiskFile:
    case wire::Type::kDiskWrite:
    case wire::Type::kDiskRead:
    case wire::Type::kDiskDiscard:
    case wire::Type::kDiskHeld:
      return true;
    default:
      return false;
  }
}

bool DiskRequests::handle(Session& session, const Packet& packet) {
  if (node_.disk == nullptr) {
    session.client->send_error(wire::Type::kError, packet.request, wire::kErrorUnknownType,
                               "this manager has no disk tier");
    return true;
  }
  switch (packet.type) {
    case wire::Type::kDiskFile:
      return file(session, packet);
    case wire::Type::kDiskHeld:
      return held(session, packet);
    case wire::Type::kDiskDiscard:
      return discard(session, packet);
    default:
      return move(session, packet);
  }
}

bool DiskRequests::file(Session& session, const Packet& packet) {
  if (!packet.body.empty()) return false;
  const auto made = node_.disk->store().file(session.id);
  const auto name = made.ok() ? (*made)->name() : made.status();
  if (!name.ok()) {
    log_line(LogLevel::kWarning, "disk",
             cat(message_of(name.status()), ", memory of process ", session.process.pid,
                 " stays off the disk"));
    session.client->send_error(wire::Type::kError, packet.request, wire::kErrorInternal,
                               message_of(name.status()));
    return true;
  }
  wire::DiskFile answer{};
  const auto key = (*made)->key().bytes();
  std::copy(key.begin(), key.end(), answer.key);
  answer.inode = (*made)->inode();
  if (session.spill_inode != answer.inode) {
    session.spill_inode = answer.inode;
    node_.journal_append(spill_record(session.id, answer.inode));
  }
  const int fds[] = {name->get()};
  session.client->send(wire::Type::kDiskFile, packet.request, answer, fds);
  ::explicit_bzero(&answer, sizeof answer);
  return true;
}

bool DiskRequests::held(Session& session, const Packet& packet) {
  wire::DiskFile body{};
  if (!packet.read(body) || packet.fds.size() != 1 || !session.awaited) return false;
  // It is still ours where only the connection was lost.
  if (node_.disk->store().has_file(session.id)) return true;
  session.has_brought_staging = true;
  node_.set_staging_aside();
  auto reopened = session.spill_inode == 0 || session.spill_inode != body.inode
                      ? absl::PermissionDeniedError("the journal does not know the file")
                      : SpillFile::reopen(packet.fds[0].get(), session.spill_inode,
                                          node_.disk->folder(), body.key);
  ::explicit_bzero(&body, sizeof body);
  if (reopened.ok()) {
    node_.disk->store().adopt(session.id, *std::move(reopened));
    return true;
  }
  log_line(LogLevel::kError, "disk",
           cat("what process ", session.process.pid, " has on disk is lost to it: ",
               message_of(reopened.status()), "; its calls that use it will fail"));
  node_.trace->add(
      TraceError{id_text(session.job->id), session.id, "disk_lost", message_of(reopened.status())});
  return true;
}

bool DiskRequests::discard(const Session& session, const Packet& packet) {
  wire::DiskPlace body{};
  if (!packet.read(body) || !is_place(body.file_offset, body.bytes, kMostOffset)) return false;
  node_.disk->store().discard(session.id, body.file_offset, body.bytes);
  return true;
}

bool DiskRequests::move(Session& session, const Packet& packet) {
  wire::DiskMove body{};
  if (!packet.read(body) || packet.fds.size() != 1 || packet.request == 0) return false;
  auto& asked = asked_[session.id];
  const bool is_good = is_place(body.file_offset, body.bytes, wire::kMostDiskPiece) &&
                       body.memory_offset <= kMostOffset &&
                       body.memory_offset % wire::kDiskUnit == 0 &&
                       asked.size() < wire::kMostDiskMoves &&
                       is_memory(packet.fds[0].get(), body.memory_offset + body.bytes);
  if (!is_good) return false;
  ScopedFd memory(::fcntl(packet.fds[0].get(), F_DUPFD_CLOEXEC, 0));
  if (!memory.is_open()) {
    wire::DiskMoved answer{};
    answer.outcome = wire::kDiskFailed;
    session.client->send(wire::Type::kDiskMoved, packet.request, answer);
    return true;
  }
  const DiskStore::Place place{body.memory_offset, body.bytes, body.file_offset};
  asked[next_] = packet.request;
  if (packet.type == wire::Type::kDiskWrite) {
    node_.disk->store().write(session.id, next_++, std::move(memory), place);
    fault_point("disk_write");
    return true;
  }
  disk::Seal seal;
  std::copy(std::begin(body.nonce), std::end(body.nonce), seal.nonce.begin());
  std::copy(std::begin(body.tag), std::end(body.tag), seal.tag.begin());
  node_.disk->store().read(session.id, next_++, std::move(memory), place, seal);
  fault_point("disk_read");
  return true;
}

void DiskRequests::hand_out() {
  if (node_.disk == nullptr) return;
  for (const DiskStore::Result& result : node_.disk->store().finished()) {
    auto asked = asked_.find(result.owner);
    if (asked == asked_.end()) continue;
    const auto request = asked->second.extract(result.request);
    Session* const session = node_.find_session(result.owner);
    if (request.empty() || session == nullptr || session->client == nullptr) continue;
    wire::DiskMoved answer{};
    answer.outcome = outcome_of(result.outcome);
    std::copy(result.seal.nonce.begin(), result.seal.nonce.end(), answer.nonce);
    std::copy(result.seal.tag.begin(), result.seal.tag.end(), answer.tag);
    if (result.outcome != DiskStore::Outcome::kDone) say_failed(*session, result);
    session->client->send(wire::Type::kDiskMoved, request.mapped(), answer);
    fault_point("disk_moved");
  }
}

void DiskRequests::say_failed(const Session& session, const DiskStore::Result& result) {
  const bool is_full = result.outcome == DiskStore::Outcome::kFull;
  const char* const what = is_full                                          ? "disk_full"
                           : result.outcome == DiskStore::Outcome::kDamaged ? "disk_damaged"
                                                                            : "disk_failed";
  node_.trace->add(TraceError{id_text(session.job->id), session.id, what, result.text});
  if (is_full && !said_full_.insert(session.id).second) return;
  log_line(is_full ? LogLevel::kWarning : LogLevel::kError, "disk",
           cat("memory of job '", session.job->name, "' process ", session.process.pid, ": ",
               result.text, is_full ? ", it stays in HBM and is tried again" : ""));
}

void DiskRequests::ended(SessionKey session) {
  asked_.erase(session);
  said_full_.erase(session);
  if (node_.disk != nullptr) node_.disk->store().drop_owner(session);
}

}  // namespace plexrl::nodemgr
