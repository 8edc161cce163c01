#include <gtest/gtest.h>

#include <random>

#include "tests/unit/ptx/fake_device.h"
#include "tests/unit/ptx/hand_written.h"

namespace plexrl::simgpu::ptx {
namespace {

const char kSeedBody[] = R"(
  setp.lt.and.s32 %p1|%p2, %r0, 5, %p3;
  @!%p1 bra L;
  { .reg .b32 a, b; mov.b32 a, 0x12U; mov.b64 {a, b}, %rd3; add.cc.u32 a, a, b; addc.u32 b, b, 0; }
L:
  table: .branchtargets L, M;
  and.b32 %r1, %r0, 1;
  @%p4 brx.idx %r1, table;
M:
  { .param .align 8 .b8 param0[16]; .param .b32 retval0;
    st.param.v2.u32 [param0+8], {%r1, %r2};
    call.uni (retval0), helper, (param0);
    ld.param.b32 %r2, [retval0]; }
  cvt.rn.f16.f32 %h1, %f1; cvt.sat.u8.s32 %r4, %r2;
  shfl.sync.bfly.b32 %r5|%p5, %r4, 1, 31, -1;
  atom.shared.add.u32 %r6, [tile+4], %r5;
  bar.sync 0;
  ld.global.v2.u32 {_, %r7}, [%rd1+8];
  st.global.v4.u32 [%rd2+16], {%r1, %r7, %r5, %r6};
)";

std::string seed() {
  return kernel(kSeedBody) + R"(
.shared .align 4 .b8 tile[64];
.global .align 8 .u64 table2[3] = {helper, tile2+4, 0x10};
.global .b8 tile2[8] = {1, 2, 3};
.visible .func (.param .b32 r) helper (.param .align 8 .b8 x[16])
{
  .local .align 4 .b8 depot[8]; .reg .b32 %r<3>;
  ld.param.u32 %r1, [x+8]; st.local.u32 [depot], %r1; ld.local.u32 %r2, [depot]; st.param.b32 [r], %r2; ret;
}
)";
}

/// Text with parts changed, doubled, dropped and exchanged. Whatever comes out either fails to load
/// with a message, or runs until it ends, waits, faults or has used its budget.
TEST(Mutations, NeverBreakTheExecutor) {
  const std::string original = seed();
  {
    FakeDevice device;
    ASSERT_NE(load_module(device, {original}), nullptr) << "the unchanged text is fine";
  }
  const char* const words[] = {"%r1", "%rd1", "%p1",    "%h1",   "0",       "-1",  "999999999999",
                               "{",   "}",    "[",      "]",     "(",       ")",   ";",
                               ",",   ".u64", ".f32",   ".pred", ".param",  "@",   "|",
                               "_",   "L",    "helper", "tile",  "retval0", "bra", "ret;"};
  std::mt19937 random(12345);
  int loaded = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string text = original;
    for (int edits = 1 + static_cast<int>(random() % 2); edits > 0; --edits) {
      const std::size_t at = 60 + random() % (text.size() - 60), length = random() % 12;
      switch (random() % 4) {
        case 0:
          text.replace(at, random() % 4, words[random() % std::size(words)]);
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(60 + random() % (text.size() - 60), length));
          break;
        default:
          text[at] = static_cast<char>(32 + random() % 95);
      }
    }
    const std::string_view view = text;
    LoadError error = LoadError::kNone;
    std::string log;
    const auto module = Module::load({&view, 1}, 75, &error, &log);
    ASSERT_EQ(module == nullptr, error != LoadError::kNone) << text;
    if (module == nullptr) {
      ASSERT_FALSE(log.empty()) << text;
      continue;
    }
    const Kernel* const k = module->find_kernel("k");
    if (k == nullptr || info(*k).parameters.size() != 2 || info(*k).static_shared_bytes > 1 << 20)
      continue;
    ++loaded;
    FakeDevice device;
    LaunchConfig config = make_config(
        device, *k, {{1}, {40}}, Arguments().add(device.allocate(2048)).add(device.allocate(2048)));
    Execution execution(*k, std::move(config));
    execution.run(3000);
  }
  EXPECT_GT(loaded, 100) << "mutations are too destructive to test anything";
}

}  // namespace
}  // namespace plexrl::simgpu::ptx
