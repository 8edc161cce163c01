#include "tools/simgpu/nccl/transfer.h"

#include <algorithm>
#include <cstring>

namespace plexrl::simgpu::nccl {
namespace {

using Kind = Operation::Kind;

/// Between host memory and what the device sees at `address`; false where that is nothing.
bool copy(const ProcessKernelScope& kernel, std::uint64_t address, std::byte* out,
          const std::byte* in, std::size_t bytes) {
  while (bytes > 0) {
    std::uint64_t contiguous = 0;
    std::byte* const memory = kernel.memory(kernel.device, address, &contiguous);
    if (memory == nullptr) return false;
    const std::size_t part = std::min<std::uint64_t>(bytes, contiguous);
    if (out != nullptr) {
      std::memcpy(out, memory, part);
      out += part;
    } else {
      std::memcpy(memory, in, part);
      in += part;
    }
    address += part;
    bytes -= part;
  }
  return true;
}

bool read(const ProcessKernelScope& kernel, std::uint64_t address, std::byte* out,
          std::size_t bytes) {
  return copy(kernel, address, out, nullptr, bytes);
}

bool write(const ProcessKernelScope& kernel, std::uint64_t address, const std::byte* in,
           std::size_t bytes) {
  return copy(kernel, address, nullptr, in, bytes);
}

/// A collective in rounds: in each, one or all ranks post a part of what they send, and one or all
/// take it. All ranks count every round, whether they have a part in it or not.
class Collective final : public Transfer {
 public:
  Collective(const Operation& operation, const Meeting& meeting)
      : op_(operation),
        what_(operation.what()),
        rank_(meeting.rank()),
        ranks_(static_cast<std::size_t>(meeting.ranks())),
        element_(element_bytes(operation.type)),
        part_(Meeting::kSlotBytes / element_),
        parts_((operation.count + part_ - 1) / part_),
        rounds_(parts_ * (for_each_rank() ? ranks_ : 1)) {}

  Step step(TransferScope& scope) override;

 private:
  static constexpr int kAll = -1;

  bool for_each_rank() const {
    return op_.kind == Kind::kReduceScatter || op_.kind == Kind::kAlltoAll ||
           op_.kind == Kind::kScatter;
  }
  /// Whose part a round is about, where rounds are for each rank.
  int subject() const { return static_cast<int>(round_ / parts_); }
  std::size_t first() const { return round_ % parts_ * part_; }
  std::size_t length() const { return std::min(part_, op_.count - first()); }
  bool posts(int rank) const {
    const bool root_alone = op_.kind == Kind::kBroadcast || op_.kind == Kind::kScatter;
    return !root_alone || rank == op_.peer;
  }
  int taker() const {
    if (for_each_rank()) return subject();
    return op_.kind == Kind::kReduce || op_.kind == Kind::kGather ? op_.peer : kAll;
  }
  /// Elements from the beginning of the sender's and the taker's buffer.
  std::size_t sent_at() const {
    return first() + (for_each_rank() ? static_cast<std::size_t>(subject()) * op_.count : 0);
  }
  std::size_t taken_at(int from) const {
    const bool one_behind_other =
        op_.kind == Kind::kAllGather || op_.kind == Kind::kAlltoAll || op_.kind == Kind::kGather;
    return first() + (one_behind_other ? static_cast<std::size_t>(from) * op_.count : 0);
  }

  Step begin(TransferScope& scope);
  Step post(TransferScope& scope);
  Step take(TransferScope& scope);
  bool take_from(TransferScope& scope, int from, const Meeting::Slot& slot);
  Step end_round(TransferScope& scope);
  void book(TransferScope& scope);

