#include <bit>
#include <cmath>

#include "tests/unit/ptx/fake_device.h"
#include "tests/unit/ptx/hand_written.h"
#include "tests/unit/ptx/kernel_test.h"
#include "tools/simgpu/ptx/half.h"

/// PTX written by hand: forms that compilers make rarely, faults, budgets.
namespace plexrl::simgpu::ptx {
namespace {

class HandWritten : public testing::Test {
 protected:
  /// Runs one block of `kernel(body)` on slots of 32 bytes; returns the out slots.
  template <typename T>
  std::vector<T> run(const std::string& body, const std::vector<T>& in,
                     std::uint32_t threads = 32) {
    FakeDevice device;
    const std::string text = kernel(body);
    const auto module = load_module(device, {text});
    if (module == nullptr) return std::vector<T>(threads * 32 / sizeof(T));
    const std::uint64_t from = device.upload(in);
    const std::uint64_t to = device.allocate(threads * 32);
    const Fault fault =
        run_kernel(device, *module, "k", {{1}, {threads}}, Arguments().add(from).add(to));
    EXPECT_EQ(fault.kind, Fault::Kind::kNone) << fault.text;
    return device.download<T>(to, threads * 32 / sizeof(T));
  }
};

TEST_F(HandWritten, BranchTableSendsEachLaneToItsLabel) {
  const auto out = run<int>(R"(
  rem.u32 %r1, %r0, 3;
  table: .branchtargets L0, L1, L2;
  brx.idx %r1, table;
L0: mov.u32 %r2, 100;
  bra DONE;
L1: mov.u32 %r2, 200;
  bra DONE;
L2: mov.u32 %r2, 300;
DONE:
  add.u32 %r2, %r2, %r0;
  activemask.b32 %r3;
  st.global.v2.u32 [%rd2], {%r2, %r3};)",
                            std::vector<int>(256));
  for (int t = 0; t < 32; ++t) {
    EXPECT_EQ(out[t * 8], (t % 3 + 1) * 100 + t);
    EXPECT_EQ(out[t * 8 + 1], -1) << "lanes are together again";
  }
}

TEST_F(HandWritten, InnerScopesHaveTheirOwnNames) {
  const auto out = run<int>(R"(
  mov.u32 %r1, 7;
  {.reg.b32 a, C; .reg .b32 %r1;
   mov.b32 %r1, 50; mov.b32 a, %r0;
   { .reg .b32 a; mov.b32 a, 0x3U; add.u32 C, a, %r1; }
   add.u32 %r2, a, C;}
  add.u32 %r2, %r2, %r1; st.global.u32 [%rd2+4], %r2;)",
                            std::vector<int>(256));
  for (int t = 0; t < 32; ++t) EXPECT_EQ(out[t * 8 + 1], t + 53 + 7);
}

TEST_F(HandWritten, RegistersAreWiderThanTheLoad) {
  std::vector<int> in(256, 0);
  for (int t = 0; t < 32; ++t) in[t * 8] = -t - 1;
  const auto out = run<int>(R"(
  ld.global.s8 %r1, [%rd1];
  ld.global.u8 %r2, [%rd1];
  ld.global.s16 %rd3, [%rd1];
  cvt.u32.u64 %r3, %rd3;
  cvt.u32.u8 %r4, %r1;
  ld.global.u8 %h1, [%rd1];
  cvt.s32.s8 %r5, %h1;
  mov.b64 %rd4, {%r1, %r2};
  mov.b64 {_, %r6}, %rd4;
  st.global.v4.u32 [%rd2], {%r1, %r2, %r3, %r4};
  st.global.v2.u32 [%rd2+16], {%r5, %r6};)",
                            in);
  for (int t = 0; t < 32; ++t) {
    const int value = -t - 1, low = value & 0xff;
    EXPECT_EQ(std::vector<int>(out.begin() + t * 8, out.begin() + t * 8 + 6),
              (std::vector<int>{value, low, value, low, value, low}));
  }
}

