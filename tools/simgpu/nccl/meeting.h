#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/simgpu/driver/alive_marks.h"
#include "tools/simgpu/nccl/nccl_api.h"

namespace plexrl::simgpu::nccl {

/// Which communicator: what a unique id says, and what ranks derive alike for one that is made from
/// another.
using MeetingId = std::array<std::uint8_t, 16>;

/// One rank's look at the file that the ranks of a communicator share, in the state folder of the
/// simulated machine. It has no name any more once all have come.
///
///   header   how many ranks, the bell
///   ranks    for each rank: its state, its counters, what it says to the others outside of kernels
///   slots    for each rank two slots for rounds of collectives
///   pairs    for each ordered pair of ranks two counters and two slots, for send and receive
///
/// Every word has one writer but for the bell, which all add to. A counter counts rounds: `posted`
/// those that the writer has put into a slot (round k into slot k % kSlots), `taken` those that a
/// reader is done with. A slot is filled again when all readers are done with what was in it. Each
/// rank has a mark that goes with its process (alive_marks.h), so its death is seen.
///
/// Threads: any, each rank's counters by one thread at a time.
class Meeting {
 public:
  static constexpr std::size_t kSlotBytes = 256 << 10;
  static constexpr std::uint64_t kSlots = 2;
  static constexpr int kMaxRanks = 64;
  static constexpr std::size_t kWordBytes = 32;  ///< that a rank says to the others at once

  enum class State : std::uint32_t { kAbsent, kHere, kLeft, kFailed };

  struct Slot {
    std::uint64_t start_ns;  ///< device time at which the writer's operation began
    std::uint64_t what;      ///< which operation the writer believes this is
    std::byte data[kSlotBytes];
  };
  struct Channel {
    std::atomic<std::uint64_t> posted;
    std::atomic<std::uint64_t> taken;
    Slot slots[kSlots];
  };

  /// Comes as `rank` of `ranks` and waits until all have come, or `*gives_up` is set
  /// (ncclInvalidUsage, as for a communicator that was aborted). `device` is the UUID of its GPU:
  /// no two ranks may have the same. Errors: ncclInvalidUsage, ncclSystemError, ncclRemoteError,
  /// with
  /// `*why`.
  ncclResult_t join(const MeetingId& id, int ranks, int rank,
                    const std::array<std::uint8_t, 16>& device, const std::atomic<bool>* gives_up,
                    std::string* why);
  Meeting() = default;
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// Of this rank's collectives, as of every other's.
  Channel& channel(int rank);
  Channel& channel(int from, int to);

  /// To be read before looking for what one may wait for.
  std::uint32_t bell() const;
  /// After a change that others may wait for.
  void ring();
  /// Until the bell is not `seen` any more, or for a moment, after which the caller looks whether
  /// others live.
  void wait(std::uint32_t seen);

  /// What this rank is for the others from now on.
  void set_state(State state);
  /// Whether a rank will do no more: it has left, failed, or its process has ended.
  bool is_gone(int rank) const;

  /// All ranks say `mine` and hear what the others say; called by all in the same order.
  using Word = std::array<std::byte, kWordBytes>;
  ncclResult_t exchange(const Word& mine, const std::atomic<bool>* gives_up,
                        std::vector<Word>* all);

 private:
  struct Header;
  struct RankPage;
  RankPage& page(int rank) const;
  ncclResult_t attach(const MeetingId& id, std::string* why);
  ncclResult_t await_all(const std::atomic<bool>* gives_up, std::string* why);
  ncclResult_t check_devices(std::string* why) const;

  int rank_ = 0;
  int ranks_ = 0;
  std::uint64_t exchanges_ = 0;
  std::string path_;
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  AliveMarks marks_;
};

}  // namespace plexrl::simgpu::nccl
