#include "nodemgr/policy/gap_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace plexrl::nodemgr::policy {
namespace {

using namespace std::chrono_literals;

TEST(Durations, ALengthThatRepeatsIsKeptExactly) {
  Durations seen;
  for (int i = 0; i < 20; ++i) seen.add(123456789ns);
  EXPECT_EQ(seen.quantile(0.5), 123456789ns);
  EXPECT_EQ(seen.mean_beyond(23456789ns), 100000000ns);
  EXPECT_EQ(seen.mean_beyond(123456789ns), 0ns);
}

TEST(Durations, QuantilesOfASpreadAreWithinABin) {
  Durations seen;
  std::mt19937 rng(7);
  std::vector<double> all;
  for (int i = 0; i < 64; ++i) {
    all.push_back(1e7 + static_cast<double>(rng() % 90'000'000));
    seen.add(Duration(static_cast<std::int64_t>(all.back())));
  }
  std::sort(all.begin(), all.end());
  for (double q : {0.25, 0.5, 0.75}) {
    const double exact = all[static_cast<std::size_t>(q * 64)];
    EXPECT_NEAR(static_cast<double>(seen.quantile(q).count()), exact, exact * 0.3) << q;
  }
}

TEST(Durations, WhatIsOldIsForgotten) {
  Durations seen;
  for (int i = 0; i < 100; ++i) seen.add(10ms);
  for (int i = 0; i < 100; ++i) seen.add(500ms);
  EXPECT_EQ(seen.quantile(0.3), 500ms);
  EXPECT_LE(seen.weight(), 64);
}

TEST(GapProfile, KnowsNothingBeforeThreeGaps) {
  GapProfile profile;
  profile.add(1s, 10ms);
  profile.add(1s, 10ms);
  EXPECT_EQ(profile.after(1s), nullptr);
  profile.add(1s, 10ms);
  ASSERT_NE(profile.after(1s), nullptr);
  EXPECT_EQ(profile.after(1s)->quantile(0.5), 10ms);
}

TEST(GapProfile, TheBurstBeforeTellsWhichGapItIs) {
  GapProfile profile;
  for (int i = 0; i < 5; ++i) {
    profile.add(2s, 800ms);  // a rollout, then its rewards
    profile.add(50ms, 6ms);  // a training step, then the weights
  }
  EXPECT_EQ(profile.after(2s)->quantile(0.5), 800ms);
  EXPECT_EQ(profile.after(50ms)->quantile(0.5), 6ms);
}

TEST(GapProfile, AmongEqualBurstsTheGapBeforeTells) {
  GapProfile profile;
  for (int i = 0; i < 6; ++i) {
    profile.add(100ms, 10ms);
    profile.add(100ms, 1s);
  }
  EXPECT_EQ(profile.after(100ms)->quantile(0.5), 10ms);
  profile.add(100ms, 10ms);
  EXPECT_EQ(profile.after(100ms)->quantile(0.5), 1s);
}

TEST(BestRelease, WithoutKnowledgeItIsSkiRental) {
  EXPECT_EQ(best_release(nullptr, 5ms, 300ms), 300ms);
  EXPECT_EQ(best_release(nullptr, 5ms, 1ms), 5ms);
}

TEST(BestRelease, GapsWorthTheSwitchAreGivenAwayAtOnceOthersNever) {
  Durations gaps;
  for (int i = 0; i < 10; ++i) gaps.add(1s);
  EXPECT_EQ(best_release(&gaps, 5ms, 300ms), 5ms);
  EXPECT_GE(best_release(&gaps, 5ms, 3s), 1s);
}

TEST(BestRelease, AmongShortAndLongGapsItWaitsUntilTheShortOnesAreOver) {
  Durations gaps;
  for (int i = 0; i < 40; ++i) gaps.add(i % 10 == 0 ? Duration(10s) : Duration(20ms));
  const Duration at = best_release(&gaps, 5ms, 1s);
  EXPECT_GT(at, 20ms);
  EXPECT_LT(at, 100ms);
}

TEST(GapProfile, WhatIsRememberedIsOutweighedByWhatARunShows) {
  GapProfile before;
  for (int i = 0; i < 60; ++i) before.add(1s, 2s);
  GapProfile profile = before.remembered();
  EXPECT_EQ(profile.after(1s)->quantile(0.5), 2s);
  for (int i = 0; i < 20; ++i) profile.add(1s, 30s);
  EXPECT_EQ(profile.after(1s)->quantile(0.5), 30s);
}

TEST(BestRelease, BeyondTheLongestKnownGapItIsSkiRentalAgain) {
  Durations gaps;
  for (int i = 0; i < 10; ++i) gaps.add(20ms);
  EXPECT_EQ(best_release(&gaps, 30ms, 300ms), 300ms);
  EXPECT_EQ(best_release(&gaps, 400ms, 300ms), 400ms);
}

/// Over random mixtures, what the learned release wastes is compared with one who knows each gap.
TEST(BestRelease, WastesLittleMoreThanOneWhoKnowsTheFuture) {
  std::mt19937_64 rng(3);
  auto uniform = [&](double a, double b) {
    return std::uniform_real_distribution<double>(a, b)(rng);
  };
  for (int instance = 0; instance < 50; ++instance) {
    const double cost = uniform(0.02e9, 2e9);
    const double low = uniform(0.005e9, 1e9);
    const double high = uniform(low, 20e9);
    const double share = uniform(0.1, 0.9);
    auto draw = [&] { return (uniform(0, 1) < share ? low : high) * uniform(0.9, 1.1); };
    Durations gaps;
    for (int i = 0; i < 200; ++i) gaps.add(Duration(static_cast<std::int64_t>(draw())));
    const Duration release =
        best_release(&gaps, Duration{0}, Duration(static_cast<std::int64_t>(cost)));
    const double at = static_cast<double>(release.count());
    double wasted = 0;
    double least = 0;
    for (int i = 0; i < 1000; ++i) {
      const double gap = draw();
      wasted += gap <= at ? gap : at + cost;
      least += std::min(gap, cost);
    }
    // At most twice; a tenth more because what was learned is a sample.
    EXPECT_LE(wasted, 2.2 * least) << instance;
  }
}

}  // namespace
}  // namespace plexrl::nodemgr::policy
