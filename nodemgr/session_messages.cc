// What processes ask for and report. Every figure in a message is checked before it is used.
#include <algorithm>
#include <numeric>

#include "nodemgr/clock.h"
#include "nodemgr/ids.h"
#include "nodemgr/log.h"
#include "nodemgr/sessions.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

/// Above any GPU's memory and any host's; keeps sums of reported figures from wrapping round.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 48;
constexpr std::uint64_t kMaxSlabBytes = std::uint64_t{1} << 36;
constexpr std::uint64_t kPageBytes = 4096;

bool has_gpu(const Session& session, std::uint32_t gpu) {
  return gpu < wire::kMaxGpus && session.memory.count(static_cast<int>(gpu)) != 0;
}

void malformed(Session& session, const Packet& packet, const std::string& why) {
  refuse_packet(*session.client, packet, wire::kErrorMalformed, why);
}

}  // namespace

void Sessions::message(Client& client, const Packet& packet) {
  Session& session = *client.session;
  if (session.awaited && packet.type != wire::Type::kResumeState &&
      packet.type != wire::Type::kSlabsHeld && packet.type != wire::Type::kDiskHeld &&
      packet.type != wire::Type::kDiskDiscard) {
    resumed(session);
  }
  if (Exports::is_for_me(packet.type)) {
    if (!exports_.handle(session, packet))
      malformed(session, packet, "of shared memory: wrong size or figure");
    return;
  }
  if (DiskRequests::is_for_me(packet.type)) {
    if (!disk_requests_.handle(session, packet)) {
      malformed(session, packet, "of the disk tier: wrong size, figure, descriptor or moment");
    }
    return;
  }
  if (Communicators::is_for_me(packet.type)) {
    if (!communicators_.handle(session, packet))
      malformed(session, packet, "of communicators: wrong size or figure");
    return;
  }
  switch (packet.type) {
    case wire::Type::kAttachGpu:
      return attach_gpu(session, packet);
    case wire::Type::kCharge:
      return charge(session, packet);
    case wire::Type::kPin:
      return pin(session, packet);
    case wire::Type::kUncharge:
      return uncharge(session, packet);
    case wire::Type::kMemoryReport:
      return memory_report(session, packet);
    case wire::Type::kKinds:
      return kinds(session, packet);
    case wire::Type::kSlabRequest:
      return slab_request(session, packet);
    case wire::Type::kSlabReturn:
      return slab_return(session, packet);
    case wire::Type::kDiskStaging:
      return disk_staging(session, packet);
    case wire::Type::kDiskReport:
      return disk_report(session, packet);
    case wire::Type::kDiskPaged:
      return disk_paged(session, packet);
    case wire::Type::kSlabsHeld:
      return slabs_held(session, packet);
    case wire::Type::kResumeState:
      return resume_state(session, packet);
    case wire::Type::kExiting:
      leases_.on_exiting(session);
      return;
    case wire::Type::kPaged:
      return paged(session, packet);
    case wire::Type::kLeftGpu: {
      wire::LeftGpu body{};
      if (!packet.read(body) || body.refused > 1) {
        return malformed(session, packet, "kLeftGpu: wrong size or figure");
      }
      if (on_left_) on_left_(session, body);
      return;
    }
    case wire::Type::kWantLease:
    case wire::Type::kLoaded:
    case wire::Type::kDrained:
    case wire::Type::kNotDrained:
    case wire::Type::kEvicted:
    case wire::Type::kPrefetched:
    case wire::Type::kActivity:
    case wire::Type::kExclusive:
      return lease_message(session, packet);
    case wire::Type::kError:
      return;
    default:
      // A newer client may know messages that we don't: said, and otherwise ignored.
      client.send_error(wire::Type::kError, packet.request, wire::kErrorUnknownType,
                        cat("message type ", static_cast<int>(packet.type), " is not known"));
  }
}

void Sessions::attach(Session& session, int gpu, std::uint64_t overhead) {
  bool is_new = session.memory.count(gpu) == 0;
  session.memory[gpu];
  node_.ledger.attach(session.id, session.job->key, gpu, overhead);
  if (is_new) {
    node_.journal_append(attach_record(node_, session, gpu));
    leases_.attach(session, gpu);
    communicators_.attached(session);
  } else {
    leases_.memory_changed(session, gpu);
  }
}

