#include "tools/simgpu/nccl/meeting.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "tools/simgpu/driver/shared_event.h"
#include "tools/simgpu/driver/spec.h"

namespace plexrl::simgpu::nccl {
namespace {

constexpr long kLookNs = 20'000'000;  // between looks whether others live

std::string file_path(const MeetingId& id) {
  Spec spec;
  std::string error;
  const char* const text = std::getenv("PLEXRL_SIMGPU");
  parse_spec(text != nullptr ? text : "", &spec, &error);
  std::string path = state_folder(spec) + "/" + kCommunicatorPrefix;
  for (const std::uint8_t byte : id) {
    constexpr char kDigits[] = "0123456789abcdef";
    path += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return path;
}

bool is_set(const std::atomic<bool>* flag) {
  return flag != nullptr && flag->load(std::memory_order_relaxed);
}

}  // namespace

struct Meeting::Header {
  std::atomic<std::uint32_t> ranks;
  std::atomic<std::uint32_t> bell;
  std::atomic<std::uint32_t> waiting;  ///< a count that may be too high: of the killed too
};

struct Meeting::RankPage {
  std::atomic<State> state;
  std::array<std::uint8_t, 16> device;  ///< before `state`
  std::atomic<std::uint64_t> said;      ///< words, the last two of them in `words`
  Word words[2];
};

namespace {
constexpr std::size_t kPageBytes = 4096;
}

Meeting::RankPage& Meeting::page(int rank) const {
  static_assert(sizeof(RankPage) <= kPageBytes && sizeof(Header) <= kPageBytes);
  return *reinterpret_cast<RankPage*>(base_ + kPageBytes * (1 + static_cast<std::size_t>(rank)));
}

Meeting::Channel& Meeting::channel(int rank) {
  return reinterpret_cast<Channel*>(base_ +
                                    kPageBytes * (1 + static_cast<std::size_t>(ranks_)))[rank];
}

Meeting::Channel& Meeting::channel(int from, int to) {
  return *(&channel(ranks_ - 1) + 1 + from * ranks_ + to);
}

Meeting::~Meeting() {
  if (base_ == nullptr) return;
  if (page(rank_).state.load(std::memory_order_relaxed) == State::kHere) set_state(State::kLeft);
  munmap(base_, bytes_);
}

ncclResult_t Meeting::attach(const MeetingId& id, std::string* why) {
  path_ = file_path(id);
  bytes_ =
      kPageBytes * (1 + static_cast<std::size_t>(ranks_)) +
      sizeof(Channel) * static_cast<std::size_t>(ranks_) * static_cast<std::size_t>(1 + ranks_);
  const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes_)) != 0 || !marks_.open(path_)) {
    *why = "can't open " + path_ + ": " + std::strerror(errno);
    if (fd >= 0) close(fd);
    return ncclSystemError;
  }
  void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at == MAP_FAILED) {
    *why = "can't map " + path_ + ": " + std::strerror(errno);
    return ncclSystemError;
  }
  base_ = static_cast<std::byte*>(at);
  return ncclSuccess;
}

ncclResult_t Meeting::join(const MeetingId& id, int ranks, int rank,
                           const std::array<std::uint8_t, 16>& device,
                           const std::atomic<bool>* gives_up, std::string* why) {
  rank_ = rank;
  ranks_ = ranks;
  if (const ncclResult_t attached = attach(id, why); attached != ncclSuccess) return attached;
  auto& header = *reinterpret_cast<Header*>(base_);
  std::uint32_t nobody = 0;
  if (!header.ranks.compare_exchange_strong(nobody, static_cast<std::uint32_t>(ranks)) &&
      nobody != static_cast<std::uint32_t>(ranks)) {
    *why = "another rank says that there are " + std::to_string(nobody) + " ranks, not " +
           std::to_string(ranks);
    return ncclInvalidUsage;
  }
  if (!marks_.take(rank)) {
    *why = "there is a rank " + std::to_string(rank) + " already";
    return ncclInvalidUsage;
  }
  page(rank).device = device;
  set_state(State::kHere);
  const ncclResult_t result = await_all(gives_up, why);
  // Where not all come it stays, with the others who wait, until the machine ends.
  if (rank == 0 && result == ncclSuccess) unlink(path_.c_str());
  return result != ncclSuccess ? result : check_devices(why);
}