TEST_F(HandWritten, MatrixProductWithSingleAccumulators) {
  // a[row][k] = row - k, b[k][column] = k * column, c[row][column] = row.
  std::vector<int> in(256, 0);
  auto pair = [](int low, int high) {
    return static_cast<int>(half_from_float(static_cast<float>(low)) |
                            half_from_float(static_cast<float>(high)) << 16);
  };
  for (int t = 0; t < 32; ++t) {
    const int group = t / 4, k = t % 4 * 2;
    in[t * 8] = pair(group - k, group - k - 1);
    in[t * 8 + 1] = pair(group + 8 - k, group + 8 - k - 1);
    in[t * 8 + 2] = pair(k * group, (k + 1) * group);
    in[t * 8 + 3] = pair(group, group);
    in[t * 8 + 4] = pair(group + 8, group + 8);
  }
  auto expected = [](int row, int column) {
    int sum = row;
    for (int k = 0; k < 8; ++k) sum += (row - k) * k * column;
    return static_cast<float>(sum);
  };
  const auto out = run<int>(R"(
  ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
  ld.global.u32 %r5, [%rd1+16];
  { .reg .b16 lo, hi; mov.b32 {lo, hi}, %r4; cvt.f32.f16 %f1, lo; mov.b32 {lo, hi}, %r5; cvt.f32.f16 %f2, lo; }
  mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32{%f4, %f5, %f6, %f7}, {%r1, %r2}, {%r3}, {%f1, %f1, %f2, %f2};
  mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r6, %r7}, {%r1, %r2}, {%r3}, {%r4, %r5};
  st.global.v4.f32 [%rd2], {%f4, %f5, %f6, %f7};
  st.global.v2.u32 [%rd2+16], {%r6, %r7};)",
                            in);
  for (int t = 0; t < 32; ++t) {
    const int group = t / 4, column = t % 4 * 2;
    for (int r = 0; r < 4; ++r) {
      const float want = expected(group + r / 2 * 8, column + r % 2);
      EXPECT_EQ(std::bit_cast<float>(out[t * 8 + r]), want) << t << "," << r;
      const auto half = static_cast<std::uint16_t>(out[t * 8 + 4 + r / 2] >> 16 * (r % 2));
      EXPECT_EQ(half, half_from_float(want)) << t << "," << r;
    }
  }
}

TEST_F(HandWritten, ConversionsSaturateAndRound) {
  const float values[] = {
      0.0f,    -0.0f,    0.5f,     1.5f,          2.5f,          -0.5f,       -1.5f,        254.7f,
      255.5f,  300.0f,   -129.0f,  70000.0f,      -70000.0f,     3e9f,        -3e9f,        5e9f,
      1e19f,   2e19f,    -1e19f,   INFINITY,      -INFINITY,     NAN,         1e-40f,       127.5f,
      -128.5f, 32767.5f, 65535.9f, 2147483520.0f, 4294967040.0f, 0.99999994f, -0.99999994f, 1e10f};
  std::vector<int> in(256, 0);
  for (int t = 0; t < 32; ++t) in[t * 8] = std::bit_cast<int>(values[t]);
  struct Case {
    const char* type;
    const char* mode;
    double low, high;
    double (*round)(double);
  };
  const Case cases[] = {
      {"s8", "rzi", -128, 127, std::trunc},
      {"u8", "rni", 0, 255, std::nearbyint},
      {"s16", "rmi", -32768, 32767, std::floor},
      {"u16", "rpi", 0, 65535, std::ceil},
      {"s32", "rzi", -2147483648.0, 2147483647.0, std::trunc},
      {"s32", "rni", -2147483648.0, 2147483647.0, std::nearbyint},
      {"u32", "rzi", 0, 4294967295.0, std::trunc},
      {"u32", "rmi", 0, 4294967295.0, std::floor},
  };
  for (const Case& c : cases) {
    const auto out =
        run<int>(std::string("ld.global.f32 %f1, [%rd1]; cvt.") + c.mode + "." + c.type +
                     ".f32 %r1, %f1; st.global.u32 [%rd2], %r1; cvt.f64.f32 %d1, %f1; cvt." +
                     c.mode + "." + c.type + ".f64 %r2, %d1; st.global.u32 [%rd2+4], %r2;",
                 in);
    for (int t = 0; t < 32; ++t) {
      const double x = values[t];
      const double want = std::isnan(x) ? 0 : std::min(std::max(c.round(x), c.low), c.high);
      const int bits = static_cast<int>(static_cast<std::int64_t>(want));
      EXPECT_EQ(out[t * 8], bits) << c.mode << "." << c.type << " of " << x;
      EXPECT_EQ(out[t * 8 + 1], bits) << c.mode << "." << c.type << ".f64 of " << x;
    }
  }
  const auto longs = run<std::int64_t>(
      "ld.global.f32 %f1, [%rd1]; cvt.rzi.s64.f32 %rd3, %f1; cvt.rzi.u64.f32 %rd4, %f1; "
      "st.global.v2.u64 [%rd2], {%rd3, %rd4};",
      [&] {
        std::vector<std::int64_t> slots(128, 0);
        for (int t = 0; t < 32; ++t) slots[t * 4] = std::bit_cast<std::uint32_t>(values[t]);
        return slots;
      }());
  for (int t = 0; t < 32; ++t) {
    const float x = values[t];
    std::int64_t as_signed = 0;
    std::uint64_t as_unsigned = 0;
    if (!std::isnan(x)) {
      as_signed = x >= 0x1p63f   ? INT64_MAX
                  : x < -0x1p63f ? INT64_MIN
                                 : static_cast<std::int64_t>(x);
      as_unsigned = x >= 0x1p64f ? UINT64_MAX : x < 0 ? 0 : static_cast<std::uint64_t>(x);
    }
    EXPECT_EQ(longs[t * 4], as_signed) << x;
    EXPECT_EQ(static_cast<std::uint64_t>(longs[t * 4 + 1]), as_unsigned) << x;
  }
}

