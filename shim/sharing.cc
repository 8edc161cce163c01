#include "shim/sharing.h"

#include <algorithm>

#include "interpose/driver.h"
#include "shim/boottime.h"
#include "shim/driver_scope.h"
#include "shim/fault_points.h"
#include "shim/gate.h"
#include "shim/log.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "sharing";
/// A question that got no answer is asked again: the owner may have had to drop it.
constexpr std::uint64_t kAskAgainNs = 100'000'000;

void say_lost(std::size_t bytes) {
  log_user(
      "%zu bytes of memory of another process are lost: it died before this one had them. To use "
      "them is an error",
      bytes);
}

}  // namespace

Sharing::Sharing(Parts parts) : parts_(parts) {
  parts_.pager.set_on_parked([this](std::uint64_t id, std::size_t chunk, const HostSpan& span) {
    wire::Parked parked{};
    parked.id = id;
    parked.chunk = static_cast<std::uint32_t>(chunk);
    if (span) {
      parked.slab = span.slab->id;
      parked.slab_bytes = span.slab->bytes;
      parked.offset = static_cast<std::uint64_t>(span.address - span.slab->address);
    }
    parts_.client.connection().send(wire::Type::kParked, parked);
  });
}

// ---- offering

std::optional<Capability> Sharing::offer(std::uint64_t range) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, offered] : offered_) {
      if (offered.range != range || offered.is_ended) continue;
      return Capability{Capability::kMagic, id, offered.what.tag, 0, offered.what.bytes, {}};
    }
    // Memory of another process is passed on by its owner's name: whoever has it from us must hear
    // of the owner what becomes of it.
    for (const auto& [id, import] : imports_) {
      if (import.range != range || import.is_own) continue;
      return Capability{Capability::kMagic, id, import.name.tag, 0, import.bytes, {}};
    }
  }
  const auto layout = parts_.ranges.layout(range);
  const auto attached = layout ? parts_.devices.find(layout->device) : std::nullopt;
  if (!attached) return std::nullopt;
  wire::Export what{};
  what.gpu = attached->gpu;
  what.chunks = static_cast<std::uint32_t>(layout->chunks);
  what.bytes = layout->bytes;
  what.chunk_bytes = layout->chunk_bytes;
  const auto answer = parts_.client.ask(wire::Type::kExport, what);
  if (answer == nullptr || answer->type != wire::Type::kExported) return std::nullopt;
  const auto* const exported = answer->as<wire::Exported>();
  if (exported == nullptr || exported->id == 0) return std::nullopt;
  PLEXRL_FAULT_POINT("export.named");
  what.id = exported->id;
  what.tag = exported->tag;
  {
    const std::lock_guard lock(mutex_);
    offered_[what.id] = {range, what, false};
  }
  parts_.ranges.set_export(range, what.id);
  return Capability{Capability::kMagic, what.id, what.tag, 0, what.bytes, {}};
}

std::optional<std::uint64_t> Sharing::own_range(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto it = offered_.find(id);
  if (it == offered_.end() || it->second.is_ended) return std::nullopt;
  return it->second.range;
}

bool Sharing::still_shared(std::uint64_t range) {
  std::vector<std::uint64_t> ids;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, offered] : offered_) {
      if (offered.range != range) continue;
      if (offered.is_ended) return true;  // kExportUnused is still to come
      ids.push_back(id);
    }
  }
  bool is_shared = false;
  for (const std::uint64_t id : ids) {
    {
      const std::lock_guard lock(mutex_);
      offered_.at(id).is_ended = true;
    }
    const auto answer = parts_.client.ask(wire::Type::kExportEnded, wire::ExportRef{id});
    // Without a manager nobody can say; what stays costs memory, what goes may cost bytes.
    if (answer == nullptr || answer->type == wire::Type::kExportEnded) {
      is_shared = true;
      continue;
    }
    const std::lock_guard lock(mutex_);
    offered_.erase(id);
  }
  return is_shared;
}

// ---- importing

