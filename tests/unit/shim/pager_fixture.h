#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "shim/pager.h"
#include "tests/unit/shim/fake_driver.h"

namespace plexrl::shim::testing {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Slabs as the manager makes them, until a limit.
class FakeSlabs final : public SlabSource {
 public:
  std::optional<Slab> request(std::size_t bytes) override {
    before_request();
    const int id = ++requests;
    if (bytes > left || id == refused) return std::nullopt;
    left -= bytes;
    Slab slab;
    slab.id = static_cast<std::uint64_t>(id);
    slab.bytes = bytes;
    slab.fd.reset(::memfd_create("slab", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(slab.fd.get(), static_cast<off_t>(bytes)), 0);
    return slab;
  }
  void give_back(std::uint64_t, std::size_t bytes) override {
    ++returned;
    left += bytes;
  }

  std::function<void()> before_request = [] {};
  std::atomic<std::size_t> left{1024 * kMiB};
  int refused = 0;  ///< which request is refused whatever is left; 0: none. Before use
  std::atomic<int> requests{0};
  std::atomic<int> returned{0};
};

/// A pager on a fake driver, with chunks of 4 MiB and slabs of 8 MiB.
class PagerTest : public ::testing::Test {
 protected:
  PagerTest() : driver_(64 * kMiB), store_(&slabs_), pager_(table_, store_, contexts_) {
    table_.set_geometry(4 * kMiB, 2 * kMiB);
    store_.set_slab_bytes(8 * kMiB);
    context_ = driver_.make_context();
    driver_.set_current(context_);
    contexts_.add(context_, 0);
    pager_.set_hashing(Pager::Hashing::kNever);
  }

  Range* allocate(std::size_t bytes) {
    Range* range = nullptr;
    EXPECT_EQ(table_.reserve(0, context_, bytes, false, &range), CUDA_SUCCESS);
    return range;
  }
  Pager::Progress load() {
    Pager::Progress progress = Pager::Progress::kMore;
    while (progress == Pager::Progress::kMore) progress = pager_.load_step(0, &figures_);
    return progress;
  }
  /// Loads until it is done, however often memory is missing.
  void load_all() {
    for (int i = 0; i < 100 && load() != Pager::Progress::kDone; ++i) {
    }
    EXPECT_EQ(table_.totals(0).resident, table_.charged_bytes(0));
  }
  void open_gate() {
    ASSERT_TRUE(table_.when_complete([&] { table_.note_gate_open(); }));
  }
  std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::byte> bytes(count);
    for (std::size_t i = 0; i + 8 <= count; i += 8) {
      const std::uint64_t word = random();
      std::memcpy(&bytes[i], &word, sizeof word);
    }
    return bytes;
  }
  void expect_bytes(const Range* range, const std::vector<std::byte>& expected) {
    std::vector<std::byte> found(expected.size());
    ASSERT_TRUE(driver_.read(range->start, &found));
    EXPECT_TRUE(same(found, expected));
  }
  /// One call, not a loop over bytes: with ThreadSanitizer that is most of a test's time.
  static bool same(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
  }

  FakeDriver driver_;
  FakeSlabs slabs_;
  RangeTable table_;
  HostStore store_;
  Contexts contexts_;
  Pager pager_;
  CUcontext context_;
  Pager::LoadFigures figures_;
};

}  // namespace plexrl::shim::testing
