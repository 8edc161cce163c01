#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nodemgr/accounts.h"
#include "nodemgr/client.h"
#include "nodemgr/clock.h"
#include "nodemgr/disk_tier.h"
#include "nodemgr/event_loop.h"
#include "nodemgr/gpu_probe.h"
#include "nodemgr/journal.h"
#include "nodemgr/ledger.h"
#include "nodemgr/process_identity.h"
#include "nodemgr/profiles.h"
#include "nodemgr/quotas.h"
#include "nodemgr/shared_page.h"
#include "nodemgr/slabs.h"
#include "nodemgr/teams.h"
#include "nodemgr/trace.h"
#include "nodemgr/usage.h"

/// What the daemon knows: jobs, their processes, GPUs, and the services that everything uses. One
/// thread. The parts that act on it are admission.h, sessions.h, leases.h, recovery.h.
namespace plexrl::nodemgr {

/// One job: what one plexrl-run started.
struct Job {
  JobKey key = 0;
  wire::Id128 id{};
  wire::Id128 secret{};
  uid_t uid = 0;
  std::uint64_t user_namespace = 0;  ///< of its plexrl-run; 0: not known
  std::string user, name, team;
  JobKey parent = 0;  ///< the job whose process started its plexrl-run; 0: none, or not known here
  int priority = 0;
  std::uint32_t flags = 0;
  std::uint64_t gpus = 0;  ///< mask
  std::uint64_t wanted_bytes = 0;
  std::uint64_t promised_bytes = 0;  ///< per GPU
  std::chrono::nanoseconds max_wait{0};
  double max_slowdown = 0;
  std::uint64_t overhead = 0;       ///< of each process on a GPU, by its profile; 0: not known
  std::uint64_t overhead_seen = 0;  ///< most that one of its processes took, as measured
  GangGaps gaps_known;              ///< of its earlier runs
  GangGaps gaps_seen;               ///< of this one, what was known included
  bool gaps_are_kept = true;        ///< nothing new in gaps_seen since it was written
  bool admitted = false;
  bool exiting = false;                     ///< its plexrl-run got SIGTERM
  bool paused = false;                      ///< by an administrator
  std::chrono::nanoseconds alone_until{0};  ///< since boot: no other job has its GPUs before
  std::string checkpoint_note;  ///< why its last checkpoint was refused or failed; "": it was not
  std::chrono::nanoseconds queued_since{0};
  std::string notice;  ///< last sent while queued

  Client* runner = nullptr;  ///< connection of plexrl-run, while it lasts
  ProcessIdentity runner_process;
  ScopedFd runner_pidfd;
  std::set<SessionKey> sessions;
  /// Of a process that lives on without any of these; it may join yet (jobs.h).
  ScopedFd survivor;
  pid_t survivor_pid = 0;                    ///< the last one; 0: there never was any
  std::chrono::nanoseconds hidden_since{0};  ///< nobody known is left, and we may not look
};

/// A process's memory on one GPU, as it reported it. The charged figures are the ledger's.
struct SessionMemory {
  std::uint64_t resident = 0, host = 0, disk = 0, unbacked = 0;
  std::uint64_t coming = 0;  ///< asked for by kPrefetch, which is not answered yet
  std::array<std::uint64_t, wire::kMemoryKinds> kinds{};  ///< the driver's own; [0] all pageable
  std::array<std::uint64_t, wire::kMemoryKinds> disk_kinds{};  ///< of `disk`, as said last
  /// What is pageable by kind; none from a process of an older version, which has kAlloc only.
  std::optional<wire::Kinds> pageable;

  // What the driver shows of the process at a look, and what it is made of; equal twice in a row,
  // it can be told apart.
  std::uint64_t driver_bytes = 0;  ///< 0: the driver does not show the process
  std::uint64_t accounted = 0;     ///< of them charged: resident or unpageable, but not managed
  std::uint64_t overhead = 0;      ///< the rest, as last measured: context, modules; 0: not yet
  std::uint64_t context = 0;       ///< of it: what was no managed memory when the process was new
  int looks = 0;
  std::chrono::nanoseconds same_since{0};  ///< the first look that showed these figures
};

/// One CUDA process of a job.
struct Session {
  SessionKey id = 0;
  Job* job = nullptr;
  ProcessIdentity process;
  ScopedFd pidfd;
  std::string command;
  Client* client = nullptr;    ///< null while the connection is lost
  std::uint64_t features = 0;  ///< wire::Feature, those of the process that this manager has too
  SharedPage control, activity;
  std::map<int, SessionMemory> memory;     ///< by attached GPU
  std::map<int, std::uint64_t> may_leave;  ///< by GPU: bytes of which others may need the room
  std::uint64_t gang = 0;                  ///< 0: none yet
  std::string exclusive_reason;            ///< "" when it can be cut
  bool exiting = false;

