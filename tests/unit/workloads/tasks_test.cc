#include "tests/workloads/rlvr/tasks.h"

#include <gtest/gtest.h>

#include "tests/workloads/rlvr/digest.h"

namespace plexrl::workloads::rlvr {
namespace {

TEST(Verify, OnlyTheSumModuloIsRewarded) {
  const std::vector<Prompt> prompts = {{6, 7}, {2, 3}};
  const Scores scores = verify(11, prompts, {2, 3, 5, 5}, 2);

  EXPECT_DOUBLE_EQ(scores.mean_reward, 0.75);
  EXPECT_GT(scores.advantages[0], 0.9f);
  EXPECT_LT(scores.advantages[1], -0.9f);
  EXPECT_EQ(scores.advantages[2], 0.0f);  // all answers right: nothing to learn from this prompt
  EXPECT_EQ(scores.advantages[3], 0.0f);
}

TEST(MakePrompts, DependOnSeedAndStepAndStayInRange) {
  const auto same = [](const std::vector<Prompt>& x, const std::vector<Prompt>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [](Prompt p, Prompt q) { return p.a == q.a && p.b == q.b; });
  };
  const std::vector<Prompt> prompts = make_prompts(11, 256, 5, 3);

  EXPECT_TRUE(same(prompts, make_prompts(11, 256, 5, 3)));
  EXPECT_FALSE(same(prompts, make_prompts(11, 256, 5, 4)));
  EXPECT_FALSE(same(prompts, make_prompts(11, 256, 6, 3)));
  for (const Prompt& p : prompts) {
    EXPECT_TRUE(p.a >= 0 && p.a < 11 && p.b >= 0 && p.b < 11);
  }
}

TEST(Digest, OneChangedBitAnywhereChangesIt) {
  std::vector<unsigned char> bytes(200, 0);
  const auto digest_of = [](const std::vector<unsigned char>& data) {
    Digest digest;
    digest.add(data.data(), data.size());
    return digest.hex();
  };
  const std::string before = digest_of(bytes);

  for (const std::size_t at : {0, 31, 32, 100, 192, 199}) {
    bytes[at] ^= 0x80;
    EXPECT_NE(digest_of(bytes), before) << "byte " << at;
    bytes[at] ^= 0x80;
  }
  EXPECT_EQ(digest_of(bytes), before);
}

TEST(Digest, TrailingZerosAndOrderCount) {
  const unsigned char ab[64] = {1}, zeros[33] = {};
  Digest longer, shorter, first, second;
  longer.add(zeros, 33);
  shorter.add(zeros, 32);
  EXPECT_NE(longer.hex(), shorter.hex());
  first.add(ab, 32);
  first.add(ab + 32, 32);
  second.add(ab + 32, 32);
  second.add(ab, 32);
  EXPECT_NE(first.hex(), second.hex());
}

}  // namespace
}  // namespace plexrl::workloads::rlvr