ncclResult_t Meeting::await_all(const std::atomic<bool>* gives_up, std::string* why) {
  const auto is_here = [this](int rank) {
    return page(rank).state.load(std::memory_order_acquire) != State::kAbsent;
  };
  for (int other = 0; other < ranks_;) {
    const std::uint32_t seen = bell();
    // Who came and has gone again is missed only by those for whom somebody is still to come.
    int gone = -1;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (is_here(rank) && is_gone(rank)) gone = rank;
    }
    if (is_here(other)) {
      ++other;
    } else if (is_set(gives_up)) {
      *why = "aborted before all ranks had come";
      return ncclInvalidUsage;
    } else if (gone >= 0) {
      *why = "rank " + std::to_string(gone) + " ended before all ranks had come";
      return ncclRemoteError;
    } else {
      wait(seen);
    }
  }
  return ncclSuccess;
}

ncclResult_t Meeting::check_devices(std::string* why) const {
  for (int a = 0; a < ranks_; ++a) {
    for (int b = 0; b < a; ++b) {
      if (page(a).device != page(b).device) continue;
      *why = "duplicate GPU: ranks " + std::to_string(b) + " and " + std::to_string(a) +
             " are on the same device; give each rank its own";
      return ncclInvalidUsage;
    }
  }
  return ncclSuccess;
}

std::uint32_t Meeting::bell() const {
  return reinterpret_cast<const Header*>(base_)->bell.load(std::memory_order_seq_cst);
}

void Meeting::ring() {
  auto& header = *reinterpret_cast<Header*>(base_);
  header.bell.fetch_add(1, std::memory_order_seq_cst);
  // Sequentially consistent with wait(): either this sees who waits, or that sees the bell.
  if (header.waiting.load(std::memory_order_seq_cst) != 0)
    syscall(SYS_futex, &header.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Meeting::wait(std::uint32_t seen) {
  auto& header = *reinterpret_cast<Header*>(base_);
  header.waiting.fetch_add(1, std::memory_order_seq_cst);
  const timespec time{0, kLookNs};
  syscall(SYS_futex, &header.bell, FUTEX_WAIT, seen, &time, nullptr, 0);
  header.waiting.fetch_sub(1, std::memory_order_seq_cst);
}

void Meeting::set_state(State state) {
  page(rank_).state.store(state, std::memory_order_release);
  ring();
}

bool Meeting::is_gone(int rank) const {
  const State state = page(rank).state.load(std::memory_order_acquire);
  return state == State::kLeft || state == State::kFailed ||
         (rank != rank_ && !marks_.is_taken(rank));
}

ncclResult_t Meeting::exchange(const Word& mine, const std::atomic<bool>* gives_up,
                               std::vector<Word>* all) {
  const std::uint64_t number = exchanges_++;
  // Two words suffice: who is at the next exchange has read all of the one before.
  page(rank_).words[number % 2] = mine;
  page(rank_).said.store(number + 1, std::memory_order_release);
  ring();
  all->clear();
  for (int other = 0; other < ranks_;) {
    const std::uint32_t seen = bell();
    if (page(other).said.load(std::memory_order_acquire) > number) {
      all->push_back(page(other++).words[number % 2]);
      continue;
    }
    if (is_set(gives_up)) return ncclInvalidUsage;
    const bool is_over = is_gone(other);
    if (is_over && page(other).said.load(std::memory_order_acquire) <= number)
      return ncclRemoteError;
    wait(seen);
  }
  return ncclSuccess;
}

}  // namespace plexrl::simgpu::nccl
