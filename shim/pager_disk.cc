// Chunks on disk: out when there is no host memory, and in again.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "interpose/driver.h"
#include "shim/boottime.h"
#include "shim/driver_scope.h"
#include "shim/fault_points.h"
#include "shim/log.h"
#include "shim/pager.h"
#include "shim/stream_end.h"

namespace plexrl::shim {
namespace {

constexpr const char* kFile = "pager";

DiskPlace::Seal seal_of(const wire::DiskMoved& moved) {
  DiskPlace::Seal seal;
  std::copy(std::begin(moved.nonce), std::end(moved.nonce), seal.nonce.begin());
  std::copy(std::begin(moved.tag), std::end(moved.tag), seal.tag.begin());
  return seal;
}

const char* name_of(std::uint32_t outcome) {
  switch (outcome) {
    case wire::kDiskFull:
      return "the disk tier is full";
    case wire::kDiskDamaged:
      return "the file was changed or damaged";
    default:
      return "the disk failed";
  }
}

}  // namespace

// ---- out

bool Pager::may_spill(const Lane& lane, const RangeTable::Claim& claim) const {
  // What is shared has to be somewhere from where its importers get it when we die.
  return spill_ != nullptr && claim.range->export_id == 0 && !lane.has_no_disk && spill_->is_on();
}

void Pager::spill_out(Lane& lane, const RangeTable::Claim& claim, EvictFigures* figures) {
  std::optional<DiskPlace> place;
  if (spill_->open(lane.context)) place = spill_->take(claim.bytes());
  if (!place) {
    lane.has_no_disk = true;
    return end_eviction(claim, Saved::kNothing, CUDA_ERROR_OUT_OF_MEMORY, figures);
  }
  const std::size_t pieces = place->pieces();
  lane.spilling.push_back({claim, *std::move(place), 0, false, CUDA_SUCCESS});
  Spilling& its = lane.spilling.back();
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    std::optional<std::size_t> slot;
    while (!(slot = free_slot(lane))) settle_oldest_piece(lane, figures);
    if (its.result != CUDA_SUCCESS) break;
    its.result = write_piece(lane, its, piece, *slot, figures);
    if (its.result != CUDA_SUCCESS) break;
    lane.spill_moves.push_back({&its, piece, *slot});
    ++its.unanswered;
  }
  its.is_begun = true;
  end_spilled(lane, figures);
}

std::optional<std::size_t> Pager::free_slot(const Lane& lane) {
  for (std::size_t slot = 0; slot < SpillStore::kSlots; ++slot) {
    bool is_free = true;
    for (const SpillMove& move : lane.spill_moves) is_free = is_free && move.slot != slot;
    if (is_free) return slot;
  }
  return std::nullopt;
}