std::optional<CUdevice> Sharing::device_with(const wire::GpuUuid& uuid) {
  int count = 0;
  if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS) return std::nullopt;
  for (CUdevice device = 0; device < count; ++device) {
    CUuuid found{};
    if (driver.cuDeviceGetUuid_v2(&found, device) != CUDA_SUCCESS &&
        driver.cuDeviceGetUuid(&found, device) != CUDA_SUCCESS) {
      continue;
    }
    if (std::equal(std::begin(uuid.bytes), std::end(uuid.bytes),
                   reinterpret_cast<const std::uint8_t*>(found.bytes))) {
      return device;
    }
  }
  return std::nullopt;
}

CUresult Sharing::import(const Capability& capability, CUdevice access, Imported* out) {
  {
    const std::lock_guard lock(mutex_);
    const auto it = imports_.find(capability.id);
    if (it != imports_.end()) {
      ++it->second.uses;
      *out = {it->second.range, it->second.device, it->second.bytes};
      return CUDA_SUCCESS;
    }
  }
  const wire::Import name{capability.id, capability.tag};
  const auto answer = parts_.client.ask(wire::Type::kImport, name);
  const auto* const imported = answer != nullptr && answer->type == wire::Type::kImported
                                   ? answer->as<wire::Imported>()
                                   : nullptr;
  if (imported == nullptr) {
    PLEXRL_WARN(kFile,
                "memory id=%lu can't be opened: it has been freed or is another job's (which its "
                "plexrl-run can export to all, with --export=real)",
                static_cast<unsigned long>(capability.id));
    return CUDA_ERROR_INVALID_VALUE;
  }
  PLEXRL_FAULT_POINT("import.known");
  const auto device = device_with(imported->uuid);
  if (!device || parts_.devices.attach(*device) != Devices::Attach::kAttached) {
    parts_.client.connection().send(wire::Type::kImportClosed, wire::ExportRef{name.id});
    return CUDA_ERROR_INVALID_DEVICE;
  }
  std::vector<CUmemAccessDesc> more;
  if (access != CU_DEVICE_INVALID && access != *device) {
    more.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, {access}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  Range* range = nullptr;
  const CUresult result =
      parts_.ranges.reserve_import(*device, imported->bytes, imported->chunk_bytes, more, &range);
  if (result != CUDA_SUCCESS) {
    parts_.client.connection().send(wire::Type::kImportClosed, wire::ExportRef{name.id});
    return result;
  }
  *out = {range->start, *device, imported->bytes};
  {
    const std::lock_guard lock(mutex_);
    Import& entry = imports_[name.id];
    if (entry.uses++ == 0) {
      entry.range = out->range;
      entry.name = name;
      entry.device = *device;
      entry.bytes = out->bytes;
      range = nullptr;
    } else {
      *out = {entry.range, entry.device, entry.bytes};  // another thread was first
    }
  }
  if (range != nullptr) {
    std::size_t freed = 0;
    if (auto unused = parts_.ranges.remove(range->start, &freed)) {
      parts_.pager.release(std::move(unused));
    }
  }
  // The range is in the table: a gate that is closed opens only when it is mapped.
  if (const auto inside = InsideGate::if_open()) gate.close();
  parts_.memory_missing();
  return CUDA_SUCCESS;
}

void Sharing::close(std::uint64_t range) {
  Import closed;
  {
    const std::lock_guard lock(mutex_);
    const auto it = std::find_if(imports_.begin(), imports_.end(),
                                 [&](const auto& one) { return one.second.range == range; });
    if (it == imports_.end() || --it->second.uses != 0) return;
    closed = it->second;
    imports_.erase(it);
  }
  if (closed.is_own) return parts_.memory.drop_range(range, closed.device);
  std::size_t freed = 0;
  if (auto removed = parts_.ranges.remove(range, &freed)) {
    parts_.pager.release(std::move(removed));
  }
  parts_.client.connection().send(wire::Type::kImportClosed, wire::ExportRef{closed.name.id});
}

// ---- agent

void Sharing::handle(Packet& packet) {
  switch (packet.type) {
    case wire::Type::kFetchHandles:
      if (const auto* fetch = packet.as<wire::Handles>()) on_fetch(*fetch);
      break;
    case wire::Type::kHandles:
      if (const auto* handles = packet.as<wire::Handles>()) on_handles(packet, *handles);
      break;
    case wire::Type::kParked:
      if (const auto* parked = packet.as<wire::Parked>()) on_parked(packet, *parked);
      break;
    case wire::Type::kOwnerGone:
      if (const auto* gone = packet.as<wire::OwnerGone>()) on_owner_gone(*gone);
      break;
    case wire::Type::kExportUnused:
      if (const auto* unused = packet.as<wire::ExportRef>()) on_unused(unused->id);
      break;
    case wire::Type::kOwnerBack:
      if (const auto* back = packet.as<wire::ExportRef>()) on_owner_back(back->id);
      break;
    case wire::Type::kSharesTold:
      on_all_told();
      break;
    default:
      break;
  }
}

std::uint64_t Sharing::step(bool has_lease) {
  has_lease_ = has_lease;
  if (!has_lease) {
    // Whoever asks again when both have the lease again will be answered then.
    to_serve_.clear();
    return ~std::uint64_t{0};
  }
  std::erase_if(to_serve_, [this](const wire::Handles& fetch) { return serve(fetch); });
  struct Due {
    std::uint64_t id, range;
    wire::Import name;
    bool is_again;
  };
  std::vector<Due> all_due;
  const std::uint64_t now = boottime_ns();
  std::uint64_t again = ~std::uint64_t{0};
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, import] : imports_) {
      if (import.is_own) continue;
      const std::uint64_t since = now - import.asked_ns;
      if (import.asked_ns != 0 && since < kAskAgainNs) {
        again = std::min(again, kAskAgainNs - since);
        continue;
      }
      all_due.push_back({id, import.range, import.name, import.asked_ns != 0});
    }
  }
  for (const Due& due : all_due) {
    const auto missing = parts_.ranges.unbacked_run(due.range, wire::kMaxPacketFds);
    {
      const std::lock_guard lock(mutex_);
      const auto it = imports_.find(due.id);
      if (it != imports_.end()) it->second.asked_ns = missing ? now : 0;
    }
    if (!missing) continue;
    // A manager that was restarted may not know of the import.
    if (due.is_again) parts_.client.connection().send(wire::Type::kImport, due.name);
    parts_.client.connection().send(
        wire::Type::kFetchHandles,
        wire::Handles{due.id, 0, static_cast<std::uint32_t>(missing->first),
                      static_cast<std::uint32_t>(missing->second)});
    again = std::min(again, kAskAgainNs);
  }
  return to_serve_.empty() ? again : std::min(again, std::uint64_t{1'000'000});
}