  Operation op_;
  const std::uint64_t what_;
  const int rank_;
  const std::size_t ranks_, element_, part_, parts_, rounds_;
  std::size_t round_ = 0;
  std::uint64_t base_ = 0;  ///< rounds of the communicator before
  bool has_begun_ = false;
  bool has_posted_ = false;
  std::uint64_t out_bytes_ = 0, in_bytes_ = 0;
  std::vector<std::byte> sum_;
};

Transfer::Step Collective::begin(TransferScope& scope) {
  base_ = scope.meeting.channel(rank_).posted.load(std::memory_order_relaxed);
  end_ns_ = scope.kernel.start_ns;
  has_begun_ = true;
  if (op_.factor != 0 && !read(scope.kernel, op_.factor, op_.reduction.factor, element_))
    return Step::kFault;
  return Step::kMoved;
}

Transfer::Step Collective::step(TransferScope& scope) {
  if (!has_begun_) return begin(scope);
  if (round_ == rounds_) {
    book(scope);
    return Step::kDone;
  }
  return has_posted_ ? take(scope) : post(scope);
}

Transfer::Step Collective::post(TransferScope& scope) {
  const std::uint64_t number = base_ + round_;
  for (int other = 0; other < static_cast<int>(ranks_); ++other) {
    // Pairs with the release in end_round().
    if (number >=
        scope.meeting.channel(other).taken.load(std::memory_order_acquire) + Meeting::kSlots)
      return wait_for(other);
  }
  Meeting::Channel& mine = scope.meeting.channel(rank_);
  if (posts(rank_)) {
    Meeting::Slot& slot = mine.slots[number % Meeting::kSlots];
    slot.start_ns = scope.kernel.start_ns;
    slot.what = what_;
    if (!read(scope.kernel, op_.send + sent_at() * element_, slot.data, length() * element_))
      return Step::kFault;
    if (op_.reduces()) prepare(op_.reduction, slot.data, length());
    if (taker() != rank_) out_bytes_ += length() * element_;
  }
  mine.posted.store(number + 1, std::memory_order_release);  // pairs with the acquire in take()
  scope.meeting.ring();
  has_posted_ = true;
  return Step::kMoved;
}

Transfer::Step Collective::take(TransferScope& scope) {
  if (taker() != kAll && taker() != rank_) return end_round(scope);
  const std::uint64_t number = base_ + round_;
  for (int from = 0; from < static_cast<int>(ranks_); ++from) {
    if (!posts(from)) continue;
    Meeting::Channel& channel = scope.meeting.channel(from);
    if (channel.posted.load(std::memory_order_acquire) <= number) return wait_for(from);
    if (channel.slots[number % Meeting::kSlots].what != what_) {
      why_ = "rank " + std::to_string(from) + " is at another collective than this rank's " +
             op_.name() + " of " + std::to_string(op_.count) + " elements";
      return Step::kDiffers;
    }
  }
  for (int from = 0; from < static_cast<int>(ranks_); ++from) {
    if (!posts(from)) continue;
    const Meeting::Slot& slot = scope.meeting.channel(from).slots[number % Meeting::kSlots];
    end_ns_ = std::max(end_ns_, slot.start_ns);
    if (from != rank_) in_bytes_ += length() * element_;
    if (!take_from(scope, from, slot)) return Step::kFault;
  }
  if (op_.reduces()) {
    finish(op_.reduction, sum_.data(), length());
    // Through NCCL's own memory, as a GPU's sums go through its.
    if (!write(scope.kernel, scope.scratch.address, sum_.data(), sum_.size()) ||
        !read(scope.kernel, scope.scratch.address, sum_.data(), sum_.size()) ||
        !write(scope.kernel, op_.recv + first() * element_, sum_.data(), sum_.size()))
      return Step::kFault;
  }
  return end_round(scope);
}

bool Collective::take_from(TransferScope& scope, int from, const Meeting::Slot& slot) {
  const std::size_t bytes = length() * element_;
  if (!op_.reduces())
    return write(scope.kernel, op_.recv + taken_at(from) * element_, slot.data, bytes);
  if (from == 0) {
    sum_.assign(slot.data, slot.data + bytes);
  } else {
    combine(op_.reduction, sum_.data(), slot.data, length());
  }
  return true;
}

Transfer::Step Collective::end_round(TransferScope& scope) {
  scope.meeting.channel(rank_).taken.store(base_ + round_ + 1, std::memory_order_release);
  scope.meeting.ring();
  ++round_;
  has_posted_ = false;
  return Step::kMoved;
}

/// As a ring has it: a rank's link carries a reduced or gathered element once for each other rank,
/// divided among the ranks where all of them have the result.
void Collective::book(TransferScope& scope) {
  if (op_.kind == Kind::kAllReduce) {
    const std::uint64_t all = op_.count * element_;
    out_bytes_ = in_bytes_ = 2 * all * (ranks_ - 1) / ranks_;
  }
  const std::uint64_t begun = end_ns_;
  for (const bool leaves : {true, false}) {
    const std::uint64_t bytes = leaves ? out_bytes_ : in_bytes_;
    if (bytes == 0) continue;
    end_ns_ =
        std::max(end_ns_, scope.kernel.book_transfer(scope.kernel.device, leaves, bytes, begun));
  }
}

/// One side of a send and its receive.
class OneWay final : public Transfer {
 public:
  OneWay(const Operation& operation, const Meeting& meeting)
      : op_(operation),
        what_(operation.what()),
        sends_(operation.kind == Kind::kSend),
        rank_(meeting.rank()),
        bytes_(operation.count * element_bytes(operation.type)) {}