  // Driver checkpoints (checkpoints.h).
  bool off_gpu = false;    ///< told to stay out of the driver, and not told that it is over
  bool away = false;       ///< and what it has on GPUs beside pageable memory is in host memory
  bool unsettled = false;  ///< an operation was cut off: nobody knows where it is

  // Its part in the gang's lease.
  wire::Epoch granted{};  ///< {0, 0}: its gate is closed, as far as we know
  bool drained = false;   ///< in the attempt under way
  bool loaded = false;    ///< since the grant under way
  bool wants = false;
  std::chrono::nanoseconds want_since{0};
  bool busy = false;
  std::chrono::nanoseconds edge{0};

  wire::Paged paged[2]{};           ///< said before the kEvicted [0] or kLoaded [1] that is to come
  wire::DiskPaged disk_paged[2]{};  ///< likewise

  std::uint64_t spill_inode = 0;     ///< of its file, as the journal knows it; 0: it has none
  bool has_brought_staging = false;  ///< it has a staging slab of an earlier manager

  // After a restart of the manager.
  bool awaited = false;        ///< the journal names it and it has not answered
  bool shares_untold = false;  ///< it has yet to say what it shares and imports (exports.h)
  std::uint32_t resume_left = 0;
  bool gate_open = false;
  wire::Epoch believed{};
};

struct NodeGpu {
  GpuInfo info;
  std::uint64_t usable = 0;    ///< for jobs: within the budget, less reserve and others' use
  std::uint64_t others = 0;    ///< bytes used by processes that are not ours
  std::uint64_t reserved = 0;  ///< by the driver itself, with no process there
  std::uint64_t overhead = 0;  ///< of a process of which nothing is known
  /// Bytes of ended processes that the driver still shows, with the time of their end, by pid.
  struct Departed {
    std::chrono::nanoseconds since{0};
    std::uint64_t bytes = 0;
  };
  std::map<std::int64_t, Departed> departed;
  /// The driver's pids are this manager's; false in a container that has pids of its own.
  bool knows_pids = true;
  std::set<std::int64_t> strangers;  ///< the driver shows them, no session; none if !knows_pids
  /// A process that uses the GPU, or has it open, without PlexRL.
  struct Bypass {
    std::string user, command;  ///< "": it has ended, or is hidden
    bool has_memory = false;    ///< the driver shows memory of it
    bool has_opened = false;    ///< plexrl-observer saw its files
  };
  std::map<std::int64_t, Bypass> bypass;  ///< by pid

  std::uint64_t departing() const {
    std::uint64_t sum = 0;
    for (const auto& [pid, process] : departed) sum += process.bytes;
    return sum;
  }
};

/// What is done about a job that hangs; with `wait` the policy does not look for one.
enum class HangAction { kWarn, kKill };

struct NodeOptions {
  std::string node;
  HangAction hang_action = HangAction::kWarn;
  std::string state_dir;
  std::string checkpoint_helper;   ///< the program
  std::uint64_t gpu_memory = 0;    ///< 0: all
  std::uint64_t gpu_overhead = 0;  ///< 0: by size of the GPU
  std::uint64_t host_budget = 0;
  Quotas job_quotas;              ///< of each job, as the settings say
  std::uint64_t disk_budget = 0;  ///< 0: no disk tier
  std::string disk_folder;
  std::chrono::nanoseconds grace{}, drain_budget{}, checkpoint_after{};
  std::chrono::nanoseconds join_wait = std::chrono::seconds(1);
  /// A checkpointed job that may come back waits for so long until the driver shows more room.
  std::chrono::nanoseconds room_patience = std::chrono::seconds(10);
};

/// A process that has files of GPUs open, as plexrl-observer tells it.
struct Opener {
  std::int64_t pid = 0;
  uid_t uid = 0;
  std::string command;
  std::set<std::string> files;  ///< names in /dev
};

struct Node {
  NodeOptions options;
  std::vector<std::string>
      without_effect;  ///< settings that were set and change nothing, a line each
  EventLoop loop;
  std::map<int, NodeGpu> gpus;
  /// Without those of jobs that are seen; none: nobody tells.
  std::optional<std::vector<Opener>> openers;
  std::uint64_t reserve_bytes = 0;  ///< that loading leaves free on each GPU
  std::uint64_t chunk_bytes = 0;
  bool simulated = false;