void Sharing::on_fetch(const wire::Handles& fetch) {
  // Whoever asks again has one question, however long the memory takes to come in.
  std::erase_if(to_serve_, [&](const wire::Handles& earlier) {
    return earlier.id == fetch.id && earlier.importer == fetch.importer;
  });
  to_serve_.push_back(fetch);
}

/// True: nothing more to do about it.
bool Sharing::serve(const wire::Handles& fetch) {
  std::uint64_t range = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto it = offered_.find(fetch.id);
    if (it == offered_.end()) return true;
    range = it->second.range;
  }
  const auto layout = parts_.ranges.layout(range);
  if (!layout) return true;
  std::vector<ScopedFd> fds;
  std::vector<std::size_t> lost;
  wire::Handles part = fetch;  // the first chunks of those asked for that are next to each other
  part.count = 0;
  const CUresult result = parts_.pager.with_chunks(
      range,
      [&](std::size_t offset, std::size_t, CUmemGenericAllocationHandle handle) {
        const auto chunk = static_cast<std::uint32_t>(offset / layout->chunk_bytes);
        if (chunk < fetch.first || chunk >= fetch.first + fetch.count) return CUDA_SUCCESS;
        if (part.count == 0) part.first = chunk;
        if (chunk != part.first + part.count) return CUDA_SUCCESS;  // it is asked for next
        int fd = -1;
        const RelaxedCapture relaxed;
        const CUresult exported = driver.cuMemExportToShareableHandle(
            &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        if (exported != CUDA_SUCCESS) return exported;
        fds.emplace_back(fd);
        ++part.count;
        return CUDA_SUCCESS;
      },
      false, &lost);
  if (result == CUDA_ERROR_NOT_READY) return false;  // it is still being loaded
  if (result != CUDA_SUCCESS) {
    PLEXRL_WARN(kFile, "can't hand out memory id=%lu result=%d, it will be asked for again",
                static_cast<unsigned long>(fetch.id), static_cast<int>(result));
    return true;
  }
  // Whoever imports it now has not been told before.
  for (const std::size_t chunk : lost) {
    if (chunk >= fetch.first && chunk < fetch.first + fetch.count) tell_lost(fetch.id, chunk);
  }
  if (part.count == 0) return true;
  PLEXRL_FAULT_POINT("export.handed_out");
  int raw[wire::kMaxPacketFds] = {};
  for (std::size_t i = 0; i < fds.size(); ++i) raw[i] = fds[i].get();
  parts_.client.connection().send_with_fds(wire::Type::kHandles, &part, sizeof part, raw,
                                           fds.size());
  return true;
}