CUresult Pager::write_piece(Lane& lane, const Spilling& its, std::size_t piece, std::size_t slot,
                            EvictFigures* figures) {
  // A manager that has gone took the slab with it.
  if (!spill_->open(lane.context)) return CUDA_ERROR_NOT_READY;
  const std::uint64_t bytes = its.place.bytes_of(piece);
  {
    const AddElapsed copy(&figures->copy_ns);
    const std::uint64_t from = its.claim.start() + its.place.start_of(piece);
    CUresult result = driver.cuMemcpyDtoHAsync_v2(spill_->slot(slot), from, bytes, lane.out);
    const CUresult finished = wait_for(lane.out);
    if (result == CUDA_SUCCESS) result = finished;
    if (result != CUDA_SUCCESS) return result;
  }
  figures->moved_bytes += bytes;  // over the link, wherever the chunk is in the end
  PLEXRL_FAULT_POINT("spill.copied");
  const bool is_asked = spill_->begin(DiskLink::Way::kWrite, slot, its.place, piece);
  return is_asked ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

void Pager::settle_oldest_piece(Lane& lane, EvictFigures* figures) {
  const SpillMove move = lane.spill_moves.front();
  lane.spill_moves.pop_front();
  std::optional<wire::DiskMoved> moved;
  {
    const AddElapsed wait(&figures->disk_ns);
    moved = spill_->finish(move.slot);
  }
  Spilling& its = *move.of;
  --its.unanswered;
  if (moved && moved->outcome == wire::kDiskDone) {
    its.place.seals[move.piece] = seal_of(*moved);
  } else {
    if (moved && its.result == CUDA_SUCCESS) {
      PLEXRL_WARN(kFile, "%s, %zu bytes stay in HBM", name_of(moved->outcome), its.claim.bytes());
    }
    its.result = CUDA_ERROR_OUT_OF_MEMORY;
    lane.has_no_disk = true;  // in this eviction
  }
  end_spilled(lane, figures);
}

/// Chunks all of whose pieces are on disk leave; others stay.
void Pager::end_spilled(Lane& lane, EvictFigures* figures) {
  while (!lane.spilling.empty()) {
    Spilling& its = lane.spilling.front();
    if (!its.is_begun || its.unanswered != 0) return;
    Chunk& chunk = its.claim.range->chunks[its.claim.first];
    if (its.result == CUDA_SUCCESS) {
      chunk.disk = std::move(its.place);
    } else {
      spill_->put(its.place);
    }
    const RangeTable::Claim claim = its.claim;
    const CUresult result = its.result;
    lane.spilling.pop_front();
    end_eviction(claim, Saved::kNothing, result, figures);
  }
}

/// Makes room in host memory: the chunk that has been there for longest goes to disk. False: none
/// can.
bool Pager::spill_from_host(Lane& lane, EvictFigures* figures) {
  if (spill_ == nullptr || lane.has_no_disk || !spill_->is_on()) return false;
  const auto claim = ranges_.claim_oldest_in_host();
  if (!claim) return false;
  Chunk& chunk = claim->range->chunks[claim->first];
  auto place = spill_->take(chunk.bytes);
  const bool is_written = place && write_from_host(lane, chunk, &*place, figures);
  if (!is_written) {
    lane.has_no_disk = true;  // in this eviction
    if (place) spill_->put(*place);
    settle(*claim, claim->first, ChunkState::kHost);
    return false;
  }
  chunk.disk = *std::move(place);
  chunk.has_digest = false;
  store_.put(std::exchange(chunk.host, {}));
  settle(*claim, claim->first, ChunkState::kDisk);
  return true;
}

bool Pager::write_from_host(Lane& lane, const Chunk& chunk, DiskPlace* place,
                            EvictFigures* figures) {
  for (std::size_t piece = 0; piece < place->pieces(); ++piece) {
    std::optional<std::size_t> slot;
    while (!(slot = free_slot(lane))) settle_oldest_piece(lane, figures);
    if (!spill_->open(lane.context)) return false;
    std::memcpy(spill_->slot(*slot), chunk.host.address + place->start_of(piece),
                place->bytes_of(piece));
    if (!spill_->begin(DiskLink::Way::kWrite, *slot, *place, piece)) return false;
    const AddElapsed wait(&figures->disk_ns);
    const auto moved = spill_->finish(*slot);
    if (!moved || moved->outcome != wire::kDiskDone) return false;
    place->seals[piece] = seal_of(*moved);
  }
  return true;
}

// ---- in

Pager::Progress Pager::load_spilled(Lane& lane, RangeTable::Claim claim, LoadFigures* figures) {
  if (!spill_->is_on()) {  // neither this manager nor any later one has the file
    for (std::size_t i = 0; i < claim.count; ++i) {
      end_fetch(claim, claim.first + i, Fetched::kLost);
    }
    return Progress::kMore;
  }
  if (!spill_->open(lane.context)) {
    settle_back(claim, 0);
    return Progress::kNoMemory;
  }
  const std::size_t wanted = claim.count;
  prepare(&claim, figures);
  if (claim.count == 0) return Progress::kNoMemory;
  const bool complete = claim.count == wanted;
  std::vector<Fetched> fetched(claim.count, Fetched::kDone);
  fetch_all(lane, claim, &fetched, figures);
  PLEXRL_FAULT_POINT("load.copied");
  bool has_all = complete;
  for (std::size_t i = 0; i < claim.count; ++i) {
    has_all = has_all && fetched[i] != Fetched::kNotNow;
    end_fetch(claim, claim.first + i, fetched[i]);
  }
  return has_all ? Progress::kMore : Progress::kNoMemory;
}

/// Piece by piece through the slots: while one is copied to the device the next is read.
void Pager::fetch_all(Lane& lane, const RangeTable::Claim& claim, std::vector<Fetched>* fetched,
                      LoadFigures* figures) {
  std::vector<Fetch> pieces;
  for (std::size_t i = 0; i < claim.count; ++i) {
    const DiskPlace& place = claim.range->chunks[claim.first + i].disk;
    for (std::size_t piece = 0; piece < place.pieces(); ++piece) pieces.push_back({i, piece});
  }
  const auto begin = [&](std::size_t index) {
    const Fetch& its = pieces[index];
    return spill_->begin(DiskLink::Way::kRead, index % SpillStore::kSlots,
                         claim.range->chunks[claim.first + its.chunk].disk, its.piece);
  };
  std::size_t begun = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    while (begun < pieces.size() && begun < i + SpillStore::kSlots && begin(begun)) ++begun;
    Fetched found = Fetched::kNotNow;
    if (begun > i) found = fetch(lane, claim, pieces[i], i % SpillStore::kSlots, begin, i, figures);
    Fetched& whole = (*fetched)[pieces[i].chunk];
    if (whole == Fetched::kDone) whole = found;
  }
}