TEST_F(HandWritten, IntegerConversionsBetweenAllWidths) {
  const std::int64_t values[] = {0,           1,
                                 -1,          127,
                                 128,         -128,
                                 -129,        255,
                                 256,         32767,
                                 32768,       -32769,
                                 65535,       65536,
                                 2147483647,  2147483648,
                                 -2147483649, 4294967295,
                                 4294967296,  INT64_MAX,
                                 INT64_MIN,   0x1234567890abcdef,
                                 -77,         3,
                                 5,           7,
                                 9,           11,
                                 13,          15,
                                 17,          19};
  std::vector<std::int64_t> in(128, 0);
  for (int t = 0; t < 32; ++t) in[t * 4] = values[t];
  struct Kind {
    const char* name;
    int bits;
    bool is_signed;
  };
  const Kind kinds[] = {{"s8", 8, true},    {"u8", 8, false},  {"s16", 16, true},
                        {"u16", 16, false}, {"s32", 32, true}, {"u32", 32, false},
                        {"s64", 64, true},  {"u64", 64, false}};
  auto as = [](std::int64_t value, const Kind& kind) -> __int128 {
    if (kind.bits == 64)
      return kind.is_signed ? static_cast<__int128>(value)
                            : static_cast<__int128>(static_cast<std::uint64_t>(value));
    const std::uint64_t low = static_cast<std::uint64_t>(value) & ((1ull << kind.bits) - 1);
    const bool negative = kind.is_signed && (low >> (kind.bits - 1) & 1) != 0;
    return static_cast<__int128>(low) - (negative ? static_cast<__int128>(1) << kind.bits : 0);
  };
  for (const Kind& from : kinds) {
    for (const Kind& to : kinds) {
      const std::string types = std::string(to.name) + "." + from.name;
      const auto out =
          run<std::int64_t>("ld.global.u64 %rd3, [%rd1]; cvt." + types + " %rd4, %rd3; cvt.sat." +
                                types + " %rd5, %rd3; st.global.v2.u64 [%rd2], {%rd4, %rd5};",
                            in);
      for (int t = 0; t < 32; ++t) {
        const __int128 source = as(values[t], from);
        const std::int64_t plain =
            static_cast<std::int64_t>(as(static_cast<std::int64_t>(source), to));
        EXPECT_EQ(out[t * 4], plain) << types << " of " << values[t];
        const __int128 low = to.is_signed ? -(static_cast<__int128>(1) << (to.bits - 1)) : 0;
        const __int128 high =
            (static_cast<__int128>(1) << (to.is_signed ? to.bits - 1 : to.bits)) - 1;
        const __int128 clamped = std::min(std::max(source, low), high);
        EXPECT_EQ(out[t * 4 + 1], static_cast<std::int64_t>(clamped))
            << "sat " << types << " of " << values[t];
      }
    }
  }
}

