#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "nodemgr/disk/chunk_cipher.h"
#include "nodemgr/disk/file_io.h"
#include "nodemgr/disk/spill_file.h"

namespace plexrl::nodemgr::disk {

/// Moves one chunk at a time between a memfd and a file: sealed on the way out, opened on the way
/// in, in pieces that overlap. For one thread.
class ChunkMover {
 public:
  /// Keeps `depth` pieces on their way. Null: no memory for them.
  static std::unique_ptr<ChunkMover> make(std::unique_ptr<FileIo> io, unsigned depth,
                                          std::size_t piece_bytes);
  ChunkMover(const ChunkMover&) = delete;
  ChunkMover& operator=(const ChunkMover&) = delete;
  ~ChunkMover();

  struct Place {
    int memory = -1;
    std::uint64_t memory_offset = 0;
    std::uint64_t file_offset = 0;
    std::uint64_t bytes = 0;
  };

  /// Writes, and adds the tag to `seal`, whose nonce is given. Errors: RESOURCE_EXHAUSTED, the file
  /// system is full; else what failed.
  [[nodiscard]] absl::Status write(SpillFile& file, const Place& place, Seal* seal);
  /// Errors: DATA_LOSS, these are not the bytes that were written; else what failed.
  [[nodiscard]] absl::Status read(SpillFile& file, const Place& place, const Seal& seal);

 private:
  struct Piece {
    std::byte* data = nullptr;
    std::uint64_t at = 0;  ///< in the chunk
    std::size_t bytes = 0;
    std::size_t moved = 0;
    Attempt attempt;
    bool is_busy = false;
    bool was_direct = false;  ///< when the attempt began
  };

  ChunkMover(std::unique_ptr<FileIo> io, unsigned depth, std::size_t piece_bytes, void* buffers);
  Piece& piece(std::size_t index) { return pieces_[index % pieces_.size()]; }
  Piece& lay_out(std::size_t index, const Place& place);
  void start(SpillFile& file, const Place& place, Attempt::Way way, Piece& piece);
  absl::Status finish(SpillFile& file, const Place& place, Attempt::Way way, Piece& piece);
  absl::Status write_pieces(SpillFile& file, const Place& place, ChunkCipher& cipher);
  absl::Status read_pieces(SpillFile& file, const Place& place, ChunkCipher& cipher);
  /// No piece may be on its way when its buffer is used again.
  void settle();

  std::unique_ptr<FileIo> io_;
  std::size_t piece_bytes_;
  std::byte* buffers_;  ///< one mapping, wiped at the end
  std::vector<Piece> pieces_;
};

}  // namespace plexrl::nodemgr::disk
