// Device memory by job, process and kind, as the administration socket tells of it.
#include <algorithm>

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
      return "from a pool of the driver's: exported, of another kind of memory, or without virtual "
             "memory";
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
    default:
      return "the driver owns this kind of memory";
  }
}

void add_memory_rows(Json& rows, const Node& node, const Session& session, int gpu,
                     const SessionMemory& memory) {
  auto add = [&](const char* kind, std::uint64_t bytes, const char* tier, const char* pageable,
                 Json reason) {
    if (bytes == 0) return;
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
      add(kKindNames[kind], bytes.unbacked_bytes, "unbacked", "yes", nullptr);
    }
  } else {
    add("alloc", memory.resident, "hbm", "yes", nullptr);
    add("alloc", memory.host, "host", "yes", nullptr);
    add("alloc", memory.unbacked, "unbacked", "yes", nullptr);
  }
  for (int kind = 1; kind < wire::kMemoryKinds; ++kind) {
    add(kKindNames[kind], memory.kinds[static_cast<std::size_t>(kind)], "hbm", "no",
        why_not_pageable(kind));
  }
  if (memory.kinds[static_cast<std::size_t>(wire::MemoryKind::kContext)] == 0) {
    // Managed memory is not charged, so what the driver shows beside the charges has it too: that
    // much of it has its own row.
    std::uint64_t bytes = overhead_of(node, session, gpu, memory);
    if (memory.overhead != 0)
      bytes -= std::min(bytes, memory.kinds[static_cast<std::size_t>(wire::MemoryKind::kManaged)]);
    add("context", bytes, "hbm", "no",
        memory.overhead != 0 ? "the process's context and modules, as the driver shows them"
                             : "set aside for the process's context and modules");
  }
}

}  // namespace

Json memory_json(const AdminContext& context) {
  Json rows = Json::array();
  for (const auto& [id, session] : context.node.sessions) {
    for (const auto& [gpu, memory] : session->memory) {
      add_memory_rows(rows, context.node, *session, gpu, memory);
    }
  }
  return rows;
}

}  // namespace plexrl::nodemgr
