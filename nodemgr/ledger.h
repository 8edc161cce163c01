#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>

/// Promises and what has been charged against them: pure arithmetic in bytes.
///
/// On each GPU: the largest promise of any one job + the overheads of all processes + the
/// unpageable bytes of the other jobs ≤ usable HBM, so that any job fits when the others are
/// evicted. On the node: what promises and overheads exceed HBM by ≤ host budget or what the host
/// has, less a staging slab for each process where there is a disk, + disk, so that the others can
/// be evicted. (A
/// gang's promise on a GPU is its job's: the processes of a job that share a GPU are one gang.)
namespace plexrl::nodemgr {

using JobKey = std::uint64_t;      ///< of the daemon, never reused
using SessionKey = std::uint64_t;  ///< one process

struct Admission {
  bool fits = false;
  bool never = false;          ///< would not fit on the empty node either: waiting is no use
  std::uint64_t promised = 0;  ///< per GPU
  std::uint64_t needed = 0;
  std::uint64_t available = 0;
  std::string text;  ///< figures and remedy, one line; when it does not fit
};

class Ledger {
 public:
  /// `usable`: for jobs, without reserve and what others use. `overhead`: of a process of which
  /// nothing is known. `others`: what processes outside PlexRL use, for messages. `most`: what
  /// would be usable without them, when that is more.
  void set_gpu(int gpu, std::uint64_t usable, std::uint64_t overhead, std::uint64_t others = 0,
               std::uint64_t most = 0);
  void set_host_budget(std::uint64_t bytes) { host_budget_ = bytes; }
  /// What the host has now, with what is in use for evicted bytes; no limit until it is set.
  void set_host_has(std::uint64_t bytes) { host_has_ = bytes; }
  /// `bytes` on disk may be promised, for which each process needs `staging` bytes of host memory.
  void set_disk(std::uint64_t bytes, std::uint64_t staging) {
    disk_ = bytes;
    staging_each_ = staging;
  }

  /// Asks for `wanted` bytes on each GPU of the mask (0: what is left when neighbours' overheads
  /// are set aside), for a job whose processes are known to need `overhead` each (0: not known).
  /// Changes nothing.
  Admission judge(std::uint64_t gpus, std::uint64_t wanted, std::uint64_t overhead = 0) const;
  /// Books a promise, fitting or not (a resumed job has it already).
  void admit(JobKey job, std::uint64_t gpus, std::uint64_t promised, std::uint64_t overhead = 0);
  void release(JobKey job);

  void attach(SessionKey session, JobKey job, int gpu, std::uint64_t measured_overhead);
  void detach(SessionKey session);
  /// The driver shows that the process takes so much beside its charges. So much is booked for it
  /// from now on, and no less than what was expected of it: it may have more to load. No promise
  /// changes.
  void measured(SessionKey session, int gpu, std::uint64_t overhead);

  /// False, and nothing charged: beyond the promise, or (unpageable bytes only) beyond what leaves
  /// the other jobs' promises good.
  bool charge(SessionKey session, int gpu, std::uint64_t bytes, bool unpageable);
  /// Bytes that are charged as pageable become unpageable. False, and nothing changed: they are not
  /// charged, or would not leave the other jobs' promises good.
  bool pin(SessionKey session, int gpu, std::uint64_t bytes);
  /// And back; at most what is unpageable.
  void unpin(SessionKey session, int gpu, std::uint64_t bytes);
  /// Gives back at most what was charged.
  void uncharge(SessionKey session, int gpu, std::uint64_t bytes, bool unpageable);
  /// After a restart: sets what the process says it has.
  void restore(SessionKey session, int gpu, std::uint64_t pageable, std::uint64_t unpageable);

  /// Where the context and the unpageable memory of processes are, when the driver checkpoints
  /// them: in HBM; on their way, booked there and in host memory; or in host memory only.
  enum class Place { kHere, kLeaving, kAway };
  void place(const std::set<SessionKey>& sessions, Place place);
  /// Whether host memory is left for all that they have.
  bool can_leave(const std::set<SessionKey>& sessions) const;
  /// Whether every promise on their GPUs is still good when they are in HBM.
  bool can_return(const std::set<SessionKey>& sessions) const;

  std::uint64_t promised(JobKey job, int gpu) const;
  std::uint64_t used(JobKey job, int gpu) const;
  std::uint64_t pageable(SessionKey session, int gpu) const;
  std::uint64_t unpageable(SessionKey session, int gpu) const;
  std::uint64_t overhead(SessionKey session, int gpu) const;
  std::uint64_t usable(int gpu) const;
  /// Whether every job fits on the GPU with what is booked for processes. Not so where more of them
  /// came than was foreseen.
  bool holds_promises(int gpu) const;
  std::uint64_t host_budget() const { return host_budget_; }
  std::uint64_t disk() const { return disk_; }
  /// Outside of HBM, what the promises need when all are full.
  std::uint64_t host_needed() const;
  /// Of processes that are checkpointed or about to be, what can't be on disk.
  std::uint64_t fixed_in_host() const;
  /// Of processes that are checkpointed, what the driver has in host memory.
  std::uint64_t away_in_host() const;

 private:
  struct Account {
    JobKey job = 0;
    std::uint64_t overhead = 0;  ///< told by the process; 0: not known
    std::uint64_t measured = 0;  ///< as the driver showed it last
    std::uint64_t pageable = 0;
    std::uint64_t unpageable = 0;
    Place place = Place::kHere;
  };
  struct Gpu {
    std::uint64_t usable = 0;
    std::uint64_t overhead = 0;
    std::uint64_t others = 0;
    std::uint64_t most = 0;
    std::map<SessionKey, Account> accounts;
  };
  struct Job {
    std::uint64_t gpus = 0;
    std::uint64_t promised = 0;
    std::uint64_t overhead = 0;  ///< of each process, by earlier runs; 0: not known
  };
  std::uint64_t expected(const Gpu& gpu, JobKey job) const;
  std::uint64_t booked(const Gpu& gpu, const Account& account) const;
  std::uint64_t overheads(const Gpu& gpu, int index) const;
  std::uint64_t unpageable_of(const Gpu& gpu, JobKey job) const;
  bool leaves_promises_good(const Gpu& gpu, int index, JobKey job, std::uint64_t more) const;
  std::uint64_t held_in_host() const;
  /// Of host memory, for the processes there are and `more`: at least one for each job.
  std::uint64_t staging(std::uint64_t more) const;
  /// Host memory that promises may count on.
  std::uint64_t host_room() const { return std::min(host_budget_, host_has_); }
  /// Whether so much outside of HBM has room when `more` processes come.
  bool has_room_outside(std::uint64_t bytes, std::uint64_t more) const;
  static std::uint64_t unpageable_in_hbm(const Account& account);
  /// `more`: a promise, and the overhead that comes with it.
  std::uint64_t host_needed_on(const Gpu& gpu, int index, std::uint64_t more) const;
  Admission judge_gpu(int index, const Gpu& gpu, std::uint64_t wanted, std::uint64_t own) const;

  std::map<int, Gpu> gpus_;
  std::map<JobKey, Job> jobs_;
  std::uint64_t host_budget_ = 0;
  std::uint64_t host_has_ = ~std::uint64_t{0};
  std::uint64_t disk_ = 0;
  std::uint64_t staging_each_ = 0;
};

}  // namespace plexrl::nodemgr
