#include "nodemgr/ledger.h"

#include <algorithm>
#include <optional>

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/values.h"

namespace plexrl::nodemgr {
namespace {

/// Processes that a promise of "what is usable" leaves room for on each GPU, its own included.
constexpr std::uint64_t kProcessesForeseen = 3;

std::uint64_t less(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

std::string size(std::uint64_t bytes) { return settings::format_bytes(bytes); }

}  // namespace

void Ledger::set_gpu(int gpu, std::uint64_t usable, std::uint64_t overhead, std::uint64_t others,
                     std::uint64_t most) {
  gpus_[gpu].others = others;
  gpus_[gpu].most = std::max(most, usable);
  gpus_[gpu].usable = usable;
  gpus_[gpu].overhead = overhead;
}

std::uint64_t Ledger::expected(const Gpu& gpu, JobKey job) const {
  auto it = jobs_.find(job);
  return it == jobs_.end() || it->second.overhead == 0 ? gpu.overhead : it->second.overhead;
}

std::uint64_t Ledger::booked(const Gpu& gpu, const Account& account) const {
  std::uint64_t before = account.overhead != 0 ? account.overhead : expected(gpu, account.job);
  return std::max(before, account.measured);
}

std::uint64_t Ledger::overheads(const Gpu& gpu, int index) const {
  std::uint64_t sum = 0;
  std::set<JobKey> present;
  for (const auto& [session, account] : gpu.accounts) {
    if (account.place != Place::kAway) sum += booked(gpu, account);
    present.insert(account.job);
  }
  // A job whose processes are still to come will have one at least.
  for (const auto& [key, job] : jobs_) {
    if ((job.gpus >> index & 1) != 0 && present.count(key) == 0) sum += expected(gpu, key);
  }
  return sum;
}

std::uint64_t Ledger::unpageable_in_hbm(const Account& account) {
  return account.place == Place::kAway ? 0 : account.unpageable;
}

std::uint64_t Ledger::unpageable_of(const Gpu& gpu, JobKey job) const {
  std::uint64_t sum = 0;
  for (const auto& [session, account] : gpu.accounts) {
    if (account.job == job) sum += unpageable_in_hbm(account);
  }
  return sum;
}

/// Of checkpointed processes, with their pageable memory, which the promises of others may not
/// count on to be in HBM: rather too much than too little.
std::uint64_t Ledger::held_in_host() const {
  std::uint64_t sum = 0;
  for (const auto& [index, gpu] : gpus_) {
    for (const auto& [session, account] : gpu.accounts) {
      if (account.place == Place::kHere) continue;
      sum += booked(gpu, account) + account.unpageable + account.pageable;
    }
  }
  return sum;
}

std::uint64_t Ledger::fixed_in_host() const {
  std::uint64_t sum = 0;
  for (const auto& [index, gpu] : gpus_) {
    for (const auto& [session, account] : gpu.accounts) {
      if (account.place != Place::kHere) sum += booked(gpu, account) + account.unpageable;
    }
  }
  return sum;
}

std::uint64_t Ledger::away_in_host() const {
  std::uint64_t sum = 0;
  for (const auto& [index, gpu] : gpus_) {
    for (const auto& [session, account] : gpu.accounts) {
      if (account.place == Place::kAway) sum += booked(gpu, account) + account.unpageable;
    }
  }
  return sum;
}

std::uint64_t Ledger::staging(std::uint64_t more) const {
  if (staging_each_ == 0) return 0;
  std::set<SessionKey> processes;
  std::set<JobKey> present;
  for (const auto& [index, gpu] : gpus_) {
    for (const auto& [session, account] : gpu.accounts) {
      processes.insert(session);
      present.insert(account.job);
    }
  }
  std::uint64_t count = processes.size() + more;
  for (const auto& [key, job] : jobs_) count += present.count(key) == 0 ? 1 : 0;
  return count * staging_each_;
}

bool Ledger::has_room_outside(std::uint64_t bytes, std::uint64_t more) const {
  const std::uint64_t staged = staging(more);
  return staged <= host_room() && bytes <= host_room() - staged + disk_;
}

void Ledger::place(const std::set<SessionKey>& sessions, Place place) {
  for (auto& [index, gpu] : gpus_) {
    for (auto& [session, account] : gpu.accounts) {
      if (sessions.count(session) != 0) account.place = place;
    }
  }
}

bool Ledger::can_leave(const std::set<SessionKey>& sessions) const {
  Ledger then = *this;
  then.place(sessions, Place::kLeaving);
  // What the driver takes off a GPU does not go to disk.
  const std::uint64_t fixed = then.fixed_in_host() + staging(0);
  return then.has_room_outside(then.host_needed(), 0) && (disk_ == 0 || fixed <= host_room());
}

bool Ledger::can_return(const std::set<SessionKey>& sessions) const {
  Ledger then = *this;
  then.place(sessions, Place::kHere);
  for (const auto& [index, gpu] : then.gpus_) {
    const auto is_theirs = [&](const auto& entry) { return sessions.count(entry.first) != 0; };
    if (std::none_of(gpu.accounts.begin(), gpu.accounts.end(), is_theirs)) continue;
    // As if a job of nobody's took nothing more: all others' promises are checked.
    if (!then.leaves_promises_good(gpu, index, JobKey{0}, 0)) return false;
  }
  return true;
}

std::uint64_t Ledger::host_needed_on(const Gpu& gpu, int index, std::uint64_t more) const {
  std::uint64_t all = overheads(gpu, index) + more;
  for (const auto& [key, job] : jobs_) {
    if ((job.gpus >> index & 1) != 0) all += job.promised;
  }
  return less(all, gpu.usable);
}

std::uint64_t Ledger::host_needed() const {
  std::uint64_t sum = held_in_host();
  for (const auto& [index, gpu] : gpus_) sum += host_needed_on(gpu, index, 0);
  return sum;
}

Admission Ledger::judge_gpu(int index, const Gpu& gpu, std::uint64_t wanted,
                            std::uint64_t own) const {
  Admission result;
  if (own == 0) own = gpu.overhead;
  std::uint64_t overhead = overheads(gpu, index) + own;
  std::uint64_t fixed = 0;
  for (const auto& [session, account] : gpu.accounts) fixed += unpageable_in_hbm(account);
  std::uint64_t room = less(gpu.usable, overhead + fixed);
  std::uint64_t usual = less(gpu.usable, own + (kProcessesForeseen - 1) * gpu.overhead);
  result.promised = wanted != 0 ? wanted : std::min(usual, room);
  // Who names no figure takes what is left, unless that is a small part of a GPU.
  result.needed = wanted != 0 ? wanted : std::max<std::uint64_t>(1, usual / 2);
  result.available = room;
  result.fits = result.promised >= result.needed && result.promised <= room;
  if (wanted > less(gpu.most, own)) {
    result.never = true;
    result.text = cat("GPU ", index, " has ", size(gpu.most), " for jobs, ", size(own),
                      " of it for the process itself; the job asks for ", size(wanted),
                      ", which will never fit: lower --memory");
    return result;
  }
  if (!result.fits) {
    std::string others =
        gpu.others == 0 ? ""
                        : cat(", besides ", size(gpu.others), " used by processes outside PlexRL");
    result.text =
        cat("GPU ", index, ": the job needs ", size(result.needed), ", ", size(room), " of ",
            size(gpu.usable), " are left (", size(overhead), " for processes, ", size(fixed),
            " that can't be paged", others, "): lower --memory or wait for others to end");
    return result;
  }
  for (const auto& [key, job] : jobs_) {
    if ((job.gpus >> index & 1) == 0) continue;
    std::uint64_t others = fixed - unpageable_of(gpu, key);
    if (job.promised + overhead + others <= gpu.usable) continue;
    result.fits = false;
    result.needed = job.promised + overhead + others;
    result.available = gpu.usable;
    result.text = cat("GPU ", index, ": a job has been promised ", size(job.promised),
                      ", with one more process ", size(result.needed), " of ", size(gpu.usable),
                      " would be needed: start jobs with a lower --memory, or wait for one to end");
    return result;
  }
  return result;
}

Admission Ledger::judge(std::uint64_t gpus, std::uint64_t wanted, std::uint64_t overhead) const {
  Admission least;
  least.promised = ~std::uint64_t{0};
  std::uint64_t known = 0;
  std::optional<Admission> unfit;
  for (const auto& [index, gpu] : gpus_) {
    known |= std::uint64_t{1} << index;
    if ((gpus >> index & 1) == 0) continue;
    Admission here = judge_gpu(index, gpu, wanted, overhead);
    if (here.never) return here;
    if (!here.fits && !unfit) unfit = here;
    if (here.promised < least.promised) least = here;
  }
  if ((gpus & known) == 0 || (gpus & ~known) != 0) {
    least = Admission{};
    least.never = true;
    least.text = "the job asks for GPUs that this node does not have";
    return least;
  }
  if (unfit) return *unfit;
  std::uint64_t host = held_in_host();
  for (const auto& [index, gpu] : gpus_) {
    const std::uint64_t own = overhead != 0 ? overhead : gpu.overhead;
    bool asked = (gpus >> index & 1) != 0;
    host += host_needed_on(gpu, index, asked ? least.promised + own : 0);
  }
  if (!has_room_outside(host, 1)) {
    least.fits = false;
    least.needed = host;
    least.available = less(host_room(), staging(1)) + disk_;
    const bool is_short = host_has_ < host_budget_;
    const std::string remedy = is_short ? ": free memory of this machine or of the manager's cgroup"
                                        : ": raise [host] budget";
    const std::string room =
        is_short ? cat("no more than ", size(host_has_),
                       " of host memory are to be had now (budget ", size(host_budget_), ")")
                 : cat("the budget of host memory is ", size(host_budget_));
    least.text = staging_each_ != 0
                     ? cat("host memory and disk: all promises together need ", size(host),
                           " outside HBM; ", room, ", ", size(staging(1)),
                           " of it for the way to the disk, and of disk there are ", size(disk_),
                           remedy, " or [disk] budget, lower --memory, or wait for a job to end")
                     : cat("host memory: all promises together need ", size(host), " outside HBM, ",
                           room, remedy, ", lower --memory, or wait for a job to end");
  }
  return least;
}

void Ledger::admit(JobKey job, std::uint64_t gpus, std::uint64_t promised, std::uint64_t overhead) {
  jobs_[job] = {gpus, promised, overhead};
}

void Ledger::release(JobKey job) { jobs_.erase(job); }

void Ledger::attach(SessionKey session, JobKey job, int gpu, std::uint64_t measured_overhead) {
  Account& account = gpus_[gpu].accounts[session];
  account.job = job;
  if (measured_overhead != 0) account.overhead = measured_overhead;
}

void Ledger::detach(SessionKey session) {
  for (auto& [index, gpu] : gpus_) gpu.accounts.erase(session);
}

void Ledger::measured(SessionKey session, int gpu_index, std::uint64_t overhead) {
  auto gpu = gpus_.find(gpu_index);
  if (gpu == gpus_.end()) return;
  auto account = gpu->second.accounts.find(session);
  if (account == gpu->second.accounts.end()) return;
  account->second.measured = overhead;
}

/// Whether every other job still fits when so much `more` of `job` stays in HBM.
bool Ledger::leaves_promises_good(const Gpu& gpu, int index, JobKey job, std::uint64_t more) const {
  std::uint64_t overhead = overheads(gpu, index);
  std::uint64_t fixed = more;
  for (const auto& [other, its] : gpu.accounts) fixed += unpageable_in_hbm(its);
  for (const auto& [key, its] : jobs_) {
    if (key == job || (its.gpus >> index & 1) == 0) continue;
    std::uint64_t others = fixed - unpageable_of(gpu, key);
    if (its.promised + overhead + others > gpu.usable) return false;
  }
  return true;
}

bool Ledger::holds_promises(int gpu_index) const {
  auto gpu = gpus_.find(gpu_index);
  if (gpu == gpus_.end()) return true;
  return leaves_promises_good(gpu->second, gpu_index, JobKey{0}, 0);
}

bool Ledger::charge(SessionKey session, int gpu_index, std::uint64_t bytes, bool unpageable) {
  auto gpu = gpus_.find(gpu_index);
  if (gpu == gpus_.end()) return false;
  auto account = gpu->second.accounts.find(session);
  if (account == gpu->second.accounts.end()) return false;
  JobKey job = account->second.job;
  std::uint64_t before = used(job, gpu_index);
  if (bytes > less(promised(job, gpu_index), before)) return false;
  if (unpageable) {
    if (!leaves_promises_good(gpu->second, gpu_index, job, bytes)) return false;
    account->second.unpageable += bytes;
  } else {
    account->second.pageable += bytes;
  }
  return true;
}

bool Ledger::pin(SessionKey session, int gpu_index, std::uint64_t bytes) {
  auto gpu = gpus_.find(gpu_index);
  if (gpu == gpus_.end()) return false;
  auto account = gpu->second.accounts.find(session);
  if (account == gpu->second.accounts.end() || bytes > account->second.pageable) return false;
  if (!leaves_promises_good(gpu->second, gpu_index, account->second.job, bytes)) return false;
  account->second.pageable -= bytes;
  account->second.unpageable += bytes;
  return true;
}

void Ledger::unpin(SessionKey session, int gpu_index, std::uint64_t bytes) {
  auto gpu = gpus_.find(gpu_index);
  if (gpu == gpus_.end()) return;
  auto account = gpu->second.accounts.find(session);
  if (account == gpu->second.accounts.end()) return;
  bytes = std::min(bytes, account->second.unpageable);
  account->second.unpageable -= bytes;
  account->second.pageable += bytes;
}

void Ledger::uncharge(SessionKey session, int gpu_index, std::uint64_t bytes, bool unpageable) {
  auto gpu = gpus_.find(gpu_index);
  if (gpu == gpus_.end()) return;
  auto account = gpu->second.accounts.find(session);
  if (account == gpu->second.accounts.end()) return;
  std::uint64_t& figure = unpageable ? account->second.unpageable : account->second.pageable;
  figure = less(figure, bytes);
}

void Ledger::restore(SessionKey session, int gpu, std::uint64_t pageable,
                     std::uint64_t unpageable) {
  Account& account = gpus_[gpu].accounts[session];
  account.pageable = pageable;
  account.unpageable = unpageable;
}

std::uint64_t Ledger::promised(JobKey job, int gpu) const {
  auto it = jobs_.find(job);
  if (it == jobs_.end() || (it->second.gpus >> gpu & 1) == 0) return 0;
  return it->second.promised;
}

std::uint64_t Ledger::used(JobKey job, int gpu) const {
  auto it = gpus_.find(gpu);
  if (it == gpus_.end()) return 0;
  std::uint64_t sum = 0;
  for (const auto& [session, account] : it->second.accounts) {
    if (account.job == job) sum += account.pageable + account.unpageable;
  }
  return sum;
}

std::uint64_t Ledger::pageable(SessionKey session, int gpu) const {
  auto it = gpus_.find(gpu);
  if (it == gpus_.end()) return 0;
  auto account = it->second.accounts.find(session);
  return account == it->second.accounts.end() ? 0 : account->second.pageable;
}

std::uint64_t Ledger::unpageable(SessionKey session, int gpu) const {
  auto it = gpus_.find(gpu);
  if (it == gpus_.end()) return 0;
  auto account = it->second.accounts.find(session);
  return account == it->second.accounts.end() ? 0 : account->second.unpageable;
}

std::uint64_t Ledger::overhead(SessionKey session, int gpu) const {
  auto it = gpus_.find(gpu);
  if (it == gpus_.end()) return 0;
  auto account = it->second.accounts.find(session);
  if (account == it->second.accounts.end()) return 0;
  return booked(it->second, account->second);
}

std::uint64_t Ledger::usable(int gpu) const {
  auto it = gpus_.find(gpu);
  return it == gpus_.end() ? 0 : it->second.usable;
}

}  // namespace plexrl::nodemgr
