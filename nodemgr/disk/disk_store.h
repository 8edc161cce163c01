#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nodemgr/disk/chunk_cipher.h"
#include "nodemgr/disk/chunk_mover.h"
#include "nodemgr/disk/file_io.h"
#include "nodemgr/disk/place_set.h"
#include "nodemgr/disk/spill_file.h"
#include "nodemgr/scoped_fd.h"

namespace plexrl::nodemgr::disk {

/// Chunks on disk: sealed (chunk_cipher.h) in unlinked files, one for each owner.
///
/// Bytes come from memfds and go to memfds, which are read and written, never mapped. Threads of
/// this class move them, each one chunk at a time in pieces, so that a piece is sealed while the
/// one before is on its way to the disk. Moves that touch the same place of a file happen in the
/// order in which they were asked for. Results are taken by `finished` when `event_fd` is readable.
/// All functions are for the loop's thread.
class DiskStore {
 public:
  using Owner = std::uint64_t;

  struct Options {
    std::string folder;
    std::uint64_t limit_bytes = 0;  ///< of all files together
    /// Distinguishes the nonces of managers that know the same keys: never the same twice.
    std::uint32_t generation = 0;
    /// What each thread moves bytes with. Null: there is no such thing here, and they take pread(2)
    /// and pwrite(2), several threads of them.
    std::function<std::unique_ptr<FileIo>()> make_io = [] { return make_ring_io(kDepth); };
  };

  enum class Outcome {
    kDone,
    kFull,     ///< the limit, or the file system: nothing was written
    kFailed,   ///< an error of the disk or of the memfd
    kDamaged,  ///< what was read is not what was written
  };

  /// A chunk: where it is in memory and on disk. Sizes and places on disk in SpillFile::kUnit.
  struct Place {
    std::uint64_t memory_offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t file_offset = 0;
  };
  struct Result {
    Owner owner = 0;
    std::uint64_t request = 0;  ///< as given
    Outcome outcome = Outcome::kDone;
    Seal seal;         ///< of what was written
    std::string text;  ///< what failed; "" when done
  };

  /// Errors: no file can be made in the folder, no memory.
  static absl::StatusOr<std::unique_ptr<DiskStore>> open(Options options);
  DiskStore(const DiskStore&) = delete;
  DiskStore& operator=(const DiskStore&) = delete;
  /// Waits for the moves under way; the others are dropped.
  ~DiskStore();

  void set_limit(std::uint64_t bytes) { options_.limit_bytes = bytes; }

  /// The owner's file, made if there is none yet; ours. Errors: the folder's.
  absl::StatusOr<const SpillFile*> file(Owner owner);
  bool has_file(Owner owner) const { return files_.count(owner) != 0; }
  /// A file of an earlier manager (SpillFile::reopen), with what is written in it, becomes the
  /// owner's, who has none here.
  void adopt(Owner owner, std::unique_ptr<SpillFile> file);

  /// Writes a chunk of `memory`, which is kept open meanwhile. It may be read before `finished` has
  /// said that it is done, not before it was asked for.
  void write(Owner owner, std::uint64_t request, ScopedFd memory, const Place& place);
  /// Reads it back. `memory` may hold anything there if the outcome is not kDone.
  void read(Owner owner, std::uint64_t request, ScopedFd memory, const Place& place,
            const Seal& seal);
  /// The chunk is not needed any more.
  void discard(Owner owner, std::uint64_t file_offset, std::uint64_t bytes);
  /// Its file goes, after the moves that are under way, whose results still come; those that have
  /// not begun are dropped.
  void drop_owner(Owner owner);

  int event_fd() const { return event_.get(); }
  std::vector<Result> finished();

  /// Written and not discarded, what is about to be written included.
  std::uint64_t bytes_of(Owner owner) const;
  std::uint64_t bytes_in_use() const;
  /// Whether bytes pass the page cache by; false until there is a file.
  bool is_direct() const;

  /// Pieces of a chunk on their way at the same time, and their size.
  static constexpr unsigned kDepth = 4;
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

 private:
  enum class Kind { kWrite, kRead, kDiscard };
  struct File {
    std::shared_ptr<SpillFile> file;
    PlaceSet places;  ///< written, or about to be
  };
  struct Move {
    Kind kind = Kind::kWrite;
    Owner owner = 0;
    std::uint64_t request = 0;
    std::shared_ptr<SpillFile> file;
    ScopedFd memory;
    Place place;
    Seal seal;
  };
  struct Done {
    Kind kind;
    Place place;
    Result result;
  };

  explicit DiskStore(Options options);
  absl::Status start_threads();
  absl::StatusOr<File*> file_of(Owner owner);
  void queue(Move move);
  void refuse(Owner owner, std::uint64_t request, Outcome outcome, std::string text);
  void publish(Done done);
  bool touches_earlier(std::size_t index) const;
  bool take_next(Move* move);
  void move_loop(ChunkMover& mover);

  Options options_;
  ScopedFd event_;
  std::map<Owner, File> files_;
  std::uint64_t next_nonce_ = 1;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Move> to_do_;
  std::vector<Move*> under_way_;
  std::vector<Done> done_;
  bool stop_ = false;
  std::vector<std::unique_ptr<ChunkMover>> movers_;
  std::vector<std::thread> threads_;
};

}  // namespace plexrl::nodemgr::disk
