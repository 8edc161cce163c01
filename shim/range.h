#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "interpose/cuda_api.h"
#include "shim/chunk_hasher.h"
#include "shim/disk_place.h"
#include "shim/host_span.h"
#include "shim/wire.h"

namespace plexrl::shim {

/// Where the bytes of a chunk are.
///
///              back, load                     load
///   kUnbacked ------------> kMoving <------> kMoving <----- kHost, kRepeated, kDisk
///        ^                     |  ^            |              ^
///        |   never written     v  |            v              |
///        +------ evict ------ kResident ---- evict -----------+
///
/// kMoving belongs to the one thread that claimed the chunk; everybody else leaves it alone.
enum class ChunkState : std::uint8_t {
  kUnbacked,
  kResident,
  kHost,      ///< in `host`
  kRepeated,  ///< nowhere, because each of its words is `word`
  kDisk,      ///< at `disk`
  kLost,      ///< nobody has it any more: it was another process's, which died with it, or can't be
              ///< read from the disk. It is never backed again
  kMoving
};

/// One physical allocation behind a part of a range: the unit of eviction, because cuMemMap takes a
/// handle from offset 0 only. Bytes are a multiple of the device's granularity.
struct Chunk {
  std::size_t offset = 0;  ///< in the range
  std::size_t bytes = 0;
  ChunkState state = ChunkState::kUnbacked;
  /// A gate has been open since its content was last known: it may hold anything.
  bool written = false;
  /// While resident; and where a load was given up and the chunk could not be unmapped, until the
  /// next one goes on from there.
  CUmemGenericAllocationHandle handle = 0;
  /// The bytes while kHost; the bytes it had when it was loaded, while kResident: kept until the
  /// memory is needed, because they may still be the same when it leaves again. While !written they
  /// are.
  HostSpan host;
  DiskPlace disk;  ///< the bytes while kDisk; else empty
  bool has_digest = false;
  ChunkHasher::Digest digest{};  ///< of `host`
  bool is_repeated = false;      ///< while !written: each word is `word`
  std::uint32_t word = 0;
  std::uint64_t last_use = 0;  ///< larger is later; only the order means something
  /// Imported: it has been mapped since, or its owner has said that it put it elsewhere.
  bool is_known = false;
  std::uint32_t pins = 0;  ///< holds that keep it in HBM; of RangeTable, under its lock
};

/// Why memory has to stay in HBM, as the user is told. Lives for ever.
struct PinReason {
  const char* text;
  std::optional<wire::MemoryKind> kind;  ///< it is shown as; none: as what it is without the pin
};

/// Who gives a range its physical memory.
enum class Backing : std::uint8_t {
  kOwnChunks,  ///< cuMemCreate by this process's pager
  kImported,   ///< handles of another process, through the node manager (sharing.h)
};

/// Another place where the job has mapped a range: the range's own addresses are then ours alone.
struct Alias {
  std::uint64_t start = 0;
  std::vector<CUmemAccessDesc> access;  ///< empty: mapped, reachable by nobody
};

/// A stretch of reserved addresses that the job has one allocation in, or several small ones.
struct Range {
  std::uint64_t start = 0;
  std::size_t bytes = 0;         ///< as asked for
  std::size_t mapped_bytes = 0;  ///< sum of the chunks; what is charged
  CUdevice device = 0;
  CUcontext context = nullptr;  ///< it was allocated in; it dies with it
  wire::MemoryKind kind = wire::MemoryKind::kAlloc;
  Backing backing = Backing::kOwnChunks;
  std::uint32_t owners = 1;      ///< processes that hold it
  bool is_shared_block = false;  ///< small allocations are inside
  bool is_hidden = false;        ///< freed by the job; stays as long as other processes have it
  bool is_unsure = false;        ///< imported: what is mapped may not be what the owner has now
  std::uint64_t export_id = 0;   ///< its name to other processes; 0: none
  std::uint64_t identifier = 0;  ///< unique in this process, never reused
  std::vector<Chunk> chunks;
  /// Of devices beside its own. Changed only by who has claimed every chunk
  /// (RangeTable::claim_all).
  std::vector<CUmemAccessDesc> access;
  std::vector<Alias> aliases;                     ///< likewise
  std::optional<CUmemAllocationProp> properties;  ///< as the job asked; none: the pager's usual
  // Of RangeTable, under its lock.
  std::vector<std::pair<const PinReason*, std::uint32_t>> pin_reasons;  ///< and how many pins each
  std::uint32_t claims = 0;                                             ///< chunks in state kMoving
  bool doomed = false;  ///< freed while claimed: whoever settles the last claim releases it
};

}  // namespace plexrl::shim