TEST_F(HandWritten, FlushingAndSaturatingForms) {
  const auto out = run<float>(R"(
  mov.f32 %f1, 0f00400000;
  add.f32 %f2, %f1, 0f00000000;
  add.ftz.f32 %f3, %f1, 0f00000000;
  add.sat.f32 %f4, %f1, 0f40000000;
  fma.rn.sat.f32 %f5, 0f40000000, 0fBF800000, 0f3F800000;
  max.f32 %f6, 0f7FC00000, 0f40400000;
  min.f32 %f7, 0f80000000, 0f00000000;
  mul.ftz.f32 %f8, 0f00800000, 0f3F000000;
  st.global.v4.f32 [%rd2], {%f2, %f3, %f4, %f5};
  st.global.v2.f32 [%rd2+16], {%f6, %f7};
  st.global.f32 [%rd2+24], %f8;)",
                              std::vector<float>(256));
  EXPECT_EQ(out[0], std::bit_cast<float>(0x00400000));
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_EQ(out[2], 1.0f);
  EXPECT_EQ(out[3], 0.0f);
  EXPECT_EQ(out[4], 3.0f);
  EXPECT_TRUE(std::signbit(out[5]));
  EXPECT_EQ(out[6], 0.0f);
}

TEST_F(HandWritten, OldStyleFunctionsTakeRegisters) {
  FakeDevice device;
  const std::string text = with_header(R"(
.func (.reg .b32 %res) scale (.reg .b32 %x, .reg .b32 %y)
{
  mul.lo.s32 %res, %x, %y;
  ret;
}
.visible .entry k(.param .u64 out)
{
  .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  call (%r2), scale, (%r1, 9);
  mad.wide.u32 %rd1, %r1, 4, %rd1;
  st.global.u32 [%rd1], %r2;
}
)");
  const auto module = load_module(device, {text});
  ASSERT_NE(module, nullptr);
  const auto out = device.allocate(32 * 4);
  EXPECT_EQ(run_kernel(device, *module, "k", {{1}, {32}}, Arguments().add(out)).kind,
            Fault::Kind::kNone);
  const auto r = device.download<int>(out, 32);
  for (int t = 0; t < 32; ++t) EXPECT_EQ(r[t], 9 * t);
}

struct FaultCase {
  const char* body;
  Fault::Kind kind;
};

/// The second line of the body faults: line 19 of the source.
class Faults : public testing::TestWithParam<FaultCase> {};

TEST_P(Faults, StopTheKernelWithAddressAndLine) {
  FakeDevice device;
  const std::string text = kernel(GetParam().body);
  const auto module = load_module(device, {text});
  ASSERT_NE(module, nullptr);
  const auto slots = device.allocate(64 * 32);
  const Kernel& k = *module->find_kernel("k");
  Execution execution(k, make_config(device, k, {{2}, {64}}, Arguments().add(slots).add(slots)));
  ASSERT_EQ(execution.run(1 << 20), Execution::State::kFault);
  EXPECT_EQ(execution.fault().kind, GetParam().kind) << execution.fault().text;
  EXPECT_EQ(execution.fault().line, 19) << execution.fault().text;
  EXPECT_NE(execution.fault().text.find("'k'"), std::string::npos);
  EXPECT_EQ(execution.run(1 << 20), Execution::State::kFault) << "stays";
}

INSTANTIATE_TEST_SUITE_P(
    All, Faults,
    testing::Values(
        FaultCase{"mov.u64 %rd3, 0;\nld.global.u32 %r1, [%rd3];", Fault::Kind::kIllegalAddress},
        FaultCase{"add.u64 %rd3, %rd1, 65536;\nst.global.u32 [%rd3], %r1;",
                  Fault::Kind::kIllegalAddress},
        FaultCase{"setp.eq.u32 %p1, %r0, 37;\n@%p1 ld.global.u32 %r1, [8];",
                  Fault::Kind::kIllegalAddress},
        FaultCase{"add.u64 %rd3, %rd1, 2;\nld.global.u32 %r1, [%rd3];",
                  Fault::Kind::kMisalignedAddress},
        FaultCase{"add.u64 %rd3, %rd1, 8;\nld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd3];",
                  Fault::Kind::kMisalignedAddress},
        FaultCase{"mov.u32 %r1, 64;\nst.shared.u32 [%r1], %r1;", Fault::Kind::kIllegalAddress},
        FaultCase{"mov.u64 %rd3, 16;\natom.global.add.u32 %r1, [%rd3], 1;",
                  Fault::Kind::kIllegalAddress},
        FaultCase{"mov.u64 %rd3, 1234;\ncall %rd3;", Fault::Kind::kIllegalInstruction},
        FaultCase{"mov.u32 %r1, 99;\nbar.sync %r1;", Fault::Kind::kIllegalInstruction},
        FaultCase{"setp.eq.u32 %p1, %r0, 3;\n@%p1 trap;", Fault::Kind::kTrap}));

