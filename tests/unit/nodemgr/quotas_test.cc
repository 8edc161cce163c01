#include "nodemgr/quotas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexrl::nodemgr {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::uint64_t kMiB = 1 << 20;

/// A node with 3000 MiB of host memory and 5000 of disk, of which 4000 are free.
class QuotaTest : public ::testing::Test {
 protected:
  QuotaUse use(std::vector<QuotaUse::Promise> promises = {}) const {
    for (QuotaUse::Promise& promise : promises) promise.bytes *= kMiB;
    return {team, quotas, {3000 * kMiB, 4000 * kMiB, 5000 * kMiB}, promises};
  }
  std::uint64_t most(std::uint64_t gpus, std::vector<QuotaUse::Promise> promises = {}) const {
    return use(std::move(promises)).most(gpus) / kMiB;
  }
  std::optional<std::string> team = "t";
  Quotas quotas;
};

TEST_F(QuotaTest, WithoutQuotasNothingIsKeptBack) {
  EXPECT_FALSE(use().any());
  EXPECT_GT(most(3, {{3, 900}, {3, 900}}), 1'000'000u);
  EXPECT_THAT(use().lines(), IsEmpty());
}

TEST_F(QuotaTest, JobsThatTakeTurnsOnAGpuNeedItOnce) {
  quotas.hbm = 600 * kMiB;
  EXPECT_EQ(most(1), 600u);
  EXPECT_EQ(most(1, {{1, 600}, {1, 500}}), 600u);
  EXPECT_EQ(use({{1, 600}, {1, 500}}).in_hbm(), 600 * kMiB);
  EXPECT_EQ(use({{1, 600}, {1, 500}}).outside(), 1100 * kMiB);
}

TEST_F(QuotaTest, GpusAreCountedTogether) {
  quotas.hbm = 1000 * kMiB;
  EXPECT_EQ(most(2, {{1, 600}}), 400u);
  EXPECT_EQ(most(3), 500u);
  EXPECT_EQ(most(3, {{1, 600}}), 400u) << "of the other GPU; on this one the larger promise counts";
  EXPECT_EQ(use({{1, 600}, {3, 400}}).in_hbm(), 1000 * kMiB);
}

TEST_F(QuotaTest, AllThatIsPromisedHasToFitOutside) {
  quotas.host = 500 * kMiB;
  quotas.disk = 100 * kMiB;
  EXPECT_EQ(most(1), 600u);
  EXPECT_EQ(most(3), 300u);
  EXPECT_EQ(most(1, {{3, 200}}), 200u);
  EXPECT_EQ(most(1, {{1, 600}}), 0u);
}

TEST_F(QuotaTest, OfATierWithoutQuotaTheyMayHaveWhatTheNodeHas) {
  quotas.host = 500 * kMiB;
  EXPECT_EQ(most(1), 4500u);
  EXPECT_EQ(use().most_alone(1), 5500 * kMiB) << "the disk may be emptier one day";
  quotas = {};
  quotas.disk = 0;
  EXPECT_EQ(most(1), 3000u);
  quotas.host = 9000 * kMiB;
  EXPECT_EQ(most(1), 3000u) << "and no more than that of one with";
}

TEST_F(QuotaTest, PromisesThatExceedAQuotaLeaveNothing) {
  quotas.hbm = 500 * kMiB;
  EXPECT_EQ(most(1, {{1, 900}}), 0u);
  EXPECT_EQ(use({{1, 900}}).most_alone(1), 500 * kMiB);
}

TEST_F(QuotaTest, ARefusalSaysWhatHowMuchAndWhoMayGiveMore) {
  quotas.hbm = 600 * kMiB;
  EXPECT_EQ(use({{1, 400}}).refusal(2, 300 * kMiB),
            "team 't' may be promised 600MiB of HBM; its jobs have been promised 400MiB; this one "
            "asks for 300MiB, and it would be 700MiB: lower --memory, wait for a job of the team "
            "to end, or ask an administrator, who may give more with plexrl-ctl limits --team t "
            "--hbm SIZE");
  const std::string never = use().refusal(3, 301 * kMiB);
  EXPECT_THAT(never, HasSubstr("301MiB on each of 2 GPUs, and it would be 602MiB, which will never "
                               "fit: lower --memory, or ask"));
  EXPECT_THAT(never, Not(HasSubstr("wait for")));
  quotas = {};
  quotas.host = 500 * kMiB;
  const std::string outside = use({{1, 4400}}).refusal(1, 200 * kMiB);
  EXPECT_THAT(outside,
              HasSubstr("may have 500MiB of host memory and the node's 3.91GiB of disk for "
                        "all that it is promised"));
  EXPECT_THAT(outside, HasSubstr("--host SIZE"));
  team.reset();
  quotas.hbm = 100 * kMiB;
  EXPECT_EQ(use().refusal(1, 101 * kMiB),
            "a job may be promised 100MiB of HBM; this one asks for 101MiB, which will never fit: "
            "lower --memory, or ask an administrator, who may give more with plexrl-ctl limits "
            "--each-job --hbm SIZE");
}

TEST_F(QuotaTest, LinesTellHowMuchOfEachQuotaIsPromised) {
  quotas.hbm = 600 * kMiB;
  quotas.host = 800 * kMiB;
  EXPECT_THAT(use({{1, 400}, {1, 300}}).lines(),
              ElementsAre("team 't' may be promised 600MiB of HBM; its jobs have been promised "
                          "400MiB",
                          "team 't' may have 800MiB of host memory and the node's 3.91GiB of disk "
                          "for all that it is promised; its jobs have been promised 700MiB"));
}

TEST(QuotaChanges, ChangesLieOverTheSettingsFileUntilTheyAreTakenBack) {
  QuotaChanges changes;
  const Quotas of_file{100, 200, std::nullopt};
  changes.set("t", Tier::kHbm, std::nullopt);
  changes.set("t", Tier::kDisk, 7);
  changes.set(std::nullopt, Tier::kHost, 1);
  const Quotas over = changes.over("t", of_file);
  EXPECT_EQ(over.hbm, std::nullopt);
  EXPECT_EQ(over.host, 200u);
  EXPECT_EQ(over.disk, 7u);
  EXPECT_EQ(changes.over("other", of_file).hbm, 100u);
  EXPECT_EQ(changes.over(std::nullopt, of_file).host, 1u);
  changes.take_back("t", Tier::kHbm);
  EXPECT_EQ(changes.over("t", of_file).hbm, 100u);
}

}  // namespace
}  // namespace plexrl::nodemgr
