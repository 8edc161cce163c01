#include "nodemgr/disk/chunk_mover.h"

#include <openssl/crypto.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr::disk {
namespace {

/// All of it from the memfd, or to it: they are short only where its end is.
template <typename Call>
absl::Status whole(Call call, std::byte* data, std::size_t bytes, std::uint64_t offset,
                   const char* what) {
  while (bytes != 0) {
    const ssize_t moved = call(data, bytes, static_cast<off_t>(offset));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0)
      return absl::UnknownError(cat(what, ": ", std::generic_category().message(errno)));
    if (moved == 0) return absl::OutOfRangeError(cat(what, ": beyond its end"));
    data += moved;
    bytes -= static_cast<std::size_t>(moved);
    offset += static_cast<std::uint64_t>(moved);
  }
  return absl::OkStatus();
}

/// Bytes are copied and sealed a stretch at a time, while they are in the processor's cache.
constexpr std::size_t kStretchBytes = std::size_t{64} << 10;

/// Calls `each` for the stretches of a piece, with their place in it.
template <typename Each>
absl::Status by_stretches(std::span<std::byte> piece, Each each) {
  for (std::size_t at = 0; at < piece.size(); at += kStretchBytes) {
    const std::size_t bytes = std::min(kStretchBytes, piece.size() - at);
    absl::Status status = each(piece.subspan(at, bytes), at);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status seal_from(int memory, std::uint64_t offset, std::span<std::byte> piece,
                       ChunkCipher& cipher) {
  return by_stretches(piece, [&](std::span<std::byte> stretch, std::size_t at) {
    absl::Status status =
        whole([memory](std::byte* to, std::size_t bytes,
                       off_t from) { return ::pread(memory, to, bytes, from); },
              stretch.data(), stretch.size(), offset + at, "can't read host memory");
    return status.ok() ? cipher.update(stretch) : status;
  });
}

absl::Status open_into(int memory, std::uint64_t offset, std::span<std::byte> piece,
                       ChunkCipher& cipher) {
  return by_stretches(piece, [&](std::span<std::byte> stretch, std::size_t at) {
    absl::Status status = cipher.update(stretch);
    if (!status.ok()) return status;
    return whole([memory](const std::byte* from, std::size_t bytes,
                          off_t to) { return ::pwrite(memory, from, bytes, to); },
                 stretch.data(), stretch.size(), offset + at, "can't write host memory");
  });
}

absl::Status disk_error(Attempt::Way way, int error) {
  const char* const what = way == Attempt::Way::kWrite ? "can't write: " : "can't read: ";
  if (error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(cat(what, std::generic_category().message(error)));
  }
  return absl::UnknownError(cat(what, std::generic_category().message(error)));
}

}  // namespace

std::unique_ptr<ChunkMover> ChunkMover::make(std::unique_ptr<FileIo> io, unsigned depth,
                                             std::size_t piece_bytes) {
  void* const buffers = ::mmap(nullptr, depth * piece_bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffers == MAP_FAILED) return nullptr;
  // They hold what jobs compute, if only for a moment.
  ::madvise(buffers, depth * piece_bytes, MADV_DONTDUMP);
  return std::unique_ptr<ChunkMover>(new ChunkMover(std::move(io), depth, piece_bytes, buffers));
}

ChunkMover::ChunkMover(std::unique_ptr<FileIo> io, unsigned depth, std::size_t piece_bytes,
                       void* buffers)
    : io_(std::move(io)),
      piece_bytes_(piece_bytes),
      buffers_(static_cast<std::byte*>(buffers)),
      pieces_(depth) {
  for (unsigned i = 0; i < depth; ++i) pieces_[i].data = buffers_ + i * piece_bytes;
}

ChunkMover::~ChunkMover() {
  OPENSSL_cleanse(buffers_, pieces_.size() * piece_bytes_);
  ::munmap(buffers_, pieces_.size() * piece_bytes_);
}

ChunkMover::Piece& ChunkMover::lay_out(std::size_t index, const Place& place) {
  Piece& next = piece(index);
  next.at = index * piece_bytes_;
  next.bytes =
      static_cast<std::size_t>(std::min<std::uint64_t>(piece_bytes_, place.bytes - next.at));
  next.moved = 0;
  return next;
}

void ChunkMover::start(SpillFile& file, const Place& place, Attempt::Way way, Piece& piece) {
  piece.attempt = {way,
                   file.fd(),
                   piece.data + piece.moved,
                   piece.bytes - piece.moved,
                   place.file_offset + piece.at + piece.moved,
                   0,
                   false};
  piece.is_busy = true;
  piece.was_direct = file.is_direct();
  io_->start(&piece.attempt);
}

absl::Status ChunkMover::finish(SpillFile& file, const Place& place, Attempt::Way way,
                                Piece& piece) {
  while (true) {
    io_->finish(&piece.attempt);
    piece.is_busy = false;
    const ssize_t result = piece.attempt.result;
    if (result == -EINVAL && piece.was_direct) {
      file.leave_direct();
    } else if (result == 0) {
      return disk_error(way, EIO);  // the end of a file that was longer
    } else if (result < 0 && result != -EINTR) {
      return disk_error(way, static_cast<int>(-result));
    } else if (result > 0) {
      const std::size_t moved = piece.moved + static_cast<std::size_t>(result);
      if (moved >= piece.bytes) return absl::OkStatus();
      // Direct accesses begin at whole units: a part of one is moved again.
      const std::size_t whole_units = moved / SpillFile::kUnit * SpillFile::kUnit;
      if (whole_units == piece.moved) file.leave_direct();
      piece.moved = file.is_direct() ? whole_units : moved;
    }
    start(file, place, way, piece);
  }
}

void ChunkMover::settle() {
  for (Piece& piece : pieces_) {
    if (std::exchange(piece.is_busy, false)) io_->finish(&piece.attempt);
  }
}

absl::Status ChunkMover::write(SpillFile& file, const Place& place, Seal* seal) {
  absl::Status status = file.take(place.file_offset, place.bytes);
  if (!status.ok()) return status;
  auto cipher = ChunkCipher::begin(ChunkCipher::Way::kSeal, file.key(), *seal, place.file_offset);
  status = cipher.ok() ? write_pieces(file, place, *cipher) : cipher.status();
  settle();
  if (status.ok()) {
    const auto tag = cipher->tag();
    status = tag.status();
    if (tag.ok()) seal->tag = *tag;
  }
  if (!status.ok()) file.give_back(place.file_offset, place.bytes);
  return status;
}

absl::Status ChunkMover::write_pieces(SpillFile& file, const Place& place, ChunkCipher& cipher) {
  constexpr auto kWay = Attempt::Way::kWrite;
  const std::size_t count = (place.bytes + piece_bytes_ - 1) / piece_bytes_;
  for (std::size_t i = 0; i < count + pieces_.size(); ++i) {
    // The buffer's last piece, or nothing.
    if (i >= pieces_.size() && piece(i).is_busy) {
      absl::Status status = finish(file, place, kWay, piece(i));
      if (!status.ok()) return status;
    }
    if (i >= count) continue;
    Piece& next = lay_out(i, place);
    absl::Status status =
        seal_from(place.memory, place.memory_offset + next.at, {next.data, next.bytes}, cipher);
    if (!status.ok()) return status;
    start(file, place, kWay, next);
  }
  return absl::OkStatus();
}

absl::Status ChunkMover::read(SpillFile& file, const Place& place, const Seal& seal) {
  auto cipher = ChunkCipher::begin(ChunkCipher::Way::kOpen, file.key(), seal, place.file_offset);
  if (!cipher.ok()) return cipher.status();
  absl::Status status = read_pieces(file, place, *cipher);
  settle();
  if (!status.ok()) return status;
  if (!cipher->is_genuine(seal)) {
    return absl::DataLossError("the disk gave back other bytes than were written");
  }
  return absl::OkStatus();
}

absl::Status ChunkMover::read_pieces(SpillFile& file, const Place& place, ChunkCipher& cipher) {
  constexpr auto kWay = Attempt::Way::kRead;
  const std::size_t count = (place.bytes + piece_bytes_ - 1) / piece_bytes_;
  for (std::size_t i = 0; i < count + pieces_.size(); ++i) {
    if (i >= pieces_.size() && i - pieces_.size() < count) {
      Piece& oldest = piece(i);
      absl::Status status = finish(file, place, kWay, oldest);
      if (status.ok()) {
        status = open_into(place.memory, place.memory_offset + oldest.at,
                           {oldest.data, oldest.bytes}, cipher);
      }
      if (!status.ok()) return status;
    }
    if (i < count) start(file, place, kWay, lay_out(i, place));
  }
  return absl::OkStatus();
}

}  // namespace plexrl::nodemgr::disk
