#include "nodemgr/accounts.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

namespace plexrl::nodemgr {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kNow = std::int64_t{3600} * 500'000 + 100;

class AccountsTest : public ::testing::Test {
 protected:
  AccountsTest() {
    std::string pattern = ::testing::TempDir() + "/accountsXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~AccountsTest() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/state/accounts.sqlite"; }
  std::unique_ptr<Accounts> open(std::int64_t now = kNow) {
    auto accounts = Accounts::open(path(), now);
    EXPECT_TRUE(accounts.ok()) << accounts.status();
    return accounts.ok() ? *std::move(accounts) : nullptr;
  }
  static Usage::Totals totals(double held, double needed, std::chrono::nanoseconds alone = 0s) {
    return {held, needed, alone, alone / 4, alone / 8};
  }
  static std::vector<Accounts::Row> sums(Accounts& accounts, Accounts::By by,
                                         std::int64_t since = 0) {
    auto rows = accounts.sums(since, by);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() ? *rows : std::vector<Accounts::Row>{};
  }

  const Accounts::Owner ann_ppo_{"a1", "ppo", "ann", "blue"};
  const Accounts::Owner ann_eval_{"a2", "eval", "ann", "red"};
  const Accounts::Owner bob_ppo_{"b1", "ppo", "bob", "blue"};
  std::string folder_;
};

TEST_F(AccountsTest, WhatCameSinceTheLastTimeIsBookedOnce) {
  auto accounts = open();
  accounts->book(ann_ppo_, totals(10, 40, 80s), kNow);
  accounts->book(ann_ppo_, totals(25, 60, 120s), kNow + 1);
  ASSERT_TRUE(accounts->write().ok());
  accounts->book(ann_ppo_, totals(30, 60, 120s), kNow + 2);
  ASSERT_TRUE(accounts->write().ok());
  const auto rows = sums(*accounts, Accounts::By::kJob);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].owner.job, "a1");
  EXPECT_EQ(rows[0].owner.team, "blue");
  EXPECT_EQ(rows[0].totals.held_gpu_ns, 30);
  EXPECT_EQ(rows[0].totals.needed_gpu_ns, 60);
  EXPECT_EQ(rows[0].totals.alone, 120s);
  EXPECT_EQ(rows[0].totals.lost, 30s);
  EXPECT_EQ(rows[0].totals.waited, 15s);
  EXPECT_EQ(rows[0].totals.slowdown_ratio(), 1.25);
}

TEST_F(AccountsTest, ALaterManagerAddsToWhatIsThere) {
  for (int manager = 0; manager < 2; ++manager) {
    auto accounts = open();
    accounts->book(ann_ppo_, totals(10, 20), kNow);
    ASSERT_TRUE(accounts->write().ok());
  }
  EXPECT_EQ(sums(*open(), Accounts::By::kJob)[0].totals.held_gpu_ns, 20);
}

TEST_F(AccountsTest, SumsAreByTeamUserOrJobThoseWhoHeldMostFirst) {
  auto accounts = open();
  accounts->book(ann_ppo_, totals(10, 20), kNow);
  accounts->book(ann_eval_, totals(40, 50), kNow);
  accounts->book(bob_ppo_, totals(100, 300), kNow);
  ASSERT_TRUE(accounts->write().ok());
  const auto teams = sums(*accounts, Accounts::By::kTeam);
  ASSERT_EQ(teams.size(), 2u);
  EXPECT_EQ(teams[0].owner.team, "blue");
  EXPECT_EQ(teams[0].jobs, 2);
  EXPECT_EQ(teams[0].totals.held_gpu_ns, 110);
  EXPECT_EQ(teams[1].totals.needed_gpu_ns, 50);
  const auto users = sums(*accounts, Accounts::By::kUser);
  ASSERT_EQ(users.size(), 2u);
  EXPECT_EQ(users[0].owner.user, "bob");
  EXPECT_EQ(users[1].jobs, 2);
  EXPECT_EQ(users[1].totals.held_gpu_ns, 50);
  EXPECT_EQ(sums(*accounts, Accounts::By::kJob).size(), 3u);
}

TEST_F(AccountsTest, HoursBeforeTheOneAskedForAreLeftOut) {
  auto accounts = open();
  accounts->book(ann_ppo_, totals(1, 1), kNow - 3600);
  accounts->book(ann_ppo_, totals(11, 11), kNow);
  ASSERT_TRUE(accounts->write().ok());
  EXPECT_EQ(sums(*accounts, Accounts::By::kJob, kNow)[0].totals.held_gpu_ns, 10);
  EXPECT_EQ(sums(*accounts, Accounts::By::kJob, kNow - 3600)[0].totals.held_gpu_ns, 11);
  EXPECT_TRUE(sums(*accounts, Accounts::By::kJob, kNow + 3600).empty());
}

TEST_F(AccountsTest, WhatIsTooOldGoesWhenAManagerBegins) {
  {
    auto accounts = open();
    accounts->book(ann_ppo_, totals(1, 1), kNow);
    ASSERT_TRUE(accounts->write().ok());
  }
  EXPECT_EQ(sums(*open(kNow + Accounts::kKept - 3600), Accounts::By::kJob).size(), 1u);
  EXPECT_TRUE(sums(*open(kNow + Accounts::kKept + 3600), Accounts::By::kJob).empty());
}

TEST_F(AccountsTest, WhatCantBeWrittenStaysBooked) {
  auto accounts = open();
  accounts->book(ann_ppo_, totals(10, 20), kNow);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit none = before;
  none.rlim_cur = 1;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  EXPECT_FALSE(accounts->write().ok());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  accounts->book(ann_ppo_, totals(15, 30), kNow);
  EXPECT_TRUE(accounts->write().ok());
  EXPECT_EQ(sums(*accounts, Accounts::By::kJob)[0].totals.held_gpu_ns, 15);
}

TEST_F(AccountsTest, ADamagedFileIsNamedAndLeftAlone) {
  std::filesystem::create_directories(folder_ + "/state");
  const std::string noise(8192, 'x');
  std::ofstream(path()) << noise;
  const auto accounts = Accounts::open(path(), kNow);
  ASSERT_FALSE(accounts.ok());
  EXPECT_NE(accounts.status().message().find("move it away"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(path()), noise.size());
}

TEST_F(AccountsTest, AFolderThatCantBeHadIsAnError) {
  std::ofstream(folder_ + "/state") << "a file";
  const auto accounts = Accounts::open(path(), kNow);
  ASSERT_FALSE(accounts.ok());
  EXPECT_NE(accounts.status().message().find(path()), std::string::npos);
}

}  // namespace
}  // namespace plexrl::nodemgr
