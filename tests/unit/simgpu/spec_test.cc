#include "tools/simgpu/driver/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexrl::simgpu {
namespace {

using testing::HasSubstr;

Spec parsed(std::string_view text) {
  Spec spec;
  std::string error;
  EXPECT_TRUE(parse_spec(text, &spec, &error)) << error;
  return spec;
}

std::string error_of(std::string_view text) {
  Spec spec;
  std::string error;
  EXPECT_FALSE(parse_spec(text, &spec, &error)) << text;
  EXPECT_EQ(spec.device_part(), Spec{}.device_part()) << "a bad text must change nothing";
  return error;
}

TEST(Spec, NothingSaidIsOneGpuOfOneGibibyte) {
  const Spec spec = parsed("");
  EXPECT_EQ(spec.gpus, 1);
  EXPECT_EQ(spec.memory_bytes, 1ull << 30);
  EXPECT_EQ(spec.link_bytes_per_s, 1'000'000'000u);
  EXPECT_DOUBLE_EQ(spec.duplex, 0.7);
  EXPECT_EQ(spec.context_bytes, 16ull << 20);
  EXPECT_EQ(spec.queue_depth, 1024u);
  EXPECT_EQ(spec.sm, 75);
}

TEST(Spec, AnUnknownKeyIsAnsweredByTheNearestOrByAll) {
  EXPECT_NE(error_of("mem=1GiB").find("'mem'"), std::string::npos);
  EXPECT_NE(error_of("memroy=1GiB").find("did you mean 'memory'?"), std::string::npos);
  const std::string far = error_of("foo=1");
  EXPECT_EQ(far.find("did you mean"), std::string::npos) << far;
  EXPECT_NE(far.find("the keys are name gpus memory"), std::string::npos) << far;
}

TEST(Spec, ReadsEveryKey) {
  const Spec spec = parsed(
      "name=a-1,gpus=2,memory=256MiB,link=2GB/s,duplex=0.5,hbm=16GB/"
      "s,sms=8,sm=80,ctx=4MiB,vmm=10us,"
      "free_delay=5ms,queue=16,order=fixed,log=/tmp/"
      "x.log,seed=9,stagger=3ms,fail=cuMemCreate@3:2,hang=4,slow=2.5");
  EXPECT_EQ(spec.name, "a-1");
  EXPECT_EQ(spec.gpus, 2);
  EXPECT_EQ(spec.memory_bytes, 256ull << 20);
  EXPECT_EQ(spec.link_bytes_per_s, 2'000'000'000u);
  EXPECT_DOUBLE_EQ(spec.duplex, 0.5);
  EXPECT_EQ(spec.hbm_bytes_per_s, 16'000'000'000u);
  EXPECT_EQ(spec.sms, 8);
  EXPECT_EQ(spec.sm, 80);
  EXPECT_EQ(spec.context_bytes, 4ull << 20);
  EXPECT_EQ(spec.vmm_ns, 10'000u);
  EXPECT_EQ(spec.free_delay_ns, 5'000'000u);
  EXPECT_EQ(spec.queue_depth, 16u);
  EXPECT_TRUE(spec.fixed_order);
  EXPECT_EQ(spec.log_path, "/tmp/x.log");
  EXPECT_EQ(spec.seed, 9u);
  EXPECT_EQ(spec.stagger_ns, 3'000'000u);
  EXPECT_EQ(spec.failure.call, "cuMemCreate");
  EXPECT_EQ(spec.failure.nth, 3u);
  EXPECT_EQ(spec.failure.code, 2);
  EXPECT_EQ(spec.hang_kernel, 4u);
  EXPECT_DOUBLE_EQ(spec.slow, 2.5);
}

TEST(Spec, MemoryIsRoundedUpToFrames) {
  EXPECT_EQ(parsed("memory=100000001").memory_bytes, 48ull * (2u << 20));
}

TEST(Spec, ZeroMeansNoCost) {
  const Spec spec = parsed("link=0,vmm=0,hbm=0");
  EXPECT_EQ(spec.link_bytes_per_s, 0u);
  EXPECT_EQ(spec.vmm_ns, 0u);
  EXPECT_EQ(spec.hbm_bytes_per_s, 0u);
}

TEST(Spec, AnUnknownKeyNamesTheNearestOne) {
  EXPECT_THAT(error_of("memroy=1GiB"), HasSubstr("'memory'"));
  EXPECT_THAT(error_of("lnik=1GB/s"), HasSubstr("'link'"));
}

TEST(Spec, AnImpossibleValueIsNamedWithWhatIsPossible) {
  EXPECT_THAT(error_of("gpus=17"), AllOf(HasSubstr("gpus='17'"), HasSubstr("1..16")));
  EXPECT_THAT(error_of("memory=lots"), AllOf(HasSubstr("'lots'"), HasSubstr("1GiB")));
  EXPECT_THAT(error_of("fail=cuMemCreate"), HasSubstr("CALL@N:CODE"));
  EXPECT_THAT(error_of("order=random"), HasSubstr("fixed"));
  EXPECT_THAT(error_of("queue=1"), HasSubstr("at least 2"));
  EXPECT_THAT(error_of("name=../etc"), HasSubstr("name"));
  EXPECT_THAT(error_of("duplex"), HasSubstr("duplex"));
}

TEST(Spec, TheSharedFiguresReadBackAsTheyWereWritten) {
  const Spec spec =
      parsed("gpus=2,memory=96MiB,link=3GB/s,duplex=0.25,sms=3,ctx=0,vmm=1us,queue=7");
  EXPECT_EQ(parsed(spec.device_part()).device_part(), spec.device_part());
}

}  // namespace
}  // namespace plexrl::simgpu