TEST(HostMemory, AddressesOutsideTheArenaAreAskedFor) {
  FakeDevice device;
  AddressSpace memory = device.memory();
  alignas(64) static std::uint32_t pinned[64];
  memory.host_range = [](void*, std::uint64_t address, std::size_t bytes) -> std::byte* {
    const auto base = reinterpret_cast<std::uint64_t>(&pinned[0]);
    return address >= base && address + bytes <= base + sizeof(pinned)
               ? reinterpret_cast<std::byte*>(address)
               : nullptr;
  };
  const std::string text = with_header(R"(
.visible .entry k(.param .u64 p)
{
  .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %rd1, %r1, 4, %rd1;
  atom.add.sys.u32 %r2, [%rd1], 5;
  ld.u32 %r3, [%rd1];
  add.u32 %r3, %r3, %r1;
  st.u32 [%rd1], %r3;
  ret;
}
)");
  const auto module = load_module(device, {text});
  ASSERT_NE(module, nullptr);
  const Kernel& k = *module->find_kernel("k");
  for (const auto& [threads, state] :
       {std::pair{64u, Execution::State::kDone}, std::pair{65u, Execution::State::kFault}}) {
    std::fill(std::begin(pinned), std::end(pinned), 100);
    LaunchConfig config = make_config(device, k, {{1}, {threads}},
                                      Arguments().add(reinterpret_cast<std::uint64_t>(&pinned[0])));
    config.memory = &memory;
    Execution execution(k, std::move(config));
    EXPECT_EQ(execution.run(10000), state);
  }
  for (std::uint32_t t = 0; t < 64; ++t) EXPECT_EQ(pinned[t], 105 + t);
}

TEST(Budget, ResultsDontDependOnHowOftenTheKernelIsInterrupted) {
  const std::string text = kernel(R"(
  mov.u32 %r1, 0; mov.u32 %r2, %r0;
L: mad.lo.u32 %r2, %r2, 1664525, 1013904223;
  and.b32 %r3, %r2, 1024; setp.ne.u32 %p1, %r3, 0;
  @%p1 add.u32 %r1, %r1, 1;
  setp.lt.u32 %p2, %r1, 20; @%p2 bra L;
  bar.sync 0;
  ld.global.f32 %f2, [%rd1]; ld.param.u64 %rd3, [in];
  atom.global.add.f32 %f1, [%rd3+16], 0f3DCCCCCD;
  st.global.v2.u32 [%rd2], {%r2, %r1}; st.global.f32 [%rd2+8], %f1;)");
  std::vector<std::vector<std::uint32_t>> results;
  std::vector<std::uint64_t> counts;
  for (std::uint64_t budget : {1u, 7u, 1000u, 1u << 20}) {
    FakeDevice device;
    const auto module = load_module(device, {text});
    ASSERT_NE(module, nullptr);
    const auto in = device.allocate(96 * 32), out = device.allocate(96 * 32);
    const Kernel& k = *module->find_kernel("k");
    Execution execution(k, make_config(device, k, {{3}, {96}}, Arguments().add(in).add(out)));
    Execution::State state;
    do state = execution.run(budget);
    while (state == Execution::State::kBudgetUsed);
    EXPECT_EQ(state, Execution::State::kDone);
    results.push_back(device.download<std::uint32_t>(out, 96 * 8));
    counts.push_back(execution.warp_instructions());
  }
  for (std::size_t i = 1; i < results.size(); ++i) EXPECT_EQ(results[i], results[0]);
  EXPECT_GT(counts[0], 1000u);
}

TEST(Sleep, NanosleepGivesTheTimeToWake) {
  FakeDevice device;
  const std::string text =
      kernel("mov.u32 %r1, 700; nanosleep.u32 %r1; st.global.u32 [%rd2], %r1;");
  const auto module = load_module(device, {text});
  ASSERT_NE(module, nullptr);
  const auto slots = device.allocate(32 * 32);
  const Kernel& k = *module->find_kernel("k");
  Execution execution(k, make_config(device, k, {{1}, {32}}, Arguments().add(slots).add(slots)));
  ASSERT_EQ(execution.run(1000), Execution::State::kWaiting);
  EXPECT_EQ(execution.wake_ns(), device.now_ns + 700);
  ASSERT_EQ(execution.run(1000), Execution::State::kWaiting) << "too early";
  device.now_ns += 700;
  ASSERT_EQ(execution.run(1000), Execution::State::kDone);
}

}  // namespace
}  // namespace plexrl::simgpu::ptx
