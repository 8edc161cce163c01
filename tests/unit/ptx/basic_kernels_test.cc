#include <cmath>

#include "tests/unit/ptx/kernel_test.h"

namespace plexrl::simgpu::ptx {
namespace {

class BasicKernels : public KernelTest {};
PLEXRL_INSTANTIATE_KERNEL_TEST(BasicKernels);

TEST_P(BasicKernels, AddLeavesTheTailAlone) {
  PLEXRL_LOAD_OR_SKIP("basic");
  const int n = 1000;
  std::vector<float> a, b;
  for (int i = 0; i < n; ++i) {
    a.push_back(static_cast<float>(i) * 0.5f);
    b.push_back(1.0f / static_cast<float>(i + 1));
  }
  const auto out = device_.upload(std::vector<float>(1024, -1.0f));
  expect_ok("add", {{4}, {256}},
            Arguments().add(device_.upload(a)).add(device_.upload(b)).add(out).add(n));
  const auto result = device_.download<float>(out, 1024);
  for (int i = 0; i < 1024; ++i) EXPECT_EQ(result[i], i < n ? a[i] + b[i] : -1.0f) << i;
}

TEST_P(BasicKernels, MatmulEqualsTheHost) {
  PLEXRL_LOAD_OR_SKIP("basic");
  const int n = 64;
  std::vector<float> a, b;
  for (int i = 0; i < n * n; ++i) {
    a.push_back(std::sin(static_cast<float>(i)));
    b.push_back(std::cos(static_cast<float>(i) * 0.7f));
  }
  const auto c = device_.allocate(n * n * 4);
  expect_ok("matmul", {{4, 4}, {16, 16}},
            Arguments().add(device_.upload(a)).add(device_.upload(b)).add(c).add(n));
  const auto result = device_.download<float>(c, n * n);
  for (int row = 0; row < n; ++row) {
    for (int column = 0; column < n; ++column) {
      float sum = 0;
      for (int k = 0; k < n; ++k) sum = std::fma(a[row * n + k], b[k * n + column], sum);
      ASSERT_EQ(result[row * n + column], sum) << row << "," << column;
    }
  }
}

TEST_P(BasicKernels, DivergentLoopsEndForEachLaneAtItsOwnTime) {
  PLEXRL_LOAD_OR_SKIP("basic");
  const int n = 500;
  std::vector<unsigned> start;
  for (int i = 0; i < n; ++i) start.push_back(static_cast<unsigned>(i) * 7919u % 100003u);
  const auto steps = device_.allocate(n * 4);
  expect_ok("collatz", {{4}, {128}}, Arguments().add(device_.upload(start)).add(steps).add(n));
  const auto result = device_.download<int>(steps, n);
  for (int i = 0; i < n; ++i) {
    int count = start[i] == 0 ? -1 : 0;
    for (unsigned long long x = start[i]; x > 1; ++count) x = x % 2 != 0 ? 3 * x + 1 : x / 2;
    EXPECT_EQ(result[i], count) << start[i];
  }
}

TEST_P(BasicKernels, VectorAccessesAndDynamicSharedMemory) {
  PLEXRL_LOAD_OR_SKIP("basic");
  const int n = 48;
  std::vector<float> in;
  for (int i = 0; i < 4 * n; ++i) in.push_back(static_cast<float>(i));
  const auto out = device_.allocate(n * 16);
  const auto wide = device_.allocate(n * 16);
  expect_ok("vectors", {{1}, {48}, n * 16}, Arguments().add(device_.upload(in)).add(out).add(wide));
  const auto result = device_.download<float>(out, 4 * n);
  const auto doubles = device_.download<double>(wide, 2 * n);
  for (int t = 0; t < n; ++t) {
    const int from = n - 1 - t;
    for (int k = 0; k < 4; ++k) EXPECT_EQ(result[4 * t + k], in[4 * from + 3 - k]);
    EXPECT_EQ(doubles[2 * t], in[4 * from] * 2.0);
    EXPECT_EQ(doubles[2 * t + 1], in[4 * from + 1] + 1.0);
  }
}

}  // namespace
}  // namespace plexrl::simgpu::ptx