void Sharing::tell_lost(std::uint64_t id, std::size_t chunk) {
  wire::Parked parked{};
  parked.id = id;
  parked.chunk = static_cast<std::uint32_t>(chunk);
  parked.is_lost = 1;
  parts_.client.connection().send(wire::Type::kParked, parked);
}

void Sharing::on_handles(Packet& packet, const wire::Handles& handles) {
  std::uint64_t range = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto it = imports_.find(handles.id);
    if (it == imports_.end() || it->second.is_own) return;
    it->second.asked_ns = 0;
    range = it->second.range;
  }
  // Without a lease nobody needs them now, and they might be late.
  if (!has_lease_ || handles.count > packet.fds.size()) return;
  for (std::uint32_t i = 0; i < handles.count; ++i) {
    if (!packet.fds[i].valid()) continue;
    const auto claim = parts_.ranges.claim_one(range, handles.first + i);
    if (claim && parts_.pager.map_imported(*claim, packet.fds[i].get())) {
      PLEXRL_FAULT_POINT("import.mapped");
    }
  }
}

void Sharing::on_unused(std::uint64_t id) {
  std::uint64_t range = 0;
  CUdevice device = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto it = offered_.find(id);
    if (it == offered_.end() || !it->second.is_ended) return;
    range = it->second.range;
    offered_.erase(it);
  }
  if (const auto layout = parts_.ranges.layout(range)) {
    device = layout->device;
    parts_.memory.drop_range(range, device);
  }
}

void Sharing::on_parked(Packet& packet, const wire::Parked& parked) {
  SlabSource::Slab slab;
  slab.id = parked.slab;
  slab.bytes = parked.slab_bytes;
  slab.fd = std::move(packet.fds[0]);
  std::uint64_t range = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto it = imports_.find(parked.id);
    if (it == imports_.end()) return;
    range = it->second.range;
    // Perhaps it was the answer, and others are missing.
    if (parked.is_lost != 0) it->second.asked_ns = 0;
  }
  const auto layout = parts_.ranges.layout(range);
  if (!layout || parked.chunk >= layout->chunks) return;
  if (parked.is_lost != 0) {
    if (const auto claim = parts_.ranges.claim_one(range, parked.chunk)) {
      say_lost(claim->bytes());
      parts_.pager.give_up(*claim);
    }
    return;
  }
  if (!slab.fd.valid()) {  // else it is the heir of a dead owner that is told
    parts_.ranges.note_known(range, parked.chunk);
    return parts_.pager.unmap_imported(range, parked.chunk, 1);
  }
  const std::size_t at = parked.chunk * layout->chunk_bytes;
  const std::size_t bytes = std::min(layout->chunk_bytes, layout->bytes - at);
  if (parked.offset > slab.bytes || bytes > slab.bytes - parked.offset) return;
  HostSlab* const adopted = parts_.store.adopt(std::move(slab));
  if (adopted == nullptr) return;
  parked_[parked.id][parked.chunk] = {adopted, adopted->address + parked.offset, bytes};
}

