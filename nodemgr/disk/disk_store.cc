#include "nodemgr/disk/disk_store.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr::disk {
namespace {

/// With io_uring one thread keeps a disk busy; the second seals meanwhile. Without, each thread
/// waits for its own piece.
constexpr unsigned kThreads = 2;
constexpr unsigned kPlainThreads = 8;
/// Places that are not in use need not be given back, but after a write that failed; who says so
/// again and again makes no queue longer than this.
constexpr std::size_t kMostToDo = 4096;

DiskStore::Outcome outcome_of(const absl::Status& status) {
  if (status.ok()) return DiskStore::Outcome::kDone;
  if (absl::IsResourceExhausted(status)) return DiskStore::Outcome::kFull;
  if (absl::IsDataLoss(status)) return DiskStore::Outcome::kDamaged;
  return DiskStore::Outcome::kFailed;
}

}  // namespace

DiskStore::DiskStore(Options options)
    : options_(std::move(options)), event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  // A manager that has lost its journal counts its generations from the first again.
  while (::getrandom(&next_nonce_, sizeof next_nonce_, 0) != sizeof next_nonce_) {
  }
}

absl::StatusOr<std::unique_ptr<DiskStore>> DiskStore::open(Options options) {
  auto trial = SpillFile::create(options.folder);
  if (!trial.ok()) return trial.status();
  std::unique_ptr<DiskStore> store(new DiskStore(std::move(options)));
  absl::Status status = store->start_threads();
  if (!status.ok()) return status;
  return store;
}

