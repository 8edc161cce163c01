#include "nodemgr/node.h"

#include <algorithm>
#include <atomic>

#include "nodemgr/host_memory.h"
#include "nodemgr/ids.h"
#include "nodemgr/log.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

void store(std::uint64_t& word, std::uint64_t value) {
  // Relaxed: each word stands for itself; the client reads single words.
  std::atomic_ref<std::uint64_t>(word).store(value, std::memory_order_relaxed);
}

}  // namespace

Job* Node::find_job(const wire::Id128& id) const {
  for (auto& [key, job] : jobs) {
    if (job->id == id) return job.get();
  }
  return nullptr;
}

Session* Node::find_session(SessionKey id) {
  auto it = sessions.find(id);
  return it == sessions.end() ? nullptr : it->second.get();
}

int Node::find_gpu(const wire::GpuUuid& uuid) const {
  for (const auto& [index, gpu] : gpus) {
    if (gpu.info.uuid == uuid) return index;
  }
  return -1;
}

std::uint64_t Node::all_gpus() const {
  std::uint64_t mask = 0;
  for (const auto& [index, gpu] : gpus) mask |= std::uint64_t{1} << index;
  return mask;
}

std::uint64_t Node::overhead_of(const Session& session, int gpu) const {
  auto memory = session.memory.find(gpu);
  const bool is_known = memory != session.memory.end() && memory->second.overhead != 0;
  return is_known ? memory->second.overhead : ledger.overhead(session.id, gpu);
}

std::uint64_t Node::accounted(const Session& session, int gpu) const {
  const SessionMemory& memory = session.memory.at(gpu);
  const std::uint64_t unpageable = ledger.unpageable(session.id, gpu);
  const std::uint64_t managed = memory.kinds[static_cast<std::size_t>(wire::MemoryKind::kManaged)];
  return memory.resident + unpageable - std::min(managed, unpageable);
}

std::uint64_t Node::room_of(const Session& session, int gpu) const {
  return ledger.holds_promises(gpu) ? ledger.overhead(session.id, gpu) : overhead_of(session, gpu);
}

void Node::journal_append(const JournalRecord& record) {
  if (journal == nullptr) return;
  absl::Status status = journal->append(record);
  if (!status.ok() && !journal_failed) {
    log_line(LogLevel::kWarning, "journal",
             cat(message_of(status), ": going on; after a crash jobs may have to be restarted"));
    trace->add(TraceError{"", 0, "journal_failed", message_of(status)});
  }
  journal_failed = !status.ok();
}

void Node::account(const Job& job) {
  if (accounts == nullptr || !job.admitted) return;
  accounts->book({id_text(job.id), job.name, job.user, job.team}, usage.totals(job.key, boot_now()),
                 wall_now_ns() / 1'000'000'000);
}

void Node::keep_accounts() {
  if (accounts == nullptr) return;
  for (const auto& [key, job] : jobs) account(*job);
  const absl::Status status = accounts->write();
  if (!status.ok() && accounts_problem.empty()) {
    log_line(LogLevel::kWarning, "accounts",
             cat(message_of(status), ": what jobs use is kept in memory until it can be written"));
  }
  accounts_problem = status.ok() ? "" : message_of(status);
}

void Node::publish(const Job& job) {
  for (const auto& [index, gpu] : gpus) {
    std::uint64_t promised = ledger.promised(job.key, index);
    std::uint64_t used = ledger.used(job.key, index);
    for (SessionKey id : job.sessions) {
      Session* session = find_session(id);
      if (session == nullptr || session->control.data() == nullptr) continue;
      auto* page = static_cast<wire::ControlPage*>(session->control.data());
      store(page->gpus[index].promised_bytes, promised);
      store(page->gpus[index].used_bytes, used);
    }
  }
}

void Node::publish_may_leave(const Session& session) {
  auto* page = static_cast<wire::ControlPage*>(session.control.data());
  if (page == nullptr) return;
  std::uint64_t sum = 0;
  for (auto [gpu, bytes] : session.may_leave) sum += bytes;
  store(page->may_leave_bytes, sum);
}

void Node::set_staging_aside() {
  if (disk == nullptr || slabs == nullptr) return;
  std::uint64_t count = 0;
  for (const auto& [id, session] : sessions) count += session->has_brought_staging ? 0 : 1;
  slabs->set_aside(count * staging_bytes());
}

void Node::look_outside() {
  const std::uint64_t in_use =
      (slabs != nullptr ? slabs->bytes_in_use() : 0) + ledger.away_in_host();
  ledger.set_host_has(in_use + host_bytes_left());
  if (disk != nullptr) ledger.set_disk(disk->usable(), staging_bytes());
}

void Node::set_others(int index, std::uint64_t others) {
  NodeGpu& gpu = gpus.at(index);
  gpu.others = others;
  std::uint64_t budget = options.gpu_memory != 0
                             ? std::min(options.gpu_memory, gpu.info.total_bytes)
                             : gpu.info.total_bytes;
  auto usable_besides = [&](std::uint64_t used) {
    std::uint64_t taken = std::min(gpu.info.total_bytes, used + gpu.reserved);
    std::uint64_t usable = std::min(budget, gpu.info.total_bytes - taken);
    return usable - std::min(usable, reserve_bytes);
  };
  gpu.usable = usable_besides(others);
  ledger.set_gpu(index, gpu.usable, gpu.overhead, gpu.others, usable_besides(0));
}

}  // namespace plexrl::nodemgr
