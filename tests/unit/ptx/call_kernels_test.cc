#include "tests/unit/ptx/kernel_test.h"

namespace plexrl::simgpu::ptx {
namespace {

class CallKernels : public KernelTest {};
PLEXRL_INSTANTIATE_KERNEL_TEST(CallKernels);

struct Mixed {
  char a;
  double b;
  short c[3];
  float d;
};

double sum_mixed(const Mixed& m, int i) { return m.a + m.b + m.c[i] + m.d; }

int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

TEST_P(CallKernels, StructsRecursionAndFunctionPointers) {
  PLEXRL_LOAD_OR_SKIP("calls");
  Mixed value = {};
  value.a = 3;
  value.b = 0.125;
  value.c[1] = -40;
  value.d = 1.5f;
  const auto sums = device_.allocate(64 * 8), results = device_.allocate(128 * 4);
  expect_ok("functions", {{1}, {50}}, Arguments().add(value).add(sums).add(results));
  const auto s = device_.download<double>(sums, 64);
  const auto r = device_.download<int>(results, 128);
  for (int t = 0; t < 50; ++t) {
    Mixed m = {};
    m.a = static_cast<char>(t);
    m.b = t * 0.5;
    for (int k = 0; k < 3; ++k) m.c[k] = static_cast<short>(t * k);
    m.d = static_cast<float>(-t);
    EXPECT_EQ(s[t], sum_mixed(m, t % 3) + sum_mixed(value, 1)) << t;
    EXPECT_EQ(r[t], fibonacci(t % 12)) << t;
    EXPECT_EQ(r[64 + t], t % 3 == 0 ? 2 * t : t % 3 == 1 ? t * t : -t) << t;
  }
}

TEST_P(CallKernels, LocalArraysWithDynamicIndex) {
  PLEXRL_LOAD_OR_SKIP("calls");
  std::vector<int> in;
  for (int i = 0; i < 100; ++i) in.push_back(i * i % 37);
  const auto out = device_.allocate(64 * 4);
  expect_ok("local_array", {{1}, {64}}, Arguments().add(device_.upload(in)).add(out).add(100));
  const auto r = device_.download<int>(out, 64);
  for (int t = 0; t < 64; ++t) {
    unsigned bins[16] = {}, sum = 0;
    for (unsigned i = 0; i < 100; ++i) bins[(in[i] + t) & 15] += i;
    for (int k = 0; k < 16; ++k) sum = sum * 31 + bins[(k + t) & 15];
    EXPECT_EQ(static_cast<unsigned>(r[t]), sum) << t;
  }
}

TEST_P(CallKernels, GenericPointersToEveryMemory) {
  PLEXRL_LOAD_OR_SKIP("calls");
  std::vector<int> global;
  for (int i = 0; i < 32; ++i) global.push_back(100 * i);
  const auto out = device_.allocate(64 * 4);
  expect_ok("generic", {{1}, {32}}, Arguments().add(device_.upload(global)).add(out));
  const auto r = device_.download<int>(out, 64);
  for (int t = 0; t < 32; ++t) {
    const int other = 31 - t;
    const int own = global[t] + (t % 3 == 0 ? 1000 : 0);
    const int shared = 10 * other + (other % 3 == 1 ? 1000 : 0);
    const int local = t + (t & 1) + (t % 3 == 2 ? 1000 : 0);
    EXPECT_EQ(r[t], own + shared + local) << t;
    EXPECT_EQ(r[32 + t], 7) << t;
  }
}

TEST_P(CallKernels, SwitchesDiverge) {
  PLEXRL_LOAD_OR_SKIP("calls");
  std::vector<int> in;
  for (int i = 0; i < 64; ++i) in.push_back(i * 5 % 13);
  const auto out = device_.allocate(64 * 4);
  expect_ok("switches", {{1}, {64}}, Arguments().add(device_.upload(in)).add(out));
  const auto r = device_.download<int>(out, 64);
  for (int t = 0; t < 64; ++t) {
    const int expected[] = {5,      t * 3,  t - 7, t << 4, ~t, t % 5, t / 3,
                            t | 64, t ^ 21, 1,     1,      -1, -1};
    EXPECT_EQ(r[t], expected[in[t]]) << t;
  }
}

TEST_P(CallKernels, InitialisedVariablesAndPointersInThem) {
  PLEXRL_LOAD_OR_SKIP("calls");
  const auto out = device_.allocate(32 * 4), lengths = device_.allocate(33 * 4);
  expect_ok("variables", {{1}, {32}}, Arguments().add(out).add(lengths));
  const auto r = device_.download<float>(out, 32);
  const auto n = device_.download<int>(lengths, 33);
  for (int t = 0; t < 32; ++t) {
    EXPECT_EQ(r[t], 0.5f + static_cast<float>(t % 4));
    EXPECT_EQ(n[t], t % 2 == 0 ? 5 : 2);
  }
  EXPECT_EQ(n[32], 7 + 31 * 16);
}

TEST_P(CallKernels, PrintfFormats) {
  PLEXRL_LOAD_OR_SKIP("calls");
  expect_ok("print", {{1}, {32}}, Arguments().add(5));
  EXPECT_EQ(device_.printed,
            "t=0 x= 1.25|word|c|123456789abc|7%\n"
            "t=1 x= 1.25|word|c|123456789abc|7%\n");
}

TEST_P(CallKernels, AssertStopsTheKernelAndSaysWhere) {
  PLEXRL_LOAD_OR_SKIP("calls");
  const Fault fault = run("asserts", {{1}, {32}}, Arguments().add(0));
  EXPECT_EQ(fault.kind, Fault::Kind::kAssert);
  EXPECT_NE(fault.text.find("x == (int)threadIdx.x"), std::string::npos) << fault.text;
  EXPECT_NE(device_.printed.find("Assertion"), std::string::npos);
}

TEST_P(CallKernels, TrapStopsTheKernel) {
  PLEXRL_LOAD_OR_SKIP("calls");
  EXPECT_EQ(run("traps", {{1}, {32}}, Arguments().add(100)).kind, Fault::Kind::kNone);
  EXPECT_EQ(run("traps", {{1}, {32}}, Arguments().add(31)).kind, Fault::Kind::kTrap);
}

TEST_P(CallKernels, ClockLoopsWaitInsteadOfRunning) {
  PLEXRL_LOAD_OR_SKIP("calls");
  const auto out = device_.allocate(64 * 8);
  const Kernel& kernel = *module_->find_kernel("waits");
  const int cycles = 50'000'000;  // at 1 GHz: 50 ms
  Execution execution(kernel,
                      make_config(device_, kernel, {{1}, {64}}, Arguments().add(out).add(cycles)));
  const std::uint64_t start = device_.now_ns;
  int waits = 0;
  for (;;) {
    const Execution::State state = execution.run(1 << 20);
    if (state == Execution::State::kDone) break;
    ASSERT_EQ(state, Execution::State::kWaiting);
    ASSERT_GT(execution.wake_ns(), device_.now_ns);
    device_.now_ns = execution.wake_ns();
    ++waits;
  }
  EXPECT_GE(device_.now_ns - start, 50'000'000u);
  EXPECT_LE(device_.now_ns - start, 60'000'000u);
  EXPECT_LT(execution.warp_instructions(), 100'000u);
  for (long long t : device_.download<long long>(out, 64)) EXPECT_GE(t, cycles);
}

TEST_P(CallKernels, MemoryPollingWaitsUntilTheFlagIsWritten) {
  PLEXRL_LOAD_OR_SKIP("calls");
  const auto flag = device_.allocate(4), out = device_.allocate(64 * 4);
  const Kernel& kernel = *module_->find_kernel("polls");
  Execution execution(kernel,
                      make_config(device_, kernel, {{1}, {64}}, Arguments().add(flag).add(out)));
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(execution.run(1 << 20), Execution::State::kWaiting);
    device_.now_ns = execution.wake_ns();
  }
  EXPECT_LT(execution.warp_instructions(), 50'000u);
  device_.write(flag, std::vector<int>{9});
  ASSERT_EQ(execution.run(1 << 20), Execution::State::kDone);
  EXPECT_EQ(device_.download<int>(out, 64), std::vector<int>(64, 9));
}

}  // namespace
}  // namespace plexrl::simgpu::ptx
