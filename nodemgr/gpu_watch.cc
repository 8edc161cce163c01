#include "nodemgr/gpu_watch.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "nodemgr/clock.h"
#include "nodemgr/log.h"
#include "nodemgr/process_identity.h"
#include "nodemgr/sessions.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

using namespace std::chrono_literals;

constexpr auto kPause = 2s;
constexpr auto kPauseWithoutJobs = 30s;
constexpr auto kPauseToLearn = 250ms;     // while a process is new
constexpr auto kPauseForDeparted = 10ms;  // somebody may wait for the memory
constexpr int kLooksToLearn = 20;
/// While others move memory, what is shown must have stayed the same for so long: what has just
/// left is shown until the driver has freed it.
constexpr auto kStaysBesideMoves = 1s;
/// What an ended process still has after so long is not on its way out: it is in use by others.
constexpr auto kDepartsWithin = 10s;

std::uint64_t imported_bytes(const SessionMemory& memory) {
  if (!memory.pageable) return 0;
  return memory.pageable->kinds[static_cast<std::size_t>(wire::MemoryKind::kIpc)].resident_bytes;
}

}  // namespace

void GpuWatch::look() {
  for (auto& [index, gpu] : node_.gpus) {
    look_at(index, gpu);
    name_bypass(index, gpu);
  }
  usable_changed_();
  leases_.step();
  set_timer();
}

void GpuWatch::process_joined() {
  node_.loop.set_timer(kProbeTimer, boot_now() + kPauseToLearn, [this] { look(); });
}

void GpuWatch::set_timer() {
  std::chrono::nanoseconds pause = node_.jobs.empty() ? kPauseWithoutJobs : kPause;
  for (const auto& [id, session] : node_.sessions) {
    for (const auto& [gpu, memory] : session->memory) {
      if (memory.overhead == 0 && memory.looks < kLooksToLearn) pause = kPauseToLearn;
    }
  }
  for (const auto& [index, gpu] : node_.gpus) {
    if (!gpu.departed.empty()) pause = kPauseForDeparted;
  }
  node_.loop.set_timer(kProbeTimer, boot_now() + pause, [this] { look(); });
}

void GpuWatch::look_at(int index, NodeGpu& gpu) {
  std::optional<GpuUse> use = probe_.use(index);
  bool tells = use && use->knows_processes;
  see_departed(index, gpu, tells ? &*use : nullptr);
  if (!tells) return;
  gpu.knows_pids = see_sessions(index, *use);
  see_others(index, gpu, *use);
}

/// Our processes in the driver's list. False: there should be some, and none is.
bool GpuWatch::see_sessions(int index, const GpuUse& use) {
  std::map<std::int64_t, std::uint64_t> bytes;
  for (const GpuUse::Process& process : use.processes) bytes[process.pid] = process.bytes;
  bool expected = false;
  bool seen = false;
  for (auto& [id, session] : node_.sessions) {
    auto memory = session->memory.find(index);
    if (memory == session->memory.end()) continue;
    if (session->off_gpu) {  // what the driver shows of it is no measure of anything
      memory->second.driver_bytes = 0;
      continue;
    }
    expected = true;
    auto it = bytes.find(session->process.pid);
    seen |= it != bytes.end();
    learn(*session, index, it == bytes.end() ? 0 : it->second);
  }
  return seen || !expected;
}

void GpuWatch::learn(Session& session, int gpu, std::uint64_t driver_bytes) {
  SessionMemory& memory = session.memory.at(gpu);
  // What it holds is not known before it has come back to this manager, nor while its memory moves:
  // its pageable bytes would be taken for overhead.
  if (session.awaited || session.client == nullptr || leases_.moves_memory(session)) {
    memory.driver_bytes = 0;
    ++memory.looks;
    return;
  }
  const std::uint64_t accounted = node_.accounted(session, gpu);
  // Any of it may be in what is shown.
  const std::uint64_t managed =
      memory.resident + node_.ledger.unpageable(session.id, gpu) - accounted;
  // A charge comes before the memory, the report of it after.
  bool reported = memory.resident + memory.host + memory.disk + memory.unbacked ==
                  node_.ledger.pageable(session.id, gpu);
  const bool same = memory.driver_bytes == driver_bytes && memory.accounted == accounted;
  if (!same) memory.same_since = boot_now();
  // A load that finds no memory goes on until it is known who has it.
  const bool is_settled =
      !leases_.is_switching() || boot_now() - memory.same_since >= kStaysBesideMoves;
  memory.driver_bytes = driver_bytes;
  memory.accounted = accounted;
  ++memory.looks;
  if (!same || !is_settled || !reported || driver_bytes <= accounted) return;
  std::uint64_t before = memory.overhead;
  // Memory of another process of the job is the owner's charge; the driver shows it for both.
  std::uint64_t imported = imported_bytes(memory);
  std::uint64_t beside = driver_bytes - accounted - std::min(driver_bytes - accounted, imported);
  // What is beside the charges is the overhead as long as the rest can be managed memory.
  memory.overhead = std::clamp(before, beside - std::min(beside, managed), beside);
  memory.context = before == 0 ? memory.overhead : std::min(memory.context, memory.overhead);
  session.job->overhead_seen = std::max(session.job->overhead_seen, memory.overhead);
  if (memory.overhead == before) return;
  std::uint64_t booked = node_.ledger.overhead(session.id, gpu);
  node_.ledger.measured(session.id, gpu, memory.overhead);
  if (node_.ledger.overhead(session.id, gpu) != booked) {
    node_.journal_append(attach_record(node_, session, gpu));
  }
  leases_.memory_changed(session, gpu);
}

