#include <bit>

#include "tests/unit/ptx/fake_device.h"
#include "tests/unit/ptx/hand_written.h"
#include "tests/unit/ptx/kernel_test.h"

/// multimem instructions: one address, the memory of several devices.
namespace plexrl::simgpu::ptx {
namespace {

constexpr std::size_t kThreads = 32, kSlot = 32;

class MulticastAccess : public testing::Test {
 protected:
  MulticastAccess() {
    for (std::uint64_t& member : members_) member = device_.allocate(kThreads * kSlot);
    multicast_ = device_.add_multicast(
        kThreads * kSlot, std::vector<std::uint64_t>(std::begin(members_), std::end(members_)));
    out_ = device_.allocate(kThreads * kSlot);
  }
  /// %rd1 is this thread's slot of the multicast address, %rd2 of `out_`.
  Fault run(const std::string& body) {
    const std::string text = kernel(body);
    const auto module = load_module(device_, {text});
    if (module == nullptr) return {};
    return run_kernel(device_, *module, "k", {{1}, {kThreads}},
                      Arguments().add(multicast_).add(out_));
  }
  void expect_run(const std::string& body) {
    const Fault fault = run(body);
    EXPECT_EQ(fault.kind, Fault::Kind::kNone) << fault.text;
  }
  template <typename T>
  void fill(std::size_t member, T value) {
    device_.write(members_[member], std::vector<T>(kThreads * kSlot / sizeof(T), value));
  }
  /// The first value of a thread's slot.
  template <typename T>
  T first(std::uint64_t address, std::size_t thread) {
    return device_.download<T>(address + thread * kSlot, 1)[0];
  }

  FakeDevice device_;
  std::uint64_t members_[3] = {};
  std::uint64_t multicast_ = 0;
  std::uint64_t out_ = 0;
};

TEST_F(MulticastAccess, AStoreReachesEveryDevice) {
  expect_run(R"(
  add.u32 %r1, %r0, 100;
  multimem.st.weak.global.u32 [%rd1], %r1;
  cvt.rn.f32.u32 %f1, %r0;
  cvta.global.u64 %rd3, %rd1;
  multimem.st.release.sys.v2.f32 [%rd3+8], {%f1, 0f3F800000};)");
  for (const std::uint64_t member : members_) {
    for (std::size_t t = 0; t < kThreads; ++t) {
      EXPECT_EQ(first<std::uint32_t>(member, t), t + 100);
      EXPECT_EQ(first<float>(member + 8, t), static_cast<float>(t));
      EXPECT_EQ(first<float>(member + 12, t), 1.0f);
    }
  }
}

TEST_F(MulticastAccess, ARedChangesEveryDevicesOwnValue) {
  for (std::size_t i = 0; i < 3; ++i) fill<std::uint64_t>(i, 10 * (i + 1));
  expect_run(R"(
  cvt.u64.u32 %rd3, %r0;
  multimem.red.relaxed.gpu.global.add.u64 [%rd1], %rd3;
  mov.u64 %rd4, 25;
  multimem.red.global.max.u64 [%rd1+8], %rd4;)");
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t t = 0; t < kThreads; ++t) {
      EXPECT_EQ(first<std::uint64_t>(members_[i], t), 10 * (i + 1) + t);
      EXPECT_EQ(first<std::uint64_t>(members_[i] + 8, t), i < 2 ? 25u : 30u);
    }
  }
}

TEST_F(MulticastAccess, ALoadCombinesWhatTheDevicesHave) {
  for (std::size_t i = 0; i < 3; ++i) fill<float>(i, static_cast<float>(1 << i));
  expect_run(R"(
  multimem.ld_reduce.acquire.sys.global.add.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16];
  multimem.ld_reduce.global.or.b32 %r1, [%rd1];
  st.global.v4.f32 [%rd2], {%f1, %f2, %f3, %f4};
  st.global.b32 [%rd2+16], %r1;)");
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(1.0f) |
                             std::bit_cast<std::uint32_t>(2.0f) |
                             std::bit_cast<std::uint32_t>(4.0f);
  for (std::size_t t = 0; t < kThreads; ++t) {
    for (std::size_t v = 0; v < 4; ++v) EXPECT_EQ(first<float>(out_ + 4 * v, t), 7.0f);
    EXPECT_EQ(first<std::uint32_t>(out_ + 16, t), bits);
  }
}

TEST_F(MulticastAccess, ALoadKeepsSignAndOrderOfItsType) {
  fill<std::int32_t>(0, 4);
  fill<std::int32_t>(1, -7);
  fill<std::int32_t>(2, 9);
  expect_run(R"(
  multimem.ld_reduce.global.min.s32 %r1, [%rd1];
  multimem.ld_reduce.global.max.u32 %r2, [%rd1];
  st.global.v2.u32 [%rd2], {%r1, %r2};)");
  EXPECT_EQ(first<std::int32_t>(out_, 5), -7);
  EXPECT_EQ(first<std::int32_t>(out_ + 4, 5), -7) << "as an unsigned number it is the largest";
}

TEST_F(MulticastAccess, OtherAddressesFault) {
  const Fault outside = run("multimem.st.global.u32 [%rd2], %r0;");
  EXPECT_EQ(outside.kind, Fault::Kind::kIllegalAddress) << "plain memory is no multicast address";
  const Fault plain = run("st.global.u32 [%rd1], %r0;");
  EXPECT_EQ(plain.kind, Fault::Kind::kIllegalAddress) << "and the other way round";
  const Fault odd = run("multimem.st.global.u32 [%rd1+2], %r0;");
  EXPECT_EQ(odd.kind, Fault::Kind::kMisalignedAddress);
}

TEST_F(MulticastAccess, FormsThatTheExecutorLacksAreRefusedByName) {
  for (const char* const form :
       {"multimem.ld_reduce.global.add.acc::f32.f16x2 %r1, [%rd1];",
        "multimem.ld_reduce.global.add.bf16x2 %r1, [%rd1];",
        "multimem.st.global.v2.u32 [%rd1], {%r1, %r2};",
        "multimem.cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%rd2], 16;"}) {
    const std::string text = kernel(form);
    const std::string_view source = text;
    LoadError error = LoadError::kNone;
    std::string log;
    EXPECT_EQ(Module::load({&source, 1}, 90, &error, &log), nullptr) << form;
    EXPECT_EQ(error, LoadError::kUnsupportedInstruction) << log;
    EXPECT_NE(log.find("multimem."), std::string::npos) << log;
  }
}

}  // namespace
}  // namespace plexrl::simgpu::ptx