void Sessions::attach_gpu(Session& session, const Packet& packet) {
  wire::AttachGpu body{};
  if (!packet.read(body) || body.overhead_bytes > kMaxBytes) {
    return malformed(session, packet, "kAttachGpu: wrong size or figure");
  }
  int gpu = node_.find_gpu(body.uuid);
  if (gpu < 0) {
    session.client->send_error(wire::Type::kError, packet.request, wire::kErrorUnknownGpu,
                               "this manager does not manage that GPU");
    return;
  }
  attach(session, gpu, body.overhead_bytes);
  std::uint64_t promised = node_.ledger.promised(session.job->key, gpu);
  wire::Attached answer{static_cast<std::uint32_t>(gpu), 0, promised};
  session.client->send(wire::Type::kAttached, packet.request, answer);
  node_.publish(*session.job);
}

void Sessions::charge(Session& session, const Packet& packet) {
  wire::Charge body{};
  if (!packet.read(body) || !has_gpu(session, body.gpu) || body.bytes > kMaxBytes ||
      body.unpageable > 1) {
    return malformed(session, packet, "kCharge: wrong size, GPU or figure");
  }
  int gpu = static_cast<int>(body.gpu);
  bool granted = node_.ledger.charge(session.id, gpu, body.bytes, body.unpageable != 0);
  JobKey job = session.job->key;
  wire::Charged answer{granted ? 1u : 0u, 0, node_.ledger.promised(job, gpu),
                       node_.ledger.used(job, gpu)};
  node_.publish(*session.job);
  session.client->send(wire::Type::kCharged, packet.request, answer);
  if (!granted) return;
  leases_.memory_changed(session, gpu);
  reserve_slabs(gpu);
}

void Sessions::pin(Session& session, const Packet& packet) {
  wire::Charge body{};
  if (!packet.read(body) || !has_gpu(session, body.gpu) || body.bytes > kMaxBytes ||
      body.unpageable > 1) {
    return malformed(session, packet, "kPin: wrong size, GPU or figure");
  }
  int gpu = static_cast<int>(body.gpu);
  bool granted = true;
  if (body.unpageable != 0) {
    granted = node_.ledger.pin(session.id, gpu, body.bytes);
  } else {
    node_.ledger.unpin(session.id, gpu, body.bytes);
  }
  JobKey job = session.job->key;
  wire::Charged answer{granted ? 1u : 0u, 0, node_.ledger.promised(job, gpu),
                       node_.ledger.used(job, gpu)};
  // Who unpins does not wait for an answer; older shims do.
  if (packet.request != 0) session.client->send(wire::Type::kCharged, packet.request, answer);
  if (granted) leases_.memory_changed(session, gpu);
}

void Sessions::uncharge(Session& session, const Packet& packet) {
  wire::Charge body{};
  if (!packet.read(body) || !has_gpu(session, body.gpu) || body.unpageable > 1) {
    return malformed(session, packet, "kUncharge: wrong size or GPU");
  }
  node_.ledger.uncharge(session.id, static_cast<int>(body.gpu), body.bytes, body.unpageable != 0);
  node_.publish(*session.job);
  leases_.memory_changed(session, static_cast<int>(body.gpu));
}

void Sessions::memory_report(Session& session, const Packet& packet) {
  wire::MemoryReport body{};
  bool good = packet.read(body) && has_gpu(session, body.gpu) && body.resident_bytes <= kMaxBytes &&
              body.host_bytes <= kMaxBytes && body.unbacked_bytes <= kMaxBytes;
  if (!good) return malformed(session, packet, "kMemoryReport: wrong size, GPU or figure");
  int gpu = static_cast<int>(body.gpu);
  SessionMemory& memory = session.memory[gpu];
  if (body.resident_bytes > memory.resident) {  // perhaps a part of a prefetch that goes on
    memory.coming -= std::min(memory.coming, body.resident_bytes - memory.resident);
  }
  memory.resident = body.resident_bytes;
  memory.host = body.host_bytes;
  memory.unbacked = body.unbacked_bytes;
  memory.disk =
      std::accumulate(memory.disk_kinds.begin(), memory.disk_kinds.end(), std::uint64_t{0});
  std::copy(std::begin(body.kind_bytes), std::end(body.kind_bytes), memory.kinds.begin());
  for (std::uint64_t& bytes : memory.kinds) bytes = std::min(bytes, kMaxBytes);
  leases_.memory_changed(session, gpu);
  node_.trace->add(TraceMemory{id_text(session.job->id), session.id, session.gang, gpu,
                               memory.resident, memory.host, memory.unbacked,
                               node_.ledger.unpageable(session.id, gpu), memory.disk});
}

