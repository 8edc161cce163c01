// Random programs of two processes that take one GPU from each other all the time: eight threads
// allocate, free, write, map elsewhere, pin, evict, restore and exchange, and whatever one of them
// has written is what it finds, byte for byte.

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/unit/shim/fake_disk.h"
#include "tests/unit/shim/pager_fixture.h"

namespace plexrl::shim::testing {
namespace {

constexpr std::uint64_t kAll = ~std::uint64_t{0};
constexpr std::size_t kChunk = std::size_t{64} << 10;
constexpr std::size_t kPage = 4096;
constexpr int kWorkers = 3;  ///< of each process, beside its agent
/// More than each process may have, less than both.
constexpr std::size_t kGpuBytes = 13 * kChunk;
constexpr std::size_t kMostBytes = 3 * kChunk;  ///< of each worker
constexpr int kTurns = 40;                      ///< of each process

const PinReason kReason = {"a test", {}};

/// Stands for shim/gate.h, which is one a process.
class TestGate {
 public:
  void enter() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_open_; });
    ++inside_;
  }
  bool enter_if_open() {
    const std::lock_guard lock(mutex_);
    if (is_open_) ++inside_;
    return is_open_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    --inside_;
    ++left_;
    changed_.notify_all();
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  /// Nobody enters any more. By a worker that found no memory, too.
  void close() {
    const std::lock_guard lock(mutex_);
    is_open_ = false;
    changed_.notify_all();
  }
  void wait_until_quiet() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return inside_ == 0; });
  }
  /// That have ended.
  int calls() {
    const std::lock_guard lock(mutex_);
    return left_;
  }
  /// Until there are so many, or the gate is closed.
  void wait_for_calls(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return left_ >= count || !is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
  int inside_ = 0;
  int left_ = 0;
};

/// Who has the GPU; the other one gives its memory up meanwhile.
class Turns {
 public:
  /// False: the other one has it, and waits for memory.
  bool take(int who) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return holder_ == kNobody || !has_loaded_; });
    if (holder_ != kNobody) return false;
    holder_ = who;
    has_loaded_ = false;
    changed_.notify_all();
    return true;
  }
  void loaded() {
    set([&] { has_loaded_ = true; });
  }
  void give_back() {
    set([&] {
      holder_ = kNobody;
      has_loaded_ = true;
    });
  }
  bool is_loading(int who) {
    const std::lock_guard lock(mutex_);
    return holder_ == who && !has_loaded_;
  }

 private:
  static constexpr int kNobody = -1;
  template <typename Change>
  void set(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  int holder_ = kNobody;
  bool has_loaded_ = true;
};

std::vector<std::byte> random_bytes(std::size_t count, std::mt19937_64& random) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(&bytes[i], &word, sizeof word);
  }
  return bytes;
}

/// One process: its memory, its agent, its workers.
class Party {
 public:
  Party(FakeDriver& fake, Turns& turns, int who, std::uint64_t seed)
      : fake_(fake), turns_(turns), who_(who), seed_(seed), store_(&slabs_), spill_(&disk_) {
    table_.set_geometry(kChunk, kChunk);
    store_.set_slab_bytes(2 * kChunk);
    spill_.set_piece_bytes(kChunk / 2);
    slabs_.left = (seed % 3) * 4 * kChunk;
    pager_.set_hashing(seed % 4 == 0 ? Pager::Hashing::kNever : Pager::Hashing::kAlways);
    context_ = fake.make_context();
    contexts_.add(context_, 0);
  }

  /// The agent: gets the GPU, lets the workers work, and gives it up; until all turns are over.
  void lead() {
    fake_.set_current(context_);
    std::mt19937_64 random(seed_ + 100);
    for (int turn = 0; turn < kTurns; ++turn) {
      have_a_turn(static_cast<int>(1 + random() % 12));
      evict(random);
      if (random() % 3 == 0) pager_.give_back_host(random() % (4 * kChunk));
      if (random() % 4 == 0) pager_.leave_context(context_).unlock();
      if (random() % 2 == 0) prefetch(random() % (4 * kChunk));
      while (turns_.is_loading(1 - who_)) give_up(kAll);
    }
    has_ended_ = true;
    // The workers see the end as soon as they are let through.
    while (workers_left_ != 0) have_a_turn(1);
    pager_.evict(0, kAll);
  }