  std::uint64_t generation = 1;
  std::uint64_t next_key = 1;  ///< for jobs and gangs
  std::uint64_t next_session =
      1;  ///< unique over managers of one state folder, with the generation
  struct Returning {
    std::string job_name;
    std::uint64_t gpus = 0;  ///< mask
    bool operator==(const Returning&) const = default;
  };

  std::map<JobKey, std::unique_ptr<Job>> jobs;
  std::map<SessionKey, std::unique_ptr<Session>> sessions;

  Teams teams;
  QuotaChanges quota_changes;  ///< by an administrator
  Ledger ledger;
  Usage usage{boot_now()};
  std::unique_ptr<Accounts> accounts;  ///< null: the file could not be opened
  std::string accounts_problem;        ///< why nothing can be written there; "": it can
  std::unique_ptr<Profiles> profiles;
  std::unique_ptr<Slabs> slabs;
  std::unique_ptr<DiskTier> disk;  ///< null: there is none
  std::unique_ptr<Journal> journal;
  std::unique_ptr<TraceWriter> trace;
  bool journal_failed = false;
  bool draining = false;  ///< by an administrator: no new job is admitted
  /// Checkpointed gangs that wait for room on their GPUs, where no new job comes before them.
  std::vector<Returning> returning;

  Job* find_job(const wire::Id128& id) const;
  Session* find_session(SessionKey id);
  /// What the process takes on a GPU beside its charges: as measured, else what is set aside for
  /// it.
  std::uint64_t overhead_of(const Session& session, int gpu) const;
  /// Of what the driver shows for the process, the bytes that are charged: resident or unpageable.
  /// Not managed memory: where it lies is the driver's business.
  std::uint64_t accounted(const Session& session, int gpu) const;
  /// How much of the GPU it counts with when others want room: what is set aside for it; on a GPU
  /// with more processes than the promises foresee what it takes, or a neighbour might wait for
  /// ever beside free memory.
  std::uint64_t room_of(const Session& session, int gpu) const;
  int find_gpu(const wire::GpuUuid& uuid) const;  ///< −1: not of this node
  std::uint64_t all_gpus() const;                 ///< mask

  /// Appends to the journal; a failure is a warning, once, and the node goes on without.
  void journal_append(const JournalRecord& record);
  /// Books what the job has used since the last time.
  void account(const Job& job);
  /// The same for all jobs, and writes it. A failure is a warning, once; it is tried again.
  void keep_accounts();
  /// Writes the job's figures to the control pages of all its processes.
  void publish(const Job& job);
  /// Writes the sum of `may_leave` to the process's control page.
  void publish_may_leave(const Session& session);
  /// Of each process, with a disk tier.
  std::uint64_t staging_bytes() const { return wire::kDiskSlots * chunk_bytes; }
  /// A process has come or gone: host memory that its way to the disk needs.
  void set_staging_aside();
  /// Tells the ledger what of host memory and of the disk can be promised now.
  void look_outside();
  /// What others use was measured: sets `usable` and tells the ledger.
  void set_others(int gpu, std::uint64_t others);
};

/// Timers of the loop, by number.
enum TimerId : int {
  kPolicyTimer = 1,
  kTraceTimer,
  kProbeTimer,
  kClockTimer,
  kIdleTimer,
  kSurvivorTimer,
  kQueueTimer,
  kReplacedTimer,
  kCheckpointTimer,
  kHelperTimer,
  kSlabTimer,
  kWatchdogTimer,
  kMeetingTimer
};

}  // namespace plexrl::nodemgr
