// Random programs against a plain model: whatever is allocated, freed, written, evicted and loaded,
// with failing driver calls in between, each range holds the bytes that were last written to it.

#include <map>
#include <mutex>
#include <thread>

#include "tests/unit/shim/pager_fixture.h"

namespace plexrl::shim {
namespace {

using testing::kMiB;

constexpr std::size_t kGpuBytes = 64 * kMiB;
constexpr std::size_t kPage = 4096;

/// The model: what each range holds, by its address. Bytes that nobody wrote are not known.
class RandomProgramTest : public testing::PagerTest,
                          public ::testing::WithParamInterface<std::uint64_t> {
 protected:
  std::size_t below(std::size_t limit) { return random_() % limit; }

  /// Any thread, at any time.
  void allocate_or_free(std::mt19937_64& random) {
    std::unique_lock lock(model_mutex_);
    std::size_t held = 0;
    for (const auto& [start, bytes] : model_) held += bytes.size();
    const std::size_t bytes = (1 + random() % 12) * 2 * kMiB - random() % 2 * 512;
    if (held + bytes + 2 * kMiB <= kGpuBytes && random() % 3 != 0) {
      lock.unlock();
      Range* range = nullptr;
      if (table_.reserve(0, context_, bytes, false, &range) != CUDA_SUCCESS) return;
      lock.lock();
      held = 0;
      for (const auto& [start, content] : model_) held += content.size();
      if (held + bytes + 2 * kMiB <= kGpuBytes) {
        model_[range->start].resize(bytes);
        return;
      }
      lock.unlock();
      return free_range(range->start);
    }
    if (model_.empty()) return;
    const auto it = std::next(model_.begin(), static_cast<long>(random() % model_.size()));
    const std::uint64_t start = it->first;
    model_.erase(it);
    known_.erase(start);
    lock.unlock();
    free_range(start);
  }

  void free_range(std::uint64_t start) {
    std::size_t freed = 0;
    if (auto range = table_.remove(start, &freed)) pager_.release(std::move(range));
  }

  /// The gate is open: writes to some ranges, sees what all of them hold.
  void run() {
    driver_.fail_at_random(0, 0);
    load_all();
    open_gate();
    for (auto& [start, bytes] : model_) {
      if (known_[start]) {
        std::vector<std::byte> found(bytes.size());
        ASSERT_TRUE(driver_.read(start, &found));
        ASSERT_TRUE(same(found, bytes)) << "seed " << GetParam();
      }
      switch (below(4)) {
        case 0:  // all of it
          bytes = random_bytes(bytes.size(), random_());
          known_[start] = true;
          ASSERT_TRUE(driver_.write(start, bytes));
          break;
        case 1: {  // one word again and again
          const auto word = static_cast<std::byte>(below(3));
          std::fill(bytes.begin(), bytes.end(), word);
          known_[start] = true;
          ASSERT_TRUE(driver_.write(start, bytes));
          break;
        }
        case 2:  // a page of what is known
          if (known_[start]) {
            const std::size_t at = below(bytes.size() / kPage) * kPage;
            const auto page = random_bytes(kPage, random_());
            std::copy(page.begin(), page.end(), bytes.begin() + static_cast<long>(at));
            ASSERT_TRUE(driver_.write(start + at, page));
          }
          break;
        default:  // only read
          break;
      }
    }
  }

  /// The gate is closed: moves memory as the agent does.
  void page(std::mt19937_64& random) {
    for (std::size_t step = 0, steps = 1 + random() % 6; step < steps; ++step) {
      switch (random() % 4) {
        case 0:
          pager_.evict(0, ~std::uint64_t{0});
          break;
        case 1:
          pager_.evict(0, random() % (24 * kMiB));
          break;
        case 2:
          for (int i = 0; i < 3; ++i) pager_.load_step(0, &figures_);
          pager_.finish_loads(&figures_);
          break;
        default:
          if (random() % 4 == 0) pager_.leave_context(context_).unlock();
          break;
      }
    }
  }

  void expect_nothing_left() {
    driver_.fail_at_random(0, 0);
    for (const auto& [start, bytes] : model_) free_range(start);
    EXPECT_EQ(driver_.used_bytes(), 0u);
    EXPECT_EQ(driver_.mapped_bytes(), 0u);
    EXPECT_EQ(table_.charged_bytes(0), 0u);
    EXPECT_EQ(store_.used_bytes(), 0u);
  }

  std::mt19937_64 random_{GetParam()};
  std::mutex model_mutex_;
  std::map<std::uint64_t, std::vector<std::byte>> model_;
  std::map<std::uint64_t, bool> known_;
};

TEST_P(RandomProgramTest, BytesSurvive) {
  pager_.set_hashing(GetParam() % 2 == 0 ? Pager::Hashing::kNever : Pager::Hashing::kAlways);
  for (int round = 0; round < 12; ++round) {
    for (std::size_t i = below(6); i != 0; --i) allocate_or_free(random_);
    page(random_);
    run();
    if (HasFatalFailure()) return;
  }
  expect_nothing_left();
}

TEST_P(RandomProgramTest, BytesSurviveFailingCalls) {
  pager_.set_hashing(GetParam() % 2 == 0 ? Pager::Hashing::kNever : Pager::Hashing::kAlways);
  for (int round = 0; round < 12; ++round) {
    driver_.fail_at_random(0, 0);
    for (std::size_t i = below(6); i != 0; --i) allocate_or_free(random_);
    slabs_.left = below(3) == 0 ? 0 : 1024 * kMiB;
    driver_.fail_at_random(random_(), 8);
    page(random_);
    run();
    if (HasFatalFailure()) return;
  }
  expect_nothing_left();
}

TEST_P(RandomProgramTest, BytesSurviveWhileOtherThreadsAllocateAndFree) {
  pager_.set_hashing(Pager::Hashing::kAlways);
  for (int round = 0; round < 4; ++round) {
    std::vector<std::thread> others;
    for (int i = 0; i < 7; ++i) {
      others.emplace_back([this, seed = random_()] {
        std::mt19937_64 random(seed);
        driver_.set_current(context_);
        for (int step = 0; step < 6; ++step) allocate_or_free(random);
      });
    }
    page(random_);
    for (std::thread& other : others) other.join();
    run();
    if (HasFatalFailure()) return;
  }
  expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomProgramTest, ::testing::Range<std::uint64_t>(1, 6));

}  // namespace
}  // namespace plexrl::shim
