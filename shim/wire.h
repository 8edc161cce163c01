#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

/// The messages between a node manager and its clients: plexrl-run (one per job) and the shim (one
/// per CUDA process).
///
/// Transport: a SOCK_SEQPACKET Unix socket; one packet is a Header followed by exactly one body
/// struct, in host byte order. File descriptors travel with the packet by SCM_RIGHTS. All structs
/// are fixed-width, have no padding that carries meaning, and are zero-filled by the sender.
/// Strings are UTF-8, NUL-terminated within their array.
///
/// Versions: kVersion is raised when a body changes its meaning or size; new message types and
/// feature bits need no raise, because an unknown type is answered with kError and otherwise
/// ignored. A manager speaks kVersion and kVersion − 1; a client outside that range is refused and
/// runs unshared.
///
/// Trust: the manager copies a packet, checks it (size, type, range of every field) and only then
/// uses it. The shim trusts the manager. Times are CLOCK_BOOTTIME in ns. Bytes are bytes.
///
/// A lease, as its messages pass (G = every process of the gang):
///
///     process                        manager                         other gang
///        | kWantLease  ------------->  |
///        |                             |  kWithdraw -------------->    closes gate, drains
///        |                             |  <---------------- kDrained   (or kNotDrained, answered
///        by kReopen) |                             |  kRevoked --------------->    gate stays
///        closed |                             |  kEvict ----------------->    copies out, unmaps,
///        releases |                             |  <---------------- kEvicted |  <-------------
///        kGrant (G)  |  journaled before it is sent | kLoaded  ---------------->  |  when all of G
///        have loaded |  <--------------- kRun (G)  | |  gate opens                 |
///
/// With kGrantRunNow set the gate opens at kGrant: nothing had to be loaded. A process that drains
/// by itself says kIdle; it keeps the lease until kWithdraw.
namespace plexrl::wire {

inline constexpr std::uint32_t kMagic = 0x31785250;  // "PRx1"
inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::uint16_t kMinVersion = 1;
inline constexpr std::size_t kMaxPacketBytes = 8192;
inline constexpr int kMaxGpus =
    64;  ///< GPUs of a node; a set of GPUs is a 64-bit mask of manager indices
inline constexpr int kMaxPacketFds = 4;
/// The name of a thread that every process of a job has from its welcome on (comm of proc(5)). A
/// process that lives without one, and without a connection, has become another program by exec.
inline constexpr char kAgentThreadName[] = "plexrl-agent";

/// Feature bits, offered in Hello and answered with the common ones in Welcome.
enum Feature : std::uint64_t {
  kFeatureSlabs = 1u << 0,       ///< host memory comes from the manager as memfds
  kFeatureExchange = 1u << 1,    ///< full-duplex exchange by credits (reserved)
  kFeatureGangSlots = 1u << 2,   ///< prepare / vote / commit / start over nodes (reserved)
  kFeaturePrefetch = 1u << 3,    ///< kPrefetch
  kFeatureCheckpoint = 1u << 4,  ///< driver checkpointing (no client asks for it: a job's option)
  kFeatureSharesTold = 1u << 5,  ///< a process that comes back says kSharesTold
  kFeatureSlabsHeld = 1u << 6,   ///< and before all else kSlabsHeld
  kFeatureDisk = 1u << 7,        ///< the manager has a disk tier: kDiskFile and what follows
  kFeatureCommunicators = 1u << 8,  ///< kCommJoin and kCommLeave
};

enum class Type : std::uint16_t {
  // Any side.
  kError = 1,  ///< Error
  // plexrl-run.
  kJobSubmit = 0x100,  ///< JobSubmit  -> kJobAdmitted | kJobQueued (repeated when the figures
                       ///< change) | kJobRefused
  kJobAdmitted,        ///< JobAdmitted
  kJobQueued,          ///< JobNotice
  kJobRefused,         ///< JobNotice
  kJobResume,  ///< JobResume: the supervisor of a job of an earlier manager; answered as kJobSubmit
  kJobJoin,    ///< JobJoin: may I be part of this job? -> kJobAdmitted | kError
  kJobParent,  ///< JobParent, no answer; before kJobSubmit, from inside of another job
  // A process of a job.
  kHello = 0x200,  ///< Hello      -> kWelcome (+2 fds: control page, activity page) | kRefused
  kWelcome,        ///< Welcome
  kRefused,        ///< Error
  kAttachGpu,      ///< AttachGpu  -> kAttached
  kAttached,       ///< Attached
  kCharge,         ///< Charge     -> kCharged
  kCharged,        ///< Charged
  kUncharge,       ///< Charge, no answer
  kMemoryReport,   ///< MemoryReport, no answer; sent when a figure changed, at most every 100 ms
  kSlabRequest,    ///< SlabRequest -> kSlab (+1 fd) | kError
  kSlab,           ///< Slab
  kSlabReturn,   ///< Slab, no answer; from the manager, id 0: give back so many bytes of free slabs
  kResumeState,  ///< ResumeState: after kHello with kHelloResume, one per GPU, before anything else
  kExiting,  ///< no body: goes to the front; a process entered exit, plexrl-run's job got SIGTERM
  kKinds,    ///< Kinds, no answer; what is pageable by kind, sent with kMemoryReport
  kPin,  ///< Charge     -> kCharged; bytes that are charged already have to stay in HBM from now
         ///< on (unpageable 1), or need not any more (0), which needs no answer
  kSlabsHeld,  ///< SlabsHeld, no answer; after kHello with kHelloResume, before kResumeState
  // Device memory shared between processes of a job (nodemgr/exports.h says how it goes).
  kExport = 0x280,  ///< Export      -> kExported: other processes may ask for this memory
  kExported,        ///< Exported
  kImport,          ///< Import      -> kImported | kError
  kImported,        ///< Imported
  kFetchHandles,    ///< Handles, importer -> manager -> owner, no answer but kHandles
  kHandles,         ///< Handles (+ one fd a chunk), owner -> manager -> importer
  kImportClosed,    ///< ExportRef, importer -> manager: it has unmapped and released all of it
  kExportEnded,     ///< ExportRef, owner -> manager: the memory has been freed, when nobody imports
                    ///< it -> kExportUnused | kExportEnded (it is in use, kExportUnused follows)
  kExportUnused,    ///< ExportRef, manager -> owner: nobody imports it any more
  kParked,  ///< Parked, owner -> manager -> importers, no answer: the chunk has been evicted, they
            ///< let it go; with the slab's fd manager -> heir of a dead owner: it is there
  kOwnerGone,  ///< OwnerGone, manager -> importer: the owner is dead
  // After a restart of the manager, to which kExport and kImport (request 0) are said again.
  kSharesTold,  ///< no body, process -> manager: it has said all of them; manager -> process: all
                ///< processes of the job have
  kOwnerBack,  ///< ExportRef, manager -> importer: the owner is there; it may have evicted what the
               ///< importer has mapped, which was not passed on
  // Leases.
  kWantLease = 0x300,  ///< WantLease: a thread waits at the gate (sent once until granted)
  kGrant,              ///< Grant
  kLoaded,             ///< Loaded
  kRun,                ///< LeaseRef
  kWithdraw,           ///< Withdraw
  kDrained,            ///< Drained
  kNotDrained,         ///< NotDrained
  kReopen,             ///< LeaseRef: the attempt is over, the lease goes on
  kRevoked,            ///< LeaseRef: the lease has ended
  kEvict,              ///< Evict      -> kEvicted
  kEvicted,            ///< Evicted
  kActivity,           ///< Activity: edges of busy and idle since the last one
  kExclusive,          ///< Exclusive, no answer: this process can't be cut from now on
  kPaged,              ///< Paged, no answer: more about the kEvicted or kLoaded that is sent next
  // Driver checkpoints (nodemgr/checkpoints.h), of processes of a job with kJobCheckpoint.
  kLeaveGpu,   ///< LeaveGpu -> kLeftGpu: the process is about to be checkpointed
  kLeftGpu,    ///< LeftGpu: none of its threads is in the driver, and none goes there until
               ///< kBackOnGpu
  kBackOnGpu,  ///< no body: it is as before (restored, or never checkpointed)
  // Reserved numbers: 0x400..0x41f exchange credits, 0x500..0x51f gang slots over nodes.
  // With kFeaturePrefetch.
  kPrefetch = 0x600,  ///< Prefetch -> kPrefetched
  kPrefetched,        ///< Prefetched; before the kLoaded or kEvicted that it was called off for
  // With kFeatureDisk: memory that leaves HBM and finds no host memory goes to a file of the
  // process, which the manager reads and writes (nodemgr/disk_requests.h).
  kDiskFile = 0x620,  ///< no body -> kDiskFile: DiskFile (+1 fd, O_PATH) | kError; made if need be
  kDiskStaging,       ///< SlabRequest -> kSlab | kError: the slab that all of it goes through
  kDiskWrite,         ///< DiskMove (+1 fd: the memory) -> kDiskMoved
  kDiskRead,          ///< DiskMove (+1 fd: the memory) -> kDiskMoved
  kDiskMoved,         ///< DiskMoved
  kDiskDiscard,       ///< DiskPlace, no answer: what is there is not needed any more
  kDiskHeld,    ///< DiskFile (+1 fd), no answer; after kHello with kHelloResume, before kSlabsHeld
  kDiskReport,  ///< DiskReport, no answer; before each kMemoryReport
  kDiskPaged,   ///< DiskPaged, no answer: more about the kEvicted or kLoaded that is sent next
  // NCCL's communicators (nodemgr/communicators.h), with kFeatureCommunicators.
  kCommJoin = 0x700,  ///< CommRef -> kCommJoined: the process is about to be a rank of it; after a
                      ///< restart of the manager, or a lost connection, said again (request 0)
  kCommJoined,        ///< CommRef
  kCommLeave,         ///< CommRef, no answer: it is no rank any more
  kCommWaits,         ///< CommRef, no answer: an operation of this rank waits long for others
  kCommStays,  ///< CommRef, no answer: its operations can't meet, because graphs contain them
  kCommMode,   ///< CommMode, manager -> process, no answer but kCommAt
  kCommAt,     ///< CommAt, no answer; in mode kMeets whenever it changes
  kCommMeet,   ///< CommAt -> kCommMet: it is about to submit one more operation, in mode kMeets
  kCommMet,    ///< CommRef: it may
};

struct Header {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t type;
  std::uint32_t bytes;  ///< of the body
  std::uint32_t reserved;
  std::uint64_t request;  ///< chosen by the asker, copied into the answer; 0 when none is expected
};
static_assert(sizeof(Header) == 24);

/// Of a packet in this version, with `bytes` of body.
constexpr Header header_of(Type type, std::size_t bytes, std::uint64_t request) {
  return {kMagic, kVersion, static_cast<std::uint16_t>(type), static_cast<std::uint32_t>(bytes),
          0,      request};
}

struct Id128 {
  std::uint64_t hi;
  std::uint64_t lo;
  friend bool operator==(const Id128&, const Id128&) = default;
};

/// A lease's name. `generation` counts the managers that served this state directory, `counter` the
/// grants of one generation. Epochs are compared generation first; an older one is dropped by both
/// sides. {0, 0} is "none".
struct Epoch {
  std::uint64_t generation;
  std::uint64_t counter;
  friend auto operator<=>(const Epoch&, const Epoch&) = default;
};

struct GpuUuid {
  std::uint8_t bytes[16];
  friend bool operator==(const GpuUuid&, const GpuUuid&) = default;
};

struct Error {
  std::uint32_t code;  ///< ErrorCode
  std::uint32_t reserved;
  char text[496];  ///< one line for the user: what, with which value, what to do
};

enum ErrorCode : std::uint32_t {
  kErrorVersion = 1,
  kErrorSecret,
  kErrorUid,
  kErrorUnknownJob,
  kErrorUnknownGpu,
  kErrorMalformed,
  kErrorUnknownType,
  kErrorNoHostMemory,
  kErrorDraining,
  kErrorInternal,
};

// ---- plexrl-run
// -------------------------------------------------------------------------------------------------

enum JobFlags : std::uint32_t {
  kJobNoWait = 1u << 0,      ///< refuse instead of queueing
  kJobCheckpoint = 1u << 1,  ///< --evict=checkpoint
  kJobExportReal = 1u << 2,  ///< --export=real; told only: the shim does what it says
};

struct JobSubmit {
  std::uint64_t features;
  char name[64];
  char team[64];
  std::int32_t priority;       ///< 0..100
  std::uint32_t flags;         ///< JobFlags
  std::uint64_t memory_bytes;  ///< promise asked for per GPU; 0: what is usable
  std::uint64_t max_wait_ns;   ///< 0: the manager's
  double max_slowdown;         ///< 0: none
  std::uint64_t gpus;          ///< mask; 0: all
};

struct JobAdmitted {
  Id128 job;
  Id128 secret;                  ///< admits processes; travels in the environment, never shown
  std::uint64_t promised_bytes;  ///< per GPU
  std::uint64_t generation;
  std::uint32_t simulated;  ///< 1: the GPUs are simulated
  std::uint32_t reserved;
};

struct JobNotice {
  std::uint64_t needed_bytes;
  std::uint64_t available_bytes;
  char text[496];  ///< figures and remedy, one line
};

struct JobResume {
  Id128 job;
  Id128 secret;
  JobSubmit submit;  ///< as at first
};

struct JobJoin {
  Id128 job;
  Id128 secret;
};

struct JobParent {
  Id128 job;  ///< it does not end before the one that is submitted
};

// ---- processes
// --------------------------------------------------------------------------------------------------

enum HelloFlags : std::uint32_t { kHelloResume = 1u << 0 };

struct Hello {
  std::uint16_t version;  ///< highest spoken
  std::uint16_t min_version;
  std::uint32_t flags;  ///< HelloFlags
  std::uint64_t features;
  Id128 job;
  Id128 secret;
  std::uint64_t
      start_time_ticks;   ///< field 22 of /proc/PID/stat; with the peer's pid it names the process
  std::uint64_t session;  ///< with kHelloResume: the id of the earlier session
  char command[64];
};

struct Welcome {
  std::uint16_t version;
  std::uint16_t reserved0;
  std::uint32_t reserved1;
  std::uint64_t features;
  std::uint64_t session;
  std::uint64_t generation;
  std::uint64_t grace_ns;         ///< idle for so long: kActivity with an idle edge
  std::uint64_t drain_budget_ns;  ///< an attempt ends after so long without progress
  std::uint64_t reserve_bytes;    ///< slack that loading leaves free on each GPU
  std::uint64_t chunk_bytes;      ///< of large allocations; multiple of 2 MiB
};

struct AttachGpu {
  GpuUuid uuid;
  std::uint64_t total_bytes;
  std::uint64_t overhead_bytes;  ///< what this process's context takes, as measured; 0: not known
};

struct Attached {
  std::uint32_t gpu;  ///< the manager's index
  std::uint32_t reserved;
  std::uint64_t promised_bytes;  ///< of the job on this GPU, in all
};

struct Charge {
  std::uint32_t gpu;
  std::uint32_t unpageable;  ///< 1: stays in HBM (driver-owned kinds)
  std::uint64_t bytes;
};

struct Charged {
  std::uint32_t granted;  ///< 0: beyond the promise; the caller reports OUT_OF_MEMORY
  std::uint32_t reserved;
  std::uint64_t promised_bytes;
  std::uint64_t used_bytes;  ///< by the whole job on this GPU
};

/// Kinds as in docs/contract.md: alloc pool vmm ipc graph managed array host_registered rdma nccl
/// context module other.
inline constexpr int kMemoryKinds = 13;
enum class MemoryKind : std::uint32_t {
  kAlloc,
  kPool,
  kVmm,
  kIpc,
  kGraph,
  kManaged,
  kArray,
  kHostRegistered,
  kRdma,
  kNccl,
  kContext,
  kModule,
  kOther,
};

struct MemoryReport {
  std::uint32_t gpu;
  std::uint32_t reserved;
  std::uint64_t resident_bytes;            ///< pageable, in HBM now
  std::uint64_t host_bytes;                ///< pageable, in host slabs now
  std::uint64_t unbacked_bytes;            ///< pageable, never written
  std::uint64_t kind_bytes[kMemoryKinds];  ///< kAlloc: all pageable; the others: the driver's own
};

/// Pageable memory of one GPU by kind; the kinds of kMemoryReport's kind_bytes but kAlloc are what
/// the driver owns beside it. Pinned bytes are among the resident ones.
struct Kinds {
  std::uint32_t gpu;
  std::uint32_t reserved;
  struct Kind {
    std::uint64_t resident_bytes;
    std::uint64_t host_bytes;
    std::uint64_t unbacked_bytes;
    std::uint64_t pinned_bytes;
  } kinds[kMemoryKinds];
  char pinned_reason[96];
};

struct Export {
  std::uint64_t id;  ///< 0: new; else, to a manager that was restarted, as it was
  Id128 tag;         ///< likewise
  std::uint32_t gpu;
  std::uint32_t chunks;
  std::uint64_t bytes;        ///< of all chunks
  std::uint64_t chunk_bytes;  ///< of all but the last
};
struct Exported {
  std::uint64_t id;  ///< names it on this node until the owner frees it; 0: refused
  Id128 tag;         ///< whoever knows it may import
};
struct Import {
  std::uint64_t id;
  Id128 tag;
};
struct Imported {
  std::uint32_t gpu;
  std::uint32_t chunks;
  std::uint64_t bytes;
  std::uint64_t chunk_bytes;
  GpuUuid uuid;
};
struct Handles {
  std::uint64_t id;
  std::uint64_t importer;  ///< its session; the manager writes it
  std::uint32_t first;     ///< chunk
  std::uint32_t count;     ///< of chunks, at most kMaxPacketFds
};
struct ExportRef {
  std::uint64_t id;
};
struct Parked {
  std::uint64_t id;
  std::uint32_t chunk;
  std::uint32_t is_lost;  ///< 1: an earlier owner died with it, and nobody will ever hand it out
  std::uint64_t slab;     ///< 0: it has no bytes any more
  std::uint64_t slab_bytes;
  std::uint64_t offset;  ///< in the slab
};
struct OwnerGone {
  std::uint64_t id;
  std::uint32_t
      is_heir;  ///< 1: this importer is the owner now; what was parked has been sent before
  /// 1: it died while there was no manager, and nobody knows where parked bytes are. The importer
  /// is the owner if it has all of it mapped, and says kExport; else it says kImportClosed.
  std::uint32_t rest_is_lost;
};

struct SlabRequest {
  std::uint64_t bytes;
};
struct Slab {
  std::uint64_t id;
  std::uint64_t bytes;
};

/// All slabs that this process has, of whichever manager and however much of them is in use. Sent
/// to a manager that has kFeatureSlabsHeld.
struct SlabsHeld {
  std::uint64_t bytes;
};

enum ResumeFlags : std::uint32_t {
  kResumeGateOpen = 1u << 0,  ///< of this process
  kResumeOffGpu = 1u << 1,    ///< it has answered kLeftGpu, and not been told kBackOnGpu
};
struct ResumeState {
  std::uint32_t gpu_count;  ///< how many ResumeState follow in all
  std::uint32_t flags;      ///< ResumeFlags
  GpuUuid uuid;
  std::uint64_t charged_bytes;  ///< in all, the unpageable ones among them
  std::uint64_t unpageable_bytes;
  std::uint64_t overhead_bytes;
  std::uint64_t resident_bytes;
  std::uint64_t host_bytes;  ///< in slabs: what has been evicted, without kept copies
  Epoch held;                ///< the lease this process believes to have
};

// ---- leases
// -----------------------------------------------------------------------------------------------------

struct WantLease {
  std::uint64_t gpus;  ///< mask
  std::uint64_t since_ns;
};

enum GrantFlags : std::uint32_t { kGrantRunNow = 1u << 0 };
struct Grant {
  Epoch epoch;
  std::uint64_t gang;
  std::uint64_t gpus;
  std::uint32_t flags;
  std::uint32_t reserved;
};

struct Loaded {
  Epoch epoch;
  std::uint64_t moved_bytes;
  std::uint64_t start_ns, end_ns;
  std::uint64_t create_ns, map_ns, copy_ns;  ///< stages, within start..end
  std::uint64_t blocked_ns;                  ///< waited because HBM was not free yet
  std::uint64_t zero_bytes;                  ///< backed without a copy (never written)
};

struct LeaseRef {
  Epoch epoch;
};

struct Withdraw {
  Epoch epoch;
  std::uint64_t attempt;
};

struct Drained {
  Epoch epoch;
  std::uint64_t attempt;
  std::uint64_t gate_closed_ns;
  std::uint64_t last_completion_ns;
};

struct NotDrained {
  Epoch epoch;
  std::uint64_t attempt;
  char
      obstacle[112];  ///< what stood in the way, by name ("capture in progress", "stream 0x… busy")
};

/// The gang of this process keeps a lease once it has it (invariant 4); a kWithdraw is answered
/// with kNotDrained at once. Sent again after kResumeState.
struct Exclusive {
  char reason[112];  ///< what can't be cut, by name
};

struct Evict {
  std::uint32_t gpu;
  std::uint32_t reserved;
  std::uint64_t bytes;  ///< at least so many, or all that is pageable
};

struct Evicted {
  std::uint32_t gpu;
  std::uint32_t failed;  ///< 1: some chunk could not leave (no host memory); the rest is as told
  std::uint64_t freed_bytes;
  std::uint64_t moved_bytes;  ///< freed − untouched and the like
  std::uint64_t untouched_bytes;
  std::uint64_t resident_bytes;  ///< left
  std::uint64_t start_ns, end_ns;
  std::uint64_t copy_ns, unmap_ns;  ///< stages, within start..end
};

/// Memory may come back although the process has no lease, until it gets one, has to evict, or
/// exits.
struct Prefetch {
  std::uint32_t gpu;
  std::uint32_t reserved;
  std::uint64_t bytes;        ///< at most so many
  std::uint64_t bytes_per_s;  ///< over the link, no more than that; 0: as fast as it goes
};

struct Prefetched {
  std::uint32_t gpu;
  std::uint32_t reserved;
  std::uint64_t moved_bytes;
  std::uint64_t zero_bytes;      ///< backed without a copy
  std::uint64_t repeated_bytes;  ///< filled
  std::uint64_t resident_bytes;  ///< now
  std::uint64_t start_ns, end_ns;
  std::uint64_t link_ns;  ///< as in Paged
};

/// Figures that kEvicted and kLoaded, whose size is fixed, have no place for.
struct Paged {
  std::uint32_t is_load;  ///< 0: kEvicted follows
  std::uint32_t reserved;
  std::uint64_t repeated_bytes;   ///< consist of one word: not copied, filled
  std::uint64_t unchanged_bytes;  ///< equal to the host copy of last time: not copied
  std::uint64_t shared_bytes;     ///< equal to another chunk's host copy: not copied
  std::uint64_t hash_ns;          ///< stage, as those of Evicted
  std::uint64_t link_ns;          ///< that what was copied takes at the best rate seen
};

/// The process's file, which is gone with the last descriptor of it, and the key of what is in it.
/// The process can neither read nor write it; it keeps both for the next manager.
struct DiskFile {
  std::uint8_t key[32];
  std::uint64_t inode;
};

/// Sizes and places are multiples of kDiskUnit. A chunk goes in pieces of at most kMostDiskPiece.
inline constexpr std::uint64_t kDiskUnit = 4096;
inline constexpr std::uint64_t kMostDiskPiece = std::uint64_t{64} << 20;
/// The staging slab of a process has room for so many pieces, of Welcome's chunk_bytes each.
inline constexpr std::size_t kDiskSlots = 2;
/// Requests of one process that may be unanswered at a time.
inline constexpr std::size_t kMostDiskMoves = 16;
struct DiskMove {
  std::uint64_t memory_offset;
  std::uint64_t bytes;
  std::uint64_t file_offset;  ///< the process's choice
  std::uint8_t nonce[12];     ///< of a read, as the write's kDiskMoved had them
  std::uint8_t tag[16];
  std::uint32_t reserved;
};
static_assert(sizeof(DiskMove) == 56);

enum DiskOutcome : std::uint32_t {
  kDiskDone = 0,
  kDiskFull,     ///< the budget or the file system: nothing was written
  kDiskFailed,   ///< an error of the disk
  kDiskDamaged,  ///< what was read is not what was written
};
struct DiskMoved {
  std::uint32_t outcome;  ///< DiskOutcome
  std::uint8_t nonce[12];
  std::uint8_t tag[16];
};
static_assert(sizeof(DiskMoved) == 32);

struct DiskPlace {
  std::uint64_t file_offset;
  std::uint64_t bytes;
};

struct DiskReport {
  std::uint32_t gpu;
  std::uint32_t reserved;
  std::uint64_t kind_bytes[kMemoryKinds];  ///< pageable, on disk now
};

/// Of the bytes that the kEvicted or kLoaded tells as moved, those that went to disk or came from
/// it.
struct DiskPaged {
  std::uint32_t is_load;  ///< 0: kEvicted follows
  std::uint32_t reserved;
  std::uint64_t bytes;
  std::uint64_t wait_ns;  ///< for the manager's answers
};

struct LeaveGpu {
  std::uint64_t operation;
  std::uint64_t quiet_ns;  ///< refused unless no thread has been in the driver for so long
};
struct LeftGpu {
  std::uint64_t operation;
  std::uint32_t refused;
  std::uint32_t reserved;
  char reason[112];  ///< of the refusal, by name
};

/// A communicator of the job, by a name that all its ranks derive alike.
struct CommRef {
  Id128 comm;
};

enum CommModes : std::uint32_t {
  kTogether,  ///< the ranks are one gang as long as there is the communicator
  kMeets,     ///< they are while an operation is under way; before each they meet (kCommMeet)
};
struct CommMode {
  Id128 comm;
  std::uint32_t mode;  ///< CommModes
  std::uint32_t reserved;
};
/// Where a rank is, by its own count of operations.
struct CommAt {
  Id128 comm;
  std::uint64_t submitted;
  std::uint32_t is_outstanding;  ///< 0: all of them have ended
  std::uint32_t reserved;
};

/// Edges in order of time; even entries begin busy, odd ones begin idle when `first_is_busy`, else
/// the reverse.
inline constexpr int kMaxEdges = 64;
struct Activity {
  std::uint32_t count;
  std::uint32_t first_is_busy;
  std::uint64_t submitted;  ///< gated calls since the start
  std::uint64_t at_ns[kMaxEdges];
};

// ---- shared pages
// -----------------------------------------------------------------------------------------------

/// Written by the manager, mapped read-only by the process. A sealed memfd of one page.
struct ControlPage {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t reserved;
  std::uint64_t generation;
  std::uint64_t heartbeat_ns;  ///< the manager's last turn of its loop
  struct Gpu {
    std::uint64_t promised_bytes;  ///< of the job
    std::uint64_t used_bytes;      ///< by all its processes: what cuMemGetInfo answers from
  } gpus[kMaxGpus];
  std::uint64_t credits[16];      ///< exchange credits (reserved)
  std::uint64_t may_leave_bytes;  ///< of this process: host memory that it does well to have ready
};
static_assert(sizeof(ControlPage) <= 4096);

/// Written by the process, mapped read-only by the manager. A sealed memfd of one page. Each word
/// has one writer, the shim's agent thread; the manager copies and checks. All words are read and
/// written with relaxed atomics.
struct ActivityPage {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t reserved;
  std::uint64_t submitted;        ///< gated calls so far
  std::uint64_t busy;             ///< 1: submitted work is not known to have finished
  std::uint64_t edge_ns;          ///< when `busy` last changed
  std::uint64_t waiting_threads;  ///< at the gate
};
static_assert(sizeof(ActivityPage) <= 4096);

}  // namespace plexrl::wire
