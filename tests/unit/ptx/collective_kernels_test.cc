#include <bit>
#include <numeric>

#include "tests/unit/ptx/kernel_test.h"

namespace plexrl::simgpu::ptx {
namespace {

class CollectiveKernels : public KernelTest {};
PLEXRL_INSTANTIATE_KERNEL_TEST(CollectiveKernels);

std::vector<int> numbers(int n, int factor = 1) {
  std::vector<int> out(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) out[static_cast<std::size_t>(i)] = i * factor;
  return out;
}

TEST_P(CollectiveKernels, ReductionByShufflesAndAtomics) {
  PLEXRL_LOAD_OR_SKIP("collective");
  const int n = 1000;
  const std::vector<float> in(n, 0.25f);
  const auto sum = device_.allocate(4), count = device_.allocate(4);
  expect_ok("reduce", {{4}, {256}}, Arguments().add(device_.upload(in)).add(sum).add(count).add(n));
  EXPECT_EQ(device_.download<float>(sum, 1)[0], 250.0f);
  EXPECT_EQ(device_.download<int>(count, 1)[0], n);
}

TEST_P(CollectiveKernels, ShufflesInEveryDirectionAndWidth) {
  PLEXRL_LOAD_OR_SKIP("collective");
  const auto out = device_.allocate(192 * 4);
  expect_ok("shuffles", {{1}, {32}}, Arguments().add(device_.upload(numbers(32, 10))).add(out));
  const auto r = device_.download<int>(out, 192);
  for (int t = 0; t < 32; ++t) {
    EXPECT_EQ(r[t], (t >= 3 ? t - 3 : t) * 10);
    EXPECT_EQ(r[32 + t], (t % 16 + 5 < 16 ? t + 5 : t) * 10);
    EXPECT_EQ(r[64 + t], t * 7 % 32 * 10);
    EXPECT_EQ(r[96 + t], (t / 8 * 8 + (t + 1) % 8) * 10);
    EXPECT_EQ(r[128 + t], (t ^ 9) * 10);
    EXPECT_EQ(r[160 + t], (t % 4 >= 1 ? t - 1 : t) * 10);
  }
}

TEST_P(CollectiveKernels, VotesAndMatchesInAPartialWarp) {
  PLEXRL_LOAD_OR_SKIP("collective");
  const int n = 21;
  const auto out = device_.allocate(n * 8 * 4);
  expect_ok("votes", {{1}, {n}}, Arguments().add(device_.upload(numbers(n))).add(out).add(n));
  const auto r = device_.download<unsigned>(out, n * 8);
  const unsigned all = (1u << n) - 1;
  for (int t = 0; t < n; ++t) {
    unsigned odd = 0, thirds = 0, fourths = 0;
    for (int k = 0; k < n; ++k) {
      odd |= static_cast<unsigned>(k & 1) << k;
      thirds |= static_cast<unsigned>(k % 3 == t % 3) << k;
      fourths |= static_cast<unsigned>(k % 4 == t % 4) << k;
    }
    EXPECT_EQ(r[t * 8 + 0], all);
    EXPECT_EQ(r[t * 8 + 1], odd);
    EXPECT_EQ(r[t * 8 + 2], 1u);
    EXPECT_EQ(r[t * 8 + 3], 1u);
    EXPECT_EQ(r[t * 8 + 4], thirds);
    EXPECT_EQ(r[t * 8 + 5], all + 1);
    EXPECT_EQ(r[t * 8 + 6], t % 2 != 0 ? odd : 0u);
    EXPECT_EQ(r[t * 8 + 7], fourths);
  }
}

TEST_P(CollectiveKernels, CooperativeGroupsTile) {
  PLEXRL_LOAD_OR_SKIP("collective");
  const auto out = device_.allocate(64 * 4);
  expect_ok("tiles", {{1}, {64}}, Arguments().add(device_.upload(numbers(64))).add(out));
  const auto r = device_.download<int>(out, 64);
  for (int t = 0; t < 64; ++t) {
    int v = t / 8 * 64 + 28;
    if (t / 8 % 2 != 0) v += v + (v > 50 ? 1 : 0);
    EXPECT_EQ(r[t], v * 100 + t % 8) << t;
  }
}

TEST_P(CollectiveKernels, GridBarrierOfACooperativeLaunch) {
  PLEXRL_LOAD_OR_SKIP("collective");
  const int n = 6 * 64, rounds = 5;
  const auto data = device_.upload(numbers(n));
  expect_ok("grid_rotate", {{6}, {64}, 0, true}, Arguments().add(data).add(rounds));
  const auto r = device_.download<int>(data, n);
  for (int i = 0; i < n; ++i) EXPECT_EQ(r[i], (i + rounds) % n + rounds);
}

TEST_P(CollectiveKernels, ThreadsThatLeftCountAsArrived) {
  PLEXRL_LOAD_OR_SKIP("collective");
  const auto out = device_.allocate(100 * 4);
  expect_ok("leavers", {{1}, {100}}, Arguments().add(out));
  const auto r = device_.download<int>(out, 100);
  int sum = 0;
  for (int t = 0; t < 100; ++t) sum += t % 3 != 0 ? t : 0;
  for (int t = 0; t < 100; ++t) EXPECT_EQ(r[t], t % 3 != 0 ? sum : 0);
}

TEST_P(CollectiveKernels, BarrierReductions) {
  PLEXRL_LOAD_OR_SKIP("collective");
  const auto out = device_.allocate(200 * 4);
  expect_ok("counted", {{1}, {100}}, Arguments().add(device_.upload(numbers(100))).add(out));
  const auto r = device_.download<int>(out, 200);
  for (int t = 0; t < 100; ++t) {
    EXPECT_EQ(r[t], 99);
    EXPECT_EQ(r[100 + t], 3);
  }
}

TEST_P(CollectiveKernels, NamedBarriersWithCounts) {
  PLEXRL_LOAD_OR_SKIP("collective");
  const auto out = device_.allocate(64 * 4);
  expect_ok("named", {{1}, {64}}, Arguments().add(out));
  EXPECT_EQ(device_.download<int>(out, 64), std::vector<int>(64, 43));
}

TEST_P(CollectiveKernels, LanesOfAWarpTakeALockInTurn) {
  PLEXRL_LOAD_OR_SKIP("collective");
  const auto lock = device_.allocate(4), value = device_.allocate(4);
  expect_ok("locked", {{3}, {64}}, Arguments().add(lock).add(value));
  EXPECT_EQ(device_.download<int>(value, 1)[0], 192);
  EXPECT_EQ(device_.download<int>(lock, 1)[0], 0);
}

TEST_P(CollectiveKernels, Atomics) {
  PLEXRL_LOAD_OR_SKIP("collective");
  const unsigned n = 256;
  std::vector<unsigned> u(16 + n, 0);
  u[1] = 10000;
  u[2] = 5000;
  u[4] = ~0u;
  u[8] = 4;
  const auto du = device_.upload(u), ds = device_.upload(std::vector<int>(3, 0));
  const auto dl = device_.allocate(24), df = device_.allocate(8), dd = device_.allocate(8);
  expect_ok("atomics", {{4}, {64}}, Arguments().add(du).add(ds).add(dl).add(df).add(dd));
  const auto r = device_.download<unsigned>(du, 16 + n);
  EXPECT_EQ(r[0], n * (n - 1) / 2);
  EXPECT_EQ(r[1], 10000 - 3 * n);
  EXPECT_EQ(r[2], 1000 - (n - 1));
  EXPECT_EQ(r[3], 2 * (n - 1));
  EXPECT_EQ(r[4], 0u);
  EXPECT_EQ(r[5], ~0u);
  EXPECT_EQ(r[6], 0u);
  unsigned inc = 0, dec = 4;
  for (unsigned i = 0; i < n; ++i) {
    inc = inc >= 9 ? 0 : inc + 1;
    dec = dec == 0 || dec > 9 ? 9 : dec - 1;
  }
  EXPECT_EQ(r[7], inc);
  EXPECT_EQ(r[8], dec);
  std::vector<bool> seen(
      n, false);  // exchanged values: each number once, with the last one still there
  for (unsigned i = 0; i < n; ++i) seen[r[16 + i]] = true;
  seen[r[9]] = true;
  EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0u), n);
  EXPECT_EQ(device_.download<int>(ds, 3), (std::vector<int>{-255, 0, 4 * 128}));
  EXPECT_EQ(device_.download<unsigned long long>(dl, 3),
            (std::vector<unsigned long long>{256ull << 33, 255ull << 35, 77ull}));
  EXPECT_EQ(device_.download<float>(df, 2), (std::vector<float>{128.0f, 96.0f}));
  EXPECT_EQ(device_.download<double>(dd, 1)[0], 64.0);
}

TEST_P(CollectiveKernels, LastBlockSeesAllPartialSums) {
  PLEXRL_LOAD_OR_SKIP("collective");
  const int n = 1000;
  const auto partial = device_.allocate(40 * 4), total = device_.allocate(4);
  expect_ok("last_block", {{40}, {32}},
            Arguments().add(device_.upload(numbers(n))).add(partial).add(total).add(n));
  EXPECT_EQ(device_.download<int>(total, 1)[0], n * (n - 1) / 2);
}

}  // namespace
}  // namespace plexrl::simgpu::ptx