  /// A worker: what it has nobody else writes to.
  void work(int number) {
    fake_.set_current(context_);
    std::mt19937_64 random(seed_ * 10 + static_cast<std::uint64_t>(number));
    std::vector<Memory> mine;
    while (!has_ended_) {
      if (random() % 3 == 0) allocate_or_free(mine, random);
      if (!mine.empty() && random() % 6 == 0) map_elsewhere(mine[random() % mine.size()]);
      gate_.enter();
      for (Memory& memory : mine) {
        if (random() % 2 == 0) use(memory, random);
      }
      gate_.leave();
    }
    gate_.enter();
    for (const Memory& memory : mine) check(memory);
    --workers_left_;  // while somebody is left there is a call to wait for
    gate_.leave();
    for (Memory& memory : mine) free(memory);
  }

  void expect_nothing_left() {
    EXPECT_EQ(table_.charged_bytes(0), 0u);
    EXPECT_EQ(store_.used_bytes(), 0u);
    pager_.leave_context(context_).unlock();
    EXPECT_TRUE(disk_.is_empty());
  }

 private:
  struct Memory {
    std::uint64_t start = 0;
    std::vector<std::byte> expected;
    bool is_known = false;
    std::uint64_t alias = 0;
    std::uint64_t pinned = 0;  ///< identifier of the range
  };

  void have_a_turn(int calls) {
    while (!turns_.take(who_)) give_up(kAll);
    const int before = gate_.calls();
    load();
    turns_.loaded();
    gate_.wait_for_calls(before + calls);
    gate_.close();
    gate_.wait_until_quiet();
    turns_.give_back();
  }

  void load() {
    Pager::LoadFigures figures;
    while (true) {
      const auto progress = pager_.load_step(0, &figures);
      if (progress == Pager::Progress::kNoMemory) std::this_thread::yield();
      if (progress != Pager::Progress::kDone) continue;
      const bool has_all = table_.when_complete([&] {
        table_.note_gate_open();
        gate_.open();
      });
      if (has_all) return;
    }
  }

  /// As much as the other one needs, in pieces; or everything; or something for nobody.
  void evict(std::mt19937_64& random) {
    if (random() % 3 == 0) pager_.evict(0, random() % (4 * kChunk));
    while (turns_.is_loading(1 - who_) && table_.totals(0).resident != pinned_) {
      give_up(random() % 4 == 0 ? kAll : kChunk);
    }
  }

  void give_up(std::size_t bytes) {
    pager_.evict(0, bytes);
    std::this_thread::yield();
  }

  void prefetch(std::size_t most) {
    Pager::LoadFigures figures;
    while (!turns_.is_loading(1 - who_) &&
           pager_.prefetch_step(0, most, &figures) == Pager::Progress::kMore) {
    }
  }

  void allocate_or_free(std::vector<Memory>& mine, std::mt19937_64& random) {
    std::size_t held = 0;
    for (const Memory& memory : mine) held += memory.expected.size();
    const std::size_t bytes = (1 + random() % 3) * kChunk - random() % 2 * 512;
    if (held + bytes <= kMostBytes) {
      Range* range = nullptr;
      ASSERT_EQ(table_.reserve(0, context_, bytes, false, &range), CUDA_SUCCESS);
      Memory memory;
      memory.start = range->start;
      memory.expected.resize(bytes);
      mine.push_back(std::move(memory));
      if (!gate_.enter_if_open()) return;
      if (!pager_.back_now(range)) gate_.close();
      gate_.leave();
    } else if (!mine.empty()) {
      std::swap(mine[random() % mine.size()], mine.back());
      free(mine.back());
      mine.pop_back();
    }
  }

  void free(Memory& memory) {
    unpin(memory);
    if (memory.alias != 0) map_elsewhere(memory);  // not any more
    std::size_t freed = 0;
    if (auto range = table_.remove(memory.start, &freed)) pager_.release(std::move(range));
    EXPECT_NE(freed, 0u);
  }