absl::Status DiskStore::start_threads() {
  auto io = options_.make_io();
  const unsigned count = io != nullptr ? kThreads : kPlainThreads;
  while (movers_.size() < count) {
    if (io == nullptr) io = make_plain_io();
    movers_.push_back(ChunkMover::make(std::move(io), kDepth, kPieceBytes));
    if (movers_.back() == nullptr) return absl::ResourceExhaustedError("no memory for buffers");
    io = options_.make_io();
  }
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  for (const auto& mover : movers_) {
    threads_.emplace_back([this, &mover] { move_loop(*mover); });
    ::pthread_setname_np(threads_.back().native_handle(), "plexrl-disk");
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return absl::OkStatus();
}

DiskStore::~DiskStore() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<DiskStore::File*> DiskStore::file_of(Owner owner) {
  auto it = files_.find(owner);
  if (it != files_.end()) return &it->second;
  auto made = SpillFile::create(options_.folder);
  if (!made.ok()) return made.status();
  File& file = files_[owner];
  file.file = *std::move(made);
  return &file;
}

absl::StatusOr<const SpillFile*> DiskStore::file(Owner owner) {
  const auto found = file_of(owner);
  if (!found.ok()) return found.status();
  return (*found)->file.get();
}

void DiskStore::adopt(Owner owner, std::unique_ptr<SpillFile> adopted) {
  File& file = files_[owner];
  file.file = std::move(adopted);
  file.file->each_written(
      [&](std::uint64_t offset, std::uint64_t bytes) { file.places.add(offset, bytes); });
}

void DiskStore::write(Owner owner, std::uint64_t request, ScopedFd memory, const Place& place) {
  const auto file = file_of(owner);
  if (!file.ok()) {
    return refuse(owner, request, outcome_of(file.status()), message_of(file.status()));
  }
  const std::uint64_t more = (*file)->places.missing(place.file_offset, place.bytes);
  const std::uint64_t used = bytes_in_use();
  if (more > options_.limit_bytes || used > options_.limit_bytes - more) {
    return refuse(owner, request, Outcome::kFull,
                  cat("the disk budget of ", options_.limit_bytes, " bytes is used up"));
  }
  (*file)->places.add(place.file_offset, place.bytes);
  Move move{Kind::kWrite, owner, request, (*file)->file, std::move(memory), place, {}};
  std::memcpy(move.seal.nonce.data(), &options_.generation, sizeof options_.generation);
  std::memcpy(move.seal.nonce.data() + sizeof options_.generation, &next_nonce_,
              sizeof next_nonce_);
  ++next_nonce_;
  queue(std::move(move));
}

void DiskStore::read(Owner owner, std::uint64_t request, ScopedFd memory, const Place& place,
                     const Seal& seal) {
  auto it = files_.find(owner);
  if (it == files_.end()) {
    return refuse(owner, request, Outcome::kFailed, "nothing of this process is on disk");
  }
  queue({Kind::kRead, owner, request, it->second.file, std::move(memory), place, seal});
}

void DiskStore::discard(Owner owner, std::uint64_t file_offset, std::uint64_t bytes) {
  auto it = files_.find(owner);
  if (it == files_.end()) return;
  const bool is_used = it->second.places.missing(file_offset, bytes) != bytes;
  it->second.places.remove(file_offset, bytes);
  if (!is_used) {
    const std::lock_guard lock(mutex_);
    if (to_do_.size() >= kMostToDo) return;
  }
  queue({Kind::kDiscard, owner, 0, it->second.file, ScopedFd(), {0, bytes, file_offset}, {}});
}

void DiskStore::drop_owner(Owner owner) {
  std::lock_guard lock(mutex_);
  std::erase_if(to_do_, [&](const Move& move) { return move.owner == owner; });
  std::erase_if(done_, [&](const Done& done) { return done.result.owner == owner; });
  files_.erase(owner);
  changed_.notify_all();
}

void DiskStore::queue(Move move) {
  {
    std::lock_guard lock(mutex_);
    to_do_.push_back(std::move(move));
  }
  changed_.notify_one();
}

void DiskStore::refuse(Owner owner, std::uint64_t request, Outcome outcome, std::string text) {
  std::lock_guard lock(mutex_);
  // Not as a write: what is at its place stays.
  publish({Kind::kRead, {}, {owner, request, outcome, {}, std::move(text)}});
}

void DiskStore::publish(Done done) {
  done_.push_back(std::move(done));
  ::eventfd_write(event_.get(), 1);
}

std::vector<DiskStore::Result> DiskStore::finished() {
  eventfd_t ignored;
  ::eventfd_read(event_.get(), &ignored);
  std::vector<Done> done;
  {
    std::lock_guard lock(mutex_);
    done = std::exchange(done_, {});
  }
  std::vector<Result> results;
  for (Done& one : done) {
    auto file = files_.find(one.result.owner);
    const bool is_lost = one.kind == Kind::kWrite && one.result.outcome != Outcome::kDone;
    if (is_lost && file != files_.end()) {
      file->second.places.remove(one.place.file_offset, one.place.bytes);
    }
    results.push_back(std::move(one.result));
  }
  return results;
}

std::uint64_t DiskStore::bytes_of(Owner owner) const {
  auto it = files_.find(owner);
  return it == files_.end() ? 0 : it->second.places.bytes();
}

std::uint64_t DiskStore::bytes_in_use() const {
  std::uint64_t sum = 0;
  for (const auto& [owner, file] : files_) sum += file.places.bytes();
  return sum;
}

bool DiskStore::is_direct() const {
  return !files_.empty() && std::all_of(files_.begin(), files_.end(), [](const auto& one) {
    return one.second.file->is_direct();
  });
}

// ---- the threads

bool DiskStore::touches_earlier(std::size_t index) const {
  const Move& move = to_do_[index];
  auto touches = [&](const Move& other) {
    return other.file == move.file &&
           other.place.file_offset < move.place.file_offset + move.place.bytes &&
           move.place.file_offset < other.place.file_offset + other.place.bytes;
  };
  return std::any_of(under_way_.begin(), under_way_.end(),
                     [&](const Move* other) { return touches(*other); }) ||
         std::any_of(to_do_.begin(), to_do_.begin() + static_cast<std::ptrdiff_t>(index), touches);
}

bool DiskStore::take_next(Move* move) {
  for (std::size_t i = 0; i < to_do_.size(); ++i) {
    if (touches_earlier(i)) continue;
    *move = std::move(to_do_[i]);
    to_do_.erase(to_do_.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  }
  return false;
}

void DiskStore::move_loop(ChunkMover& mover) {
  std::unique_lock lock(mutex_);
  while (true) {
    Move move;
    changed_.wait(lock, [&] { return stop_ || take_next(&move); });
    if (stop_) return;
    under_way_.push_back(&move);
    lock.unlock();
    const ChunkMover::Place place{move.memory.get(), move.place.memory_offset,
                                  move.place.file_offset, move.place.bytes};
    absl::Status status;
    if (move.kind == Kind::kDiscard) {
      move.file->give_back(place.file_offset, place.bytes);
    } else if (move.kind == Kind::kWrite) {
      status = mover.write(*move.file, place, &move.seal);
    } else {
      status = mover.read(*move.file, place, move.seal);
    }
    lock.lock();
    std::erase(under_way_, &move);
    if (move.kind != Kind::kDiscard) {
      publish({move.kind,
               move.place,
               {move.owner, move.request, outcome_of(status), move.seal, message_of(status)}});
    }
    changed_.notify_all();  // what touched the same place may begin
  }
}

}  // namespace plexrl::nodemgr::disk