void GpuWatch::see_others(int index, NodeGpu& gpu, const GpuUse& use) {
  // Without pids the figures decide, and while something moves they differ by what is on the way.
  if (!gpu.knows_pids && leases_.is_switching()) return;
  std::set<std::int64_t> ours;
  for (const auto& [id, session] : node_.sessions) ours.insert(session->process.pid);
  std::uint64_t others = 0;
  gpu.strangers.clear();
  for (const GpuUse::Process& process : use.processes) {
    if (ours.count(process.pid) != 0 || gpu.departed.count(process.pid) != 0) continue;
    others += process.bytes;
    if (gpu.knows_pids) gpu.strangers.insert(process.pid);
  }
  if (!gpu.knows_pids) {
    // Our own would all count: nobody can use more than what is used beyond our accounts.
    std::uint64_t accounted = accounted_bytes(index) + gpu.reserved;
    others = std::min(others, use.used_bytes - std::min(use.used_bytes, accounted));
  }
  if (others == gpu.others) return;
  node_.set_others(index, others);
  leases_.gpu_changed(index);
}

void GpuWatch::openers_changed() {
  for (auto& [index, gpu] : node_.gpus) name_bypass(index, gpu);
}

void GpuWatch::name_bypass(int index, NodeGpu& gpu) {
  std::map<std::int64_t, NodeGpu::Bypass> found;
  for (const std::int64_t pid : gpu.strangers) {
    NodeGpu::Bypass& bypass = found[pid];
    bypass.has_memory = true;
    bypass.user = owner_of(static_cast<pid_t>(pid));
    bypass.command = command_of(static_cast<pid_t>(pid));
  }
  if (node_.openers) {
    const std::string file = cat("nvidia", gpu.info.minor.value_or(static_cast<unsigned>(index)));
    for (const Opener& opener : *node_.openers) {
      // What only asks the driver, as nvidia-smi does, has no need of nvidia-uvm.
      if (!opener.files.contains(file) || !opener.files.contains("nvidia-uvm")) continue;
      const bool is_ours = opener.pid == ::getpid() || is_session(opener.pid);
      if (is_ours || gpu.departed.contains(opener.pid)) continue;
      NodeGpu::Bypass& bypass = found[opener.pid];
      bypass.has_opened = true;
      bypass.user = user_name(opener.uid);
      bypass.command = opener.command;
    }
  }
  for (const auto& [pid, bypass] : found) {
    if (gpu.bypass.contains(pid)) continue;
    log_line(LogLevel::kWarning, "gpus",
             cat("a process uses a GPU without PlexRL gpu=", index, " pid=", pid, " user='",
                 bypass.user, "' command='", bypass.command,
                 "': what it has there is not shared, start it with plexrl-run"));
  }
  gpu.bypass = std::move(found);
}

bool GpuWatch::is_session(std::int64_t pid) const {
  return std::any_of(node_.sessions.begin(), node_.sessions.end(),
                     [&](const auto& entry) { return entry.second->process.pid == pid; });
}

std::uint64_t GpuWatch::accounted_bytes(int gpu) const {
  std::int64_t sum = 0;
  for (const auto& [id, gang] : leases_.state().gangs) {
    auto memory = gang.memory.find(gpu);
    if (memory != gang.memory.end()) sum += memory->second.resident + memory->second.fixed;
  }
  return static_cast<std::uint64_t>(std::max<std::int64_t>(sum, 0));
}

bool GpuWatch::is_used_by(std::int64_t pid, int gpu) const {
  return std::any_of(node_.sessions.begin(), node_.sessions.end(), [&](const auto& entry) {
    return entry.second->process.pid == pid && entry.second->memory.count(gpu) != 0;
  });
}

void GpuWatch::see_departed(int index, NodeGpu& gpu, const GpuUse* use) {
  if (gpu.departed.empty()) return;
  std::uint64_t before = gpu.departing();
  auto now = boot_now();
  for (auto it = gpu.departed.begin(); it != gpu.departed.end();) {
    auto& [pid, process] = *it;
    process.bytes = 0;
    bool shown = false;
    // After an exec the process may use the GPU again: then the figure is its new program's.
    if (use != nullptr && !is_used_by(pid, index)) {
      for (const GpuUse::Process& listed : use->processes) {
        if (listed.pid != pid) continue;
        shown = true;
        process.bytes += listed.bytes;
      }
    }
    bool late = now - process.since > kDepartsWithin;
    if (shown && late) {
      log_line(LogLevel::kWarning, "gpus",
               cat("memory of an ended process stays pid=", pid, " gpu=", index,
                   " bytes=", process.bytes, ": counting it as used by others"));
    }
    it = shown && !late ? std::next(it) : gpu.departed.erase(it);
  }
  if (gpu.departing() != before) leases_.gpu_changed(index);
}

void GpuWatch::process_ended(const Session& session) {
  bool waits = false;
  for (const auto& [index, memory] : session.memory) {
    // What the driver never showed, it will not show to be gone.
    NodeGpu& gpu = node_.gpus.at(index);
    std::optional<GpuUse> use = probe_.use(index);
    if (!use || !use->knows_processes) continue;
    gpu.departed[session.process.pid] = {boot_now(), 0};
    see_departed(index, gpu, &*use);
    leases_.gpu_changed(index);
    waits |= !gpu.departed.empty();
  }
  if (waits) set_timer();
}

}  // namespace plexrl::nodemgr
