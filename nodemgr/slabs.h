#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "nodemgr/host_memory.h"
#include "nodemgr/scoped_fd.h"

namespace plexrl::nodemgr {

/// Of the memfds, as /proc/PID/maps shows them.
inline constexpr char kSlabName[] = "plexrl-slab";

/// Host memory for evicted chunks: sealed memfds that the manager makes, populates and counts, and
/// that processes map. A slab that comes back is kept for the same job only and goes with it, so no
/// bytes pass between jobs.
///
/// Populating (fallocate(2) on a memfd allocates and zeroes its pages) takes long, so threads of
/// this class do it, what somebody waits for first; results are taken by `finished` when `event_fd`
/// is readable. All functions are for the loop's thread.
class Slabs {
 public:
  using JobKey = std::uint64_t;
  using SessionKey = std::uint64_t;
  struct Ready {
    std::uint64_t id = 0;  ///< 0: it could not be had
    std::uint64_t bytes = 0;
    SessionKey session = 0;
    std::uint64_t request = 0;  ///< as given to `ask`
    int fd = -1;                ///< stays ours
  };

  /// Ids begin at `first_id`: those of an earlier manager must not be met again. `host_left` says
  /// how many bytes the host still has: no slab is made that would not find as many.
  Slabs(
      std::uint64_t budget_bytes, std::uint64_t first_id,
      std::function<std::uint64_t()> host_left = [] { return host_bytes_left(); });
  ~Slabs();

  void set_budget(std::uint64_t bytes) { budget_ = bytes; }
  /// Asks for a slab; the answer comes from `finished`, at once for one that is kept. False, and no
  /// answer: over the budget, or the host has no more memory.
  bool ask(SessionKey session, JobKey job, std::uint64_t bytes, std::uint64_t request);
  /// Asks for the slab that the session's way to the disk and back goes through (disk_requests.h),
  /// over the budget or not; one that it had before goes. The answer comes from `finished`.
  void ask_staging(SessionKey session, JobKey job, std::uint64_t bytes, std::uint64_t request);
  /// So much of the budget is for slabs of ask_staging.
  void set_aside(std::uint64_t bytes) { aside_ = bytes; }
  /// Makes slabs ahead, so that the job has `count` of this size, in use and kept together; as far
  /// as the budget goes.
  void reserve(JobKey job, std::uint64_t bytes, std::uint64_t count);
  int event_fd() const { return event_.get(); }
  std::vector<Ready> finished();

  /// The session does not use it any more: kept for others of the job. False: not this session's.
  /// One of an earlier manager, which had `bytes`, goes with its last descriptor.
  bool give_back(SessionKey session, std::uint64_t id, std::uint64_t bytes);
  /// A slab of one session becomes another's; returns its descriptor, which stays ours, and its
  /// size; −1: it is not `from`'s.
  int hand_over(std::uint64_t id, SessionKey from, SessionKey to, std::uint64_t* bytes);
  /// The session has ended: its slabs are kept for the job, or with the last session, freed by
  /// drop_job.
  void drop_session(SessionKey session);
  void drop_job(JobKey job);
  /// After a restart: a process still maps slabs, so many bytes in all. What of them is not of this
  /// manager is counted as long as the process lives, or until it says another figure.
  void count_held(SessionKey session, JobKey job, std::uint64_t bytes);

  std::uint64_t bytes_in_use() const { return in_use_; }
  std::uint64_t bytes_of(JobKey job) const;
  /// In use by the session, without the one of ask_staging.
  std::uint64_t bytes_with(SessionKey session) const;

 private:
  struct Slab {
    ScopedFd fd;  ///< closed while it is made, and for a foreign one
    std::uint64_t bytes = 0;
    JobKey job = 0;
    SessionKey session = 0;     ///< 0: kept
    std::uint64_t request = 0;  ///< to be answered when it has been made
    bool foreign = false;       ///< made by an earlier manager
    bool is_staging = false;
  };
  struct Work {
    std::uint64_t id = 0;
    std::uint64_t bytes = 0;
    bool is_awaited = false;
    ScopedFd fd;
  };
  Slab& make(JobKey job, std::uint64_t bytes, bool is_awaited);
  std::map<std::uint64_t, Slab>::iterator drop(std::map<std::uint64_t, Slab>::iterator slab);
  /// For more slabs: what the budget, without staging slabs, and the host's memory leave.
  std::uint64_t room() const;
  /// Somebody waits for it now: it is made before what nobody waits for.
  void hasten(std::uint64_t id);
  void populate_loop();
  void wake_loop();
  void drop_kept();

  const std::uint64_t first_id_;
  const std::function<std::uint64_t()> host_left_;
  std::uint64_t budget_;
  std::uint64_t making_ = 0;  ///< bytes that are not taken from the host yet
  std::uint64_t in_use_ = 0;
  std::uint64_t staging_ = 0;  ///< of it
  std::uint64_t aside_ = 0;
  std::uint64_t next_id_;
  std::map<std::uint64_t, Slab> slabs_;
  std::vector<Ready> at_once_;
  ScopedFd event_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Work> to_do_;
  std::vector<Work> done_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace plexrl::nodemgr