void Sessions::kinds(Session& session, const Packet& packet) {
  wire::Kinds body{};
  bool good = packet.read(body) && has_gpu(session, body.gpu);
  for (const auto& kind : body.kinds) {
    good = good && kind.resident_bytes <= kMaxBytes && kind.host_bytes <= kMaxBytes &&
           kind.unbacked_bytes <= kMaxBytes && kind.pinned_bytes <= kind.resident_bytes;
  }
  if (!good) return malformed(session, packet, "kKinds: wrong size, GPU or figure");
  session.memory[static_cast<int>(body.gpu)].pageable = body;
}

void Sessions::slab_request(Session& session, const Packet& packet) {
  wire::SlabRequest body{};
  bool good = packet.read(body) && body.bytes > 0 && body.bytes <= kMaxSlabBytes &&
              body.bytes % kPageBytes == 0;
  if (!good) return malformed(session, packet, "kSlabRequest: wrong size or figure");
  slab_requests_.ask(session, body.bytes, packet.request);
}

void Sessions::slab_return(Session& session, const Packet& packet) {
  wire::Slab body{};
  if (!packet.read(body)) return malformed(session, packet, "kSlabReturn: wrong size");
  if (!node_.slabs->give_back(session.id, body.id, body.bytes)) {
    return malformed(session, packet, cat("kSlabReturn: slab ", body.id, " is not this process's"));
  }
  slab_requests_.given_back(session);
}

void Sessions::disk_staging(Session& session, const Packet& packet) {
  wire::SlabRequest body{};
  const bool good =
      packet.read(body) && node_.disk != nullptr && body.bytes == node_.staging_bytes();
  if (!good) return malformed(session, packet, "kDiskStaging: wrong size or figure");
  node_.slabs->ask_staging(session.id, session.job->key, body.bytes, packet.request);
}

void Sessions::disk_report(Session& session, const Packet& packet) {
  wire::DiskReport body{};
  bool good = packet.read(body) && has_gpu(session, body.gpu);
  for (std::uint64_t bytes : body.kind_bytes) good = good && bytes <= kMaxBytes;
  if (!good) return malformed(session, packet, "kDiskReport: wrong size, GPU or figure");
  SessionMemory& memory = session.memory[static_cast<int>(body.gpu)];
  std::copy(std::begin(body.kind_bytes), std::end(body.kind_bytes), memory.disk_kinds.begin());
}

void Sessions::disk_paged(Session& session, const Packet& packet) {
  wire::DiskPaged body{};
  if (!packet.read(body) || body.is_load > 1 || body.bytes > kMaxBytes) {
    return malformed(session, packet, "kDiskPaged: wrong size or figure");
  }
  session.disk_paged[body.is_load] = body;
}

void Sessions::slabs_held(Session& session, const Packet& packet) {
  wire::SlabsHeld body{};
  if (!packet.read(body) || body.bytes > kMaxBytes || !session.awaited) {
    return malformed(session, packet, "kSlabsHeld: wrong size, figure or moment");
  }
  node_.slabs->count_held(session.id, session.job->key, body.bytes);
}