  void map_elsewhere(Memory& memory) {
    if (memory.alias != 0) {
      EXPECT_EQ(pager_.remove_alias(memory.start, memory.alias), CUDA_SUCCESS);
      memory.alias = 0;
      return;
    }
    CUdeviceptr alias = 0;
    ASSERT_EQ(driver.cuMemAddressReserve(&alias, kMostBytes, 0, 0, 0), CUDA_SUCCESS);
    const std::vector<CUmemAccessDesc> access = {
        {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    ASSERT_EQ(pager_.add_alias(memory.start, alias), CUDA_SUCCESS);
    ASSERT_EQ(pager_.set_alias_access(memory.start, alias, access), CUDA_SUCCESS);
    memory.alias = alias;
  }

  void unpin(Memory& memory) {
    if (memory.pinned == 0) return;
    pinned_ -= table_.unpin(memory.start, 1, memory.pinned, kReason);
    memory.pinned = 0;
  }

  /// Inside of the gate: one chunk of each process at most stays in HBM.
  void pin_or_unpin(Memory& memory) {
    if (memory.pinned != 0) return unpin(memory);
    std::uint64_t none = 0;
    if (!pinned_.compare_exchange_strong(none, kChunk)) return;
    const auto pinned = table_.pin(memory.start, 1, kReason);
    EXPECT_TRUE(pinned);
    if (pinned) memory.pinned = pinned->range;
  }

  /// Inside of the gate.
  void use(Memory& memory, std::mt19937_64& random) {
    check(memory);
    auto& bytes = memory.expected;
    const std::uint64_t at = memory.alias != 0 && random() % 2 == 0 ? memory.alias : memory.start;
    switch (random() % 6) {
      case 0:
        bytes = random_bytes(bytes.size(), random);
        memory.is_known = true;
        EXPECT_TRUE(fake_.write(at, bytes));
        break;
      case 1:
        std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(random() % 3));
        memory.is_known = true;
        EXPECT_TRUE(fake_.write(at, bytes));
        break;
      case 2:
      case 3:
        if (memory.is_known) {
          const std::size_t page = random() % (bytes.size() / kPage) * kPage;
          const std::size_t count = random() % 2 == 0 ? 1 : kPage;
          bytes[page] ^= std::byte{1};
          EXPECT_TRUE(fake_.write(at + page, {&bytes[page], &bytes[page] + count}));
        }
        break;
      case 4:
        if (memory.is_known) pin_or_unpin(memory);
        break;
      default:  // only read
        break;
    }
  }

  void check(const Memory& memory) const {
    if (!memory.is_known) return;
    std::vector<std::byte> found(memory.expected.size());
    const std::uint64_t at = memory.alias != 0 ? memory.alias : memory.start;
    EXPECT_TRUE(fake_.read(at, &found));
    const bool is_same = std::memcmp(found.data(), memory.expected.data(), found.size()) == 0;
    EXPECT_TRUE(is_same) << "process " << who_ << ", seed " << seed_;
  }

  FakeDriver& fake_;
  Turns& turns_;
  const int who_;
  const std::uint64_t seed_;
  FakeSlabs slabs_;
  FakeDisk disk_;
  RangeTable table_{kChunk};
  HostStore store_;
  Contexts contexts_;
  SpillStore spill_;
  Pager pager_{table_, store_, contexts_, &spill_};
  CUcontext context_ = nullptr;
  TestGate gate_;
  std::atomic<std::uint64_t> pinned_{0};
  std::atomic<bool> has_ended_{false};
  std::atomic<int> workers_left_{kWorkers};
};

class ExchangeTest : public ::testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, ExchangeTest, ::testing::Range<std::uint64_t>(1, 7));

TEST_P(ExchangeTest, EachProcessFindsWhatItWrote) {
  FakeDriver driver(kGpuBytes);
  driver.be_late();
  Turns turns;
  Party ada(driver, turns, 0, GetParam());
  Party bob(driver, turns, 1, GetParam() + 50);
  std::vector<std::thread> threads;
  for (Party* const party : {&ada, &bob}) {
    threads.emplace_back([party] { party->lead(); });
    for (int i = 0; i < kWorkers; ++i) threads.emplace_back([party, i] { party->work(i); });
  }
  for (std::thread& thread : threads) thread.join();
  driver.set_current(nullptr);
  ada.expect_nothing_left();
  bob.expect_nothing_left();
  EXPECT_EQ(driver.used_bytes(), 0u);
  EXPECT_EQ(driver.mapped_bytes(), 0u);
  EXPECT_EQ(driver.strayed(), 0) << "memory was taken from under work that was under way";
}

}  // namespace
}  // namespace plexrl::shim::testing
