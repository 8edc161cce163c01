#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nodemgr/disk/chunk_cipher.h"
#include "nodemgr/scoped_fd.h"

namespace plexrl::nodemgr::disk {

/// An unlinked file for sealed chunks of one owner, and their key: it is gone when its last
/// descriptor is closed, and what is left of it can't be read by then.
///
/// Places are chosen by the caller. Offsets and sizes are multiples of kUnit. Threads: any, for
/// different places; who writes a place and gives it back at the same time gets either.
class SpillFile {
 public:
  /// What direct I/O wants offsets and sizes to be a multiple of.
  static constexpr std::uint64_t kUnit = 4096;

  /// In `folder`, without a page cache in between where the file system can. With O_TMPFILE it
  /// never has a name; where the file system has none (`has_tmpfile` false: tests), it has one for
  /// a moment. Errors: the folder's.
  static absl::StatusOr<std::unique_ptr<SpillFile>> create(const std::string& folder,
                                                           bool has_tmpfile = true);
  /// The same file again, by a descriptor that only names it (O_PATH), as a process that outlived
  /// an earlier manager holds it: it may name anything. Errors: it is not an unlinked file of ours
  /// in the file system of `folder`, or not the one with this inode (0: any).
  static absl::StatusOr<std::unique_ptr<SpillFile>> reopen(int name, std::uint64_t inode,
                                                           const std::string& folder,
                                                           std::span<const std::uint8_t> key);
  /// Through which the file can be neither read nor written, and lives on. Errors: no descriptors.
  absl::StatusOr<ScopedFd> name() const;
  std::uint64_t inode() const;
  /// Calls `visit(offset, bytes)` for what has been written and not given back, as the file system
  /// knows it: all of the file where it makes no holes.
  void each_written(const std::function<void(std::uint64_t, std::uint64_t)>& visit) const;

  int fd() const { return fd_.get(); }
  const ChunkKey& key() const { return *key_; }
  bool is_direct() const;
  /// The file system refused a direct access: from now on through the page cache.
  void leave_direct();

  /// Takes the place from the file system. RESOURCE_EXHAUSTED: it is full.
  [[nodiscard]] absl::Status take(std::uint64_t offset, std::uint64_t bytes);
  /// Gives the place back, where the file system can make holes; else it is used again as it is.
  void give_back(std::uint64_t offset, std::uint64_t bytes);

 private:
  SpillFile(ScopedFd fd, std::unique_ptr<ChunkKey> key);

  ScopedFd fd_;
  std::unique_ptr<ChunkKey> key_;
};

}  // namespace plexrl::nodemgr::disk
