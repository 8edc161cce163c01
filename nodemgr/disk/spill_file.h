#pragma once

#include <cstdint>
#include <memory>
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