  Step step(TransferScope& scope) override {
    if (done_ == bytes_) {
      if (op_.peer != rank_ && bytes_ > 0) {
        end_ns_ = scope.kernel.book_transfer(scope.kernel.device, sends_, bytes_,
                                             std::max(end_ns_, scope.kernel.start_ns));
      }
      return Step::kDone;
    }
    return sends_ ? send(scope) : receive(scope);
  }

 private:
  std::size_t part() const { return std::min(Meeting::kSlotBytes, bytes_ - done_); }

  Step send(TransferScope& scope) {
    Meeting::Channel& channel = scope.meeting.channel(rank_, op_.peer);
    const std::uint64_t number = channel.posted.load(std::memory_order_relaxed);
    if (number >= channel.taken.load(std::memory_order_acquire) + Meeting::kSlots)
      return wait_for(op_.peer);
    Meeting::Slot& slot = channel.slots[number % Meeting::kSlots];
    slot.start_ns = scope.kernel.start_ns;
    slot.what = what_;
    if (!read(scope.kernel, op_.send + done_, slot.data, part())) return Step::kFault;
    done_ += part();
    channel.posted.store(number + 1, std::memory_order_release);
    scope.meeting.ring();
    return Step::kMoved;
  }

  Step receive(TransferScope& scope) {
    Meeting::Channel& channel = scope.meeting.channel(op_.peer, rank_);
    const std::uint64_t number = channel.taken.load(std::memory_order_relaxed);
    if (channel.posted.load(std::memory_order_acquire) <= number) return wait_for(op_.peer);
    const Meeting::Slot& slot = channel.slots[number % Meeting::kSlots];
    if (slot.what != what_) {
      why_ = "rank " + std::to_string(op_.peer) + " sends something else than the " +
             std::to_string(op_.count) + " elements that this rank expects";
      return Step::kDiffers;
    }
    end_ns_ = std::max(end_ns_, slot.start_ns);
    if (!write(scope.kernel, op_.recv + done_, slot.data, part())) return Step::kFault;
    done_ += part();
    channel.taken.store(number + 1, std::memory_order_release);
    scope.meeting.ring();
    return Step::kMoved;
  }

  const Operation op_;
  const std::uint64_t what_;
  const bool sends_;
  const int rank_;
  const std::size_t bytes_;
  std::size_t done_ = 0;
};

}  // namespace

std::unique_ptr<Transfer> make_transfer(const Operation& operation, const Meeting& meeting) {
  if (operation.is_between_two()) return std::make_unique<OneWay>(operation, meeting);
  return std::make_unique<Collective>(operation, meeting);
}

}  // namespace plexrl::simgpu::nccl
