#include "tests/unit/ptx/fake_device.h"
#include "tests/unit/ptx/hand_written.h"

#include <gtest/gtest.h>

/// Loading and linking: what modules tell about themselves, and how they fail.
namespace plexrl::simgpu::ptx {
namespace {

LoadError load_error(const std::string& text, std::string* log, int sm = 75) {
  LoadError error = LoadError::kNone;
  const std::string_view view = text;
  EXPECT_EQ(Module::load({&view, 1}, sm, &error, log), nullptr);
  return error;
}

TEST(Linking, SeveralSourcesSeeEachOthersVisibleSymbols) {
  FakeDevice device;
  const std::string a = with_header(R"(
.extern .func (.param .b32 r) twice (.param .b32 x);
.extern .global .u32 shared_counter;
.global .u32 own = 5;
.visible .entry k(.param .u64 out)
{
  .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.global.u32 %r1, [own];
  { .param .b32 p; .param .b32 q;
    st.param.b32 [p], %r1;
    call (q), twice, (p);
    ld.param.b32 %r2, [q]; }
  ld.global.u32 %r3, [shared_counter];
  add.u32 %r2, %r2, %r3;
  ld.param.u64 %rd1, [out];
  st.global.u32 [%rd1], %r2;
  ret;
}
)");
  const std::string b = with_header(R"(
.visible .global .u32 shared_counter = 1000;
.global .u32 own = 7;
.visible .global .u64 pointers[2] = {own, shared_counter+2};
.visible .func (.param .b32 r) twice (.param .b32 x)
{
  .reg .b32 %r<4>;
  ld.param.b32 %r1, [x];
  ld.global.u32 %r2, [own];
  mad.lo.u32 %r1, %r1, 2, %r2;
  st.param.b32 [r], %r1;
  ret;
}
)");
  const auto module = load_module(device, {a, b});
  ASSERT_NE(module, nullptr);
  const auto out = device.allocate(4);
  EXPECT_EQ(run_kernel(device, *module, "k", {}, Arguments().add(out)).kind, Fault::Kind::kNone);
  EXPECT_EQ(device.download<int>(out, 1)[0], 5 * 2 + 7 + 1000);
  ASSERT_EQ(module->variables().size(), 4u);
  const Variable& pointers = module->variables()[3];
  EXPECT_EQ(pointers.name, "pointers");
  ASSERT_EQ(pointers.relocations.size(), 2u);
  EXPECT_EQ(pointers.relocations[0].symbol, module->variables()[2].name)
      << "the private variable of the same source";
  EXPECT_NE(pointers.relocations[0].symbol, "own");
  EXPECT_EQ(pointers.relocations[1].symbol, "shared_counter");
  EXPECT_EQ(pointers.relocations[1].addend, 2);
  EXPECT_EQ(pointers.relocations[1].offset, 8u);
}

TEST(Linking, MissingAndDoubleDefinitionsAreErrors) {
  std::string log;
  EXPECT_EQ(load_error(with_header(".extern .func f;\n.visible .entry k() { call f; ret; }"), &log),
            LoadError::kUnresolvedSymbol);
  EXPECT_NE(log.find("'f'"), std::string::npos) << log;
  EXPECT_EQ(load_error(with_header(".extern .global .u32 x;\n.visible .entry k() { .reg .b32 r; "
                                   "ld.global.u32 r, [x]; ret; }"),
                       &log),
            LoadError::kUnresolvedSymbol);
  const std::string one = with_header(".visible .global .u32 x;");
  const std::string_view both[] = {one, one};
  LoadError error = LoadError::kNone;
  EXPECT_EQ(Module::load(both, 75, &error, &log), nullptr);
  EXPECT_EQ(error, LoadError::kInvalidPtx);
}

TEST(LoadErrors, UnknownInstructionIsNamedWithItsLine) {
  std::string log;
  EXPECT_EQ(
      load_error(
          with_header(
              ".visible .entry k()\n{\n  .reg .b32 %r<3>;\n  frob.lo.u32 %r1, %r2;\n  ret;\n}\n"),
          &log),
      LoadError::kUnsupportedInstruction);
  EXPECT_EQ(log, "line 7: unknown instruction 'frob.lo.u32'");
  EXPECT_EQ(load_error(kernel("add.odd.u32 %r1, %r2, %r3;"), &log),
            LoadError::kUnsupportedInstruction);
  EXPECT_NE(log.find("'add.odd.u32'"), std::string::npos) << log;
}

TEST(LoadErrors, SyntaxErrorsNameTheLine) {
  std::string log;
  EXPECT_EQ(load_error(with_header(".visible .entry k()\n{\n  add.u32 %r1 %r2;\n}\n"), &log),
            LoadError::kInvalidPtx);
  EXPECT_TRUE(log.starts_with("line 6: ")) << log;
  EXPECT_EQ(load_error("garbage", &log), LoadError::kInvalidPtx);
  EXPECT_TRUE(log.starts_with("line 1: ")) << log;
  EXPECT_EQ(load_error("", &log), LoadError::kInvalidPtx);
  EXPECT_EQ(load_error(with_header(".visible .entry k()\n{\n  ret;\n"), &log),
            LoadError::kInvalidPtx);
  EXPECT_EQ(load_error(with_header(".visible .entry k()\n{\n  bra NOWHERE;\n}\n"), &log),
            LoadError::kInvalidPtx);
  EXPECT_NE(log.find("NOWHERE"), std::string::npos) << log;
  EXPECT_EQ(load_error(kernel("add.u32 %r1, %rd1, %r2;"), &log), LoadError::kInvalidPtx);
  EXPECT_EQ(load_error(kernel("add.u32 %r1, %r2;"), &log), LoadError::kInvalidPtx);
}

TEST(LoadErrors, NewerTargetIsRefused) {
  std::string log;
  EXPECT_EQ(load_error(".version 8.0\n.target sm_80\n.address_size 64\n", &log),
            LoadError::kTargetTooNew);
  LoadError error;
  const std::string_view text = ".version 8.0\n.target sm_80\n.address_size 64\n";
  EXPECT_NE(Module::load({&text, 1}, 86, &error, &log), nullptr);
}

TEST(LoadErrors, EveryCutOfAModuleIsHandled) {
  const std::string text = kernel(
      "@!%p1 bra L; { .reg .b32 a; mov.b32 a, 0x12U; } L: st.global.v2.u32 [%rd2+4], {%r1, _};");
  for (std::size_t length = 0; length < text.size(); ++length) {
    const std::string_view cut(text.data(), length);
    LoadError error = LoadError::kNone;
    std::string log;
    const auto module = Module::load({&cut, 1}, 75, &error, &log);
    EXPECT_EQ(module == nullptr, error != LoadError::kNone);
    EXPECT_EQ(log.empty(), error == LoadError::kNone) << length;
  }
}

TEST(KernelInfo, ParametersSharedAndLimits) {
  FakeDevice device;
  const std::string text = with_header(R"(
.shared .align 4 .b8 tile_a[400];
.shared .align 16 .b8 tile_b[1000];
.visible .entry first(.param .u8 a, .param .align 8 .b8 b[20], .param .u16 c, .param .u64 .ptr .global .align 4 d)
.maxntid 64, 2, 1
{
  .local .align 8 .b8 depot[24];
  .reg .b32 %r<10>; .reg .b64 %rd<3>;
  mov.u32 %r1, tile_a; st.shared.u32 [%r1], %r1; st.local.u32 [depot+4], %r1;
  ret;
}
.visible .entry second() { .reg .b32 %r<3>; mov.u32 %r1, tile_b; st.shared.u32 [tile_b+996], %r1; ret; }
)");
  const auto module = load_module(device, {text});
  ASSERT_NE(module, nullptr);
  ASSERT_EQ(module->kernels().size(), 2u);
  const KernelInfo& first = info(*module->find_kernel("first"));
  std::vector<std::size_t> offsets, sizes;
  for (const Parameter& parameter : first.parameters) {
    offsets.push_back(parameter.offset);
    sizes.push_back(parameter.bytes);
  }
  EXPECT_EQ(offsets, (std::vector<std::size_t>{0, 8, 28, 32}));
  EXPECT_EQ(sizes, (std::vector<std::size_t>{1, 20, 2, 8}));
  EXPECT_EQ(first.parameter_bytes, 40u);
  EXPECT_EQ(first.static_shared_bytes, 400u);
  EXPECT_EQ(first.local_bytes, 32u);
  EXPECT_EQ(first.max_threads, 128);
  EXPECT_EQ(first.registers, 16);
  EXPECT_EQ(info(*module->find_kernel("second")).static_shared_bytes, 1000u);
  EXPECT_EQ(module->find_kernel("third"), nullptr);
  EXPECT_EQ(run_kernel(device, *module, "second", {}, Arguments()).kind, Fault::Kind::kNone);
}

}  // namespace
}  // namespace plexrl::simgpu::ptx
