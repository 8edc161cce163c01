#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/unit/ptx/fake_device.h"
#include "tests/unit/ptx/kernel_source.h"

namespace plexrl::simgpu::ptx {

/// A test of kernels of one .cu file, run for each way of compiling it. Skips when that way doesn't
/// exist here.
class KernelTest : public testing::TestWithParam<std::string> {
 protected:
  /// False after skipping or failing.
  bool load(const std::string& name) {
    std::string reason;
    ptx_ = kernel_ptx(name, GetParam(), &reason);
    if (ptx_.empty()) {
      skip_reason_ = reason;
      return false;
    }
    module_ = load_module(device_, {ptx_});
    return module_ != nullptr;
  }
  bool is_debug() const { return GetParam().ends_with("G"); }
  Fault run(std::string_view kernel, const Shape& shape, const Arguments& arguments) {
    return run_kernel(device_, *module_, kernel, shape, arguments);
  }
  void expect_ok(std::string_view kernel, const Shape& shape, const Arguments& arguments) {
    const Fault fault = run(kernel, shape, arguments);
    EXPECT_EQ(fault.kind, Fault::Kind::kNone) << fault.text;
  }

  FakeDevice device_;
  std::string ptx_;
  std::string skip_reason_;
  std::unique_ptr<Module> module_;
};

/// First statement of a KernelTest.
#define PLEXRL_LOAD_OR_SKIP(name)                            \
  if (!load(name)) {                                         \
    if (!skip_reason_.empty()) GTEST_SKIP() << skip_reason_; \
    FAIL() << "can't load the kernels of " << (name);        \
  }

#define PLEXRL_INSTANTIATE_KERNEL_TEST(suite)                                      \
  INSTANTIATE_TEST_SUITE_P(Compiled, suite, testing::ValuesIn(compile_variants()), \
                           [](const auto& tested) { return tested.param; })

}  // namespace plexrl::simgpu::ptx