template <typename Begin>
Pager::Fetched Pager::fetch(Lane& lane, const RangeTable::Claim& claim, const Fetch& its,
                            std::size_t slot, Begin begin, std::size_t index,
                            LoadFigures* figures) {
  std::optional<wire::DiskMoved> moved;
  {
    const AddElapsed wait(&figures->disk_ns);
    moved = spill_->finish(slot);
    // A disk that failed once may not do so again.
    if (moved && moved->outcome == wire::kDiskFailed && begin(index)) moved = spill_->finish(slot);
  }
  if (!moved) return Fetched::kNotNow;
  if (moved->outcome != wire::kDiskDone) {
    PLEXRL_ERROR(kFile, "memory can't be read back from disk: %s", name_of(moved->outcome));
    return Fetched::kLost;
  }
  const Chunk& chunk = claim.range->chunks[claim.first + its.chunk];
  const std::uint64_t bytes = chunk.disk.bytes_of(its.piece);
  const std::uint64_t to = claim.range->start + chunk.offset + chunk.disk.start_of(its.piece);
  const AddElapsed copy(&figures->copy_ns);
  CUresult result = driver.cuMemcpyHtoDAsync_v2(to, spill_->slot(slot), bytes, lane.in);
  const CUresult finished = wait_for(lane.in);
  if (result == CUDA_SUCCESS) result = finished;
  if (result == CUDA_SUCCESS) {
    figures->moved_bytes += bytes;
    figures->disk_bytes += bytes;
    return Fetched::kDone;
  }
  if (!is_sticky(result)) return Fetched::kNotNow;
  say_given_up(result, bytes);
  return Fetched::kDone;
}

void Pager::end_fetch(const RangeTable::Claim& claim, std::size_t index, Fetched fetched) {
  Chunk& chunk = claim.range->chunks[index];
  if (fetched == Fetched::kDone) {
    chunk.written = true;  // nothing else has its content any more
    spill_->put(std::exchange(chunk.disk, {}));
    return settle(claim, index, ChunkState::kResident);
  }
  const bool is_gone = chunk.handle == 0 || unmap_chunk(*claim.range, chunk) == CUDA_SUCCESS;
  // What is mapped is not what was written there: no gate opens before it is not.
  if (fetched == Fetched::kNotNow || !is_gone) return settle(claim, index, ChunkState::kDisk);
  log_user(
      "%zu bytes of device memory at 0x%llx are lost, because they can't be read back from "
      "disk: calls that use them fail",
      chunk.bytes, static_cast<unsigned long long>(claim.range->start + chunk.offset));
  spill_->put(std::exchange(chunk.disk, {}));
  settle(claim, index, ChunkState::kLost);
}

}  // namespace plexrl::shim
