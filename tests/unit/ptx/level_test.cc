#include <cstdlib>
#include <random>

#include "tests/unit/ptx/kernel_test.h"
#include "tools/simgpu/ptx/act.h"

namespace plexrl::simgpu::ptx {
namespace {

/// Runs the kernel on raw bits (NaNs, infinities and subnormals among them) at one CPU level;
/// returns all output bits.
std::vector<std::uint32_t> run_at(const char* level, const std::string& ptx, const char* kernel,
                                  int words_each, int outputs) {
  setenv("PLEXRL_PTX_LEVEL", level, 1);
  FakeDevice device;
  const auto module = load_module(device, {ptx});
  unsetenv("PLEXRL_PTX_LEVEL");
  if (module == nullptr) return {};
  std::mt19937 random(7);
  const int n = 2048;
  std::vector<std::uint32_t> in;
  for (int i = 0; i < n * words_each; ++i) in.push_back(static_cast<std::uint32_t>(random()));
  const auto out = device.allocate(static_cast<std::size_t>(n) * words_each * outputs * 4);
  const Fault fault = run_kernel(device, *module, kernel, {{n / 64}, {64}},
                                 Arguments().add(device.upload(in)).add(out).add(n));
  EXPECT_EQ(fault.kind, Fault::Kind::kNone) << fault.text;
  return device.download<std::uint32_t>(out, static_cast<std::size_t>(n) * words_each * outputs);
}

/// A NaN's sign and payload depend on the host; that it is one does not.
std::uint32_t canonical(std::uint32_t bits) {
  return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : bits;
}

TEST(Levels, FloatsHaveTheSameBitsOnEveryCpu) {
  int count = 0;
  levels(&count);
  if (count < 2) GTEST_SKIP() << "this CPU runs the baseline only";
  std::string reason;
  const std::string ptx = kernel_ptx("numbers", "O3", &reason);
  if (ptx.empty()) GTEST_SKIP() << reason;
  const auto baseline = run_at("baseline", ptx, "math_float", 1, 24);
  const auto best = run_at("best", ptx, "math_float", 1, 24);
  ASSERT_EQ(baseline.size(), best.size());
  for (std::size_t i = 0; i < best.size(); ++i) {
    ASSERT_EQ(canonical(baseline[i]), canonical(best[i]))
        << "value " << i % 24 << " of input " << i / 24;
  }
  const auto baseline_double = run_at("baseline", ptx, "math_double", 2, 12);
  const auto best_double = run_at("best", ptx, "math_double", 2, 12);
  ASSERT_EQ(baseline_double.size(), best_double.size());
  for (std::size_t i = 1; i < best_double.size(); i += 2) {
    if ((baseline_double[i] & 0x7ff00000) == 0x7ff00000) continue;
    ASSERT_EQ(baseline_double[i], best_double[i]) << i;
    ASSERT_EQ(baseline_double[i - 1], best_double[i - 1]) << i;
  }
}

}  // namespace
}  // namespace plexrl::simgpu::ptx