void Sessions::resume_state(Session& session, const Packet& packet) {
  wire::ResumeState body{};
  bool good = packet.read(body) && body.gpu_count >= 1 && body.gpu_count <= wire::kMaxGpus &&
              body.flags <= (wire::kResumeGateOpen | wire::kResumeOffGpu) &&
              body.charged_bytes <= kMaxBytes && body.unpageable_bytes <= body.charged_bytes &&
              body.overhead_bytes <= kMaxBytes && body.resident_bytes <= kMaxBytes &&
              body.host_bytes <= kMaxBytes;
  if (!good) return malformed(session, packet, "kResumeState: wrong size or figure");
  if (!session.awaited) return malformed(session, packet, "kResumeState: not expected");
  int gpu = node_.find_gpu(body.uuid);
  if (gpu >= 0) {
    attach(session, gpu, body.overhead_bytes);
    // What it had was promised by the manager before: it stays, even where it would not fit now.
    node_.ledger.restore(session.id, gpu, body.charged_bytes - body.unpageable_bytes,
                         body.unpageable_bytes);
    SessionMemory& memory = session.memory[gpu];
    memory.resident = body.resident_bytes;
    memory.host = body.host_bytes;
    if ((session.features & wire::kFeatureSlabsHeld) == 0) {
      // An older shim does not say what slabs it has: no less than this.
      std::uint64_t host = 0;
      for (const auto& [index, its] : session.memory) host += its.host;
      node_.slabs->count_held(session.id, session.job->key,
                              std::max(host, node_.slabs->bytes_with(session.id)));
    }
    leases_.memory_changed(session, gpu);
    session.gate_open |= (body.flags & wire::kResumeGateOpen) != 0;
    session.off_gpu |= (body.flags & wire::kResumeOffGpu) != 0;
    session.believed = std::max(session.believed, body.held);
  }
  if (session.resume_left == 0) session.resume_left = body.gpu_count;
  if (--session.resume_left == 0) resumed(session);
}

void Sessions::resumed(Session& session) {
  session.awaited = false;
  // Off the GPU for an operation that we know nothing of, or that has ended since.
  session.unsettled |= session.off_gpu && !session.away;
  node_.publish(*session.job);
  leases_.resumed(session);
}

void Sessions::paged(Session& session, const Packet& packet) {
  wire::Paged body{};
  bool good = packet.read(body) && body.is_load <= 1;
  for (std::uint64_t bytes : {body.repeated_bytes, body.unchanged_bytes, body.shared_bytes}) {
    good = good && bytes <= kMaxBytes;
  }
  if (!good) return malformed(session, packet, "kPaged: wrong size or figure");
  session.paged[body.is_load] = body;
}

void Sessions::lease_message(Session& session, const Packet& packet) {
  bool good = true;
  switch (packet.type) {
    case wire::Type::kWantLease: {
      wire::WantLease body{};
      good = packet.read(body) && !session.memory.empty();
      if (good) leases_.on_want(session, body);
      break;
    }
    case wire::Type::kLoaded: {
      wire::Loaded body{};
      good = packet.read(body) && body.moved_bytes <= kMaxBytes && body.zero_bytes <= kMaxBytes;
      if (good) leases_.on_loaded(session, body);
      break;
    }
    case wire::Type::kDrained: {
      wire::Drained body{};
      if ((good = packet.read(body))) leases_.on_drained(session, body);
      break;
    }
    case wire::Type::kNotDrained: {
      wire::NotDrained body{};
      if ((good = packet.read(body))) leases_.on_not_drained(session, body);
      break;
    }
    case wire::Type::kEvicted: {
      wire::Evicted body{};
      good = packet.read(body) && has_gpu(session, body.gpu) && body.failed <= 1 &&
             body.resident_bytes <= kMaxBytes && body.moved_bytes <= kMaxBytes &&
             body.untouched_bytes <= kMaxBytes;
      if (good) leases_.on_evicted(session, body);
      break;
    }
    case wire::Type::kPrefetched: {
      wire::Prefetched body{};
      good = packet.read(body) && has_gpu(session, body.gpu) && body.resident_bytes <= kMaxBytes &&
             body.moved_bytes <= kMaxBytes && body.zero_bytes <= kMaxBytes &&
             body.repeated_bytes <= kMaxBytes;
      if (good) leases_.on_prefetched(session, body);
      break;
    }
    case wire::Type::kActivity: {
      wire::Activity body{};
      good = packet.read(body) && body.count <= static_cast<std::uint32_t>(wire::kMaxEdges);
      if (good) leases_.on_activity(session, body);
      break;
    }
    default: {
      wire::Exclusive body{};
      if ((good = packet.read(body))) leases_.on_exclusive(session, field_text(body.reason));
      break;
    }
  }
  if (!good) {
    malformed(session, packet,
              cat("lease message ", static_cast<int>(packet.type), ": wrong size or figure"));
  }
}

}  // namespace plexrl::nodemgr