void Sharing::on_owner_gone(const wire::OwnerGone& gone) {
  const auto parked = std::exchange(parked_[gone.id], {});
  parked_.erase(gone.id);
  Import import;
  {
    const std::lock_guard lock(mutex_);
    const auto it = imports_.find(gone.id);
    if (it == imports_.end()) return;
    it->second.asked_ns = 0;
    import = it->second;
  }
  if (gone.is_heir == 0) {
    // While the gate is open all of it is mapped and stays so; otherwise the heir has it afresh.
    const auto all = parts_.ranges.layout(import.range);
    if (all && !gate.is_open()) parts_.pager.unmap_imported(import.range, 0, all->chunks);
    parts_.ranges.forget_known(import.range);
    parts_.ranges.set_unsure(import.range, false);
    return;
  }
  if (import.is_own || (gone.rest_is_lost != 0 && !can_inherit(import))) return;
  {
    const std::lock_guard lock(mutex_);
    const auto it = imports_.find(gone.id);
    if (it == imports_.end()) return;  // closed meanwhile
    it->second.is_own = true;
  }
  PLEXRL_INFO(kFile, "inherited memory id=%lu bytes=%zu", static_cast<unsigned long>(gone.id),
              import.bytes);
  const auto layout = parts_.ranges.layout(import.range);
  if (!layout) return;
  wire::Export what{};
  what.id = gone.id;
  what.tag = import.name.tag;
  what.chunks = static_cast<std::uint32_t>(layout->chunks);
  what.bytes = layout->bytes;
  what.chunk_bytes = layout->chunk_bytes;
  if (const auto attached = parts_.devices.find(import.device)) what.gpu = attached->gpu;
  // It was in the promise as the dead one's; the manager says no only if others were faster, and
  // then the memory is there all the same.
  parts_.devices.charge_taken(import.device, import.bytes, false);
  const std::vector<std::size_t> lost = parts_.pager.adopt(import.range, parked);
  for (const std::size_t chunk : lost) {
    say_lost(std::min(layout->chunk_bytes, layout->bytes - chunk * layout->chunk_bytes));
    tell_lost(gone.id, chunk);
  }
  parts_.ranges.set_export(import.range, gone.id);
  {
    const std::lock_guard lock(mutex_);
    offered_[gone.id] = {import.range, what, false};
  }
  parts_.ranges.set_unsure(import.range, false);
  if (gone.rest_is_lost != 0) parts_.client.connection().send(wire::Type::kExport, what);
}

void Sharing::connected(bool at_rest) {
  std::vector<wire::Export> offered;
  std::vector<wire::Import> imports;
  std::vector<std::uint64_t> ranges;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, one] : offered_) offered.push_back(one.what);
    for (auto& [id, one] : imports_) {
      one.asked_ns = 0;
      if (one.is_own) continue;
      imports.push_back(one.name);
      if (at_rest) ranges.push_back(one.range);
    }
  }
  for (const std::uint64_t range : ranges) parts_.ranges.set_unsure(range, true);
  for (const wire::Export& what : offered) {
    parts_.client.connection().send(wire::Type::kExport, what);
  }
  for (const wire::Import& name : imports) {
    parts_.client.connection().send(wire::Type::kImport, name);
  }
  parts_.client.connection().send(wire::Type::kSharesTold, nullptr, 0, 0);
}

void Sharing::on_owner_back(std::uint64_t id) {
  std::uint64_t range = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto it = imports_.find(id);
    if (it == imports_.end() || it->second.is_own) return;
    it->second.asked_ns = 0;
    range = it->second.range;
  }
  if (!parts_.ranges.is_unsure(range)) return;
  if (const auto layout = parts_.ranges.layout(range)) {
    parts_.pager.unmap_imported(range, 0, layout->chunks);
  }
  parts_.ranges.forget_known(range);
  parts_.ranges.set_unsure(range, false);
}

/// What the job has freed meanwhile could not be said to end before all importers had come back.
void Sharing::on_all_told() {
  std::vector<std::uint64_t> ended;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, one] : offered_) {
      if (one.is_ended) ended.push_back(id);
    }
  }
  for (const std::uint64_t id : ended) {
    parts_.client.connection().send(wire::Type::kExportEnded, wire::ExportRef{id});
  }
}

bool Sharing::can_inherit(const Import& import) {
  const std::size_t lost = parts_.ranges.give_up(import.range);
  if (lost == 0) return true;
  parts_.ranges.set_unsure(import.range, false);
  say_lost(lost);
  parts_.client.connection().send(wire::Type::kImportClosed, wire::ExportRef{import.name.id});
  return false;
}

}  // namespace plexrl::shim
