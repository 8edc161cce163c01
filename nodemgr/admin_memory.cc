// Device memory by job, process and kind, as the administration socket tells of it.
#include <algorithm>
#include <string_view>

#include "nodemgr/admin_parts.h"
#include "nodemgr/ids.h"

namespace plexrl::nodemgr {
namespace {

constexpr const char* kKindNames[wire::kMemoryKinds] = {
    "alloc",           "pool", "vmm",  "ipc",     "graph",  "managed", "array",
    "host_registered", "rdma", "nccl", "context", "module", "other"};

/// What keeps memory that passed through to the driver in HBM.
const char* why_not_pageable(int kind) {
  switch (static_cast<wire::MemoryKind>(kind)) {
    case wire::MemoryKind::kPool:
      return "from a pool of the driver's: of handles that reach other machines or jobs, of "
             "another "
             "kind of memory, or without virtual memory";
    case wire::MemoryKind::kVmm:
      return "a handle of the driver's: imported, multicast, or with properties that PlexRL can't "
             "give back";
    case wire::MemoryKind::kIpc:
      return "another process's, outside this job";
    case wire::MemoryKind::kGraph:
      return "nodes of a CUDA graph allocate it while the graph runs";
    case wire::MemoryKind::kManaged:
      return "managed memory: the driver itself moves it between host and GPU";
    case wire::MemoryKind::kArray:
      return "arrays have a layout that only the driver knows";
    case wire::MemoryKind::kHostRegistered:
      return "host memory: takes no HBM";
    case wire::MemoryKind::kOther:
      return "memory of another API (external memory), or without virtual memory management";
    default:
      return "the driver owns this kind of memory";
  }
}

/// Of its managed memory, what the driver's figure shows beside all the rest (GpuWatch::learn).
std::uint64_t managed_in_hbm(const SessionMemory& memory) {
  std::uint64_t rest = memory.accounted + memory.overhead;
  if (memory.pageable) {
    rest += memory.pageable->kinds[static_cast<int>(wire::MemoryKind::kIpc)].resident_bytes;
  }
  return memory.driver_bytes - std::min(memory.driver_bytes, rest);
}

/// Returns the bytes of its rows that are in HBM.
std::uint64_t add_memory_rows(Json& rows, const Node& node, const Session& session, int gpu,
                              const SessionMemory& memory) {
  std::uint64_t in_hbm = 0;
  const char* const fixed_tier = session.away ? "host" : "hbm";  // checkpointed by the driver
  auto add = [&](const char* kind, std::uint64_t bytes, std::string_view tier, const char* pageable,
                 Json reason) {
    if (bytes == 0) return;
    if (tier == "hbm") in_hbm += bytes;
    rows.push_back({{"job", id_text(session.job->id)},
                    {"pid", session.process.pid},
                    {"gpu", gpu},
                    {"kind", kind},
                    {"bytes", bytes},
                    {"tier", tier},
                    {"pageable", pageable},
                    {"reason", std::move(reason)}});
  };
  if (memory.pageable) {
    for (int kind = 0; kind < wire::kMemoryKinds; ++kind) {
      const auto& bytes = memory.pageable->kinds[kind];
      add(kKindNames[kind], bytes.resident_bytes - bytes.pinned_bytes, "hbm", "yes", nullptr);
      add(kKindNames[kind], bytes.pinned_bytes, "hbm", "pinned",
          field_text(memory.pageable->pinned_reason));
      add(kKindNames[kind], bytes.host_bytes, "host", "yes", nullptr);
      add(kKindNames[kind], memory.disk_kinds[static_cast<std::size_t>(kind)], "disk", "yes",
          nullptr);
      add(kKindNames[kind], bytes.unbacked_bytes, "unbacked", "yes", nullptr);
    }
  } else {
    add("alloc", memory.resident, "hbm", "yes", nullptr);
    add("alloc", memory.host, "host", "yes", nullptr);
    add("alloc", memory.unbacked, "unbacked", "yes", nullptr);
  }
  std::uint64_t grown = memory.overhead - memory.context;
  for (int kind = 1; kind < wire::kMemoryKinds; ++kind) {
    std::uint64_t bytes = memory.kinds[static_cast<std::size_t>(kind)];
    std::uint64_t on_host = 0;
    switch (static_cast<wire::MemoryKind>(kind)) {
      case wire::MemoryKind::kHostRegistered:
        on_host = bytes;
        break;
      case wire::MemoryKind::kManaged:
        on_host = bytes - std::min(bytes, managed_in_hbm(memory));
        break;
      default:
        break;
    }
    add(kKindNames[kind], bytes - on_host, fixed_tier, "no", why_not_pageable(kind));
    add(kKindNames[kind], on_host, "host", "no", why_not_pageable(kind));
  }
  if (memory.overhead == 0) {
    add("context", node.overhead_of(session, gpu), fixed_tier, "no",
        "set aside for the process's context and modules");
  } else {
    add("context", memory.context, fixed_tier, "no",
        "the process's context and modules, as the driver shows them");
    add("other", grown, fixed_tier, "no",
        "the driver's own, unexplained by charges: what it shows for the process has grown by as "
        "much "
        "(modules loaded since, stacks, buffers)");
  }
  return in_hbm;
}

/// What the driver shows for the process beside what the rows say. A figure from before memory
/// moved is no match for them.
Json process_json(const AdminContext& context, const Session& session, int gpu,
                  const SessionMemory& memory, std::uint64_t in_hbm) {
  const bool is_shown = memory.driver_bytes != 0 && !context.leases.moves_memory(session) &&
                        memory.accounted == context.node.accounted(session, gpu);
  return {{"job", id_text(session.job->id)},
          {"pid", session.process.pid},
          {"gpu", gpu},
          {"driver_bytes", is_shown ? Json(memory.driver_bytes) : Json(nullptr)},
          {"accounted_bytes", in_hbm}};
}

}  // namespace

void add_memory(Json& json, const AdminContext& context) {
  json["memory"] = Json::array();
  json["processes"] = Json::array();
  for (const auto& [id, session] : context.node.sessions) {
    for (const auto& [gpu, memory] : session->memory) {
      std::uint64_t in_hbm = add_memory_rows(json["memory"], context.node, *session, gpu, memory);
      json["processes"].push_back(process_json(context, *session, gpu, memory, in_hbm));
    }
  }
}

}  // namespace plexrl::nodemgr
