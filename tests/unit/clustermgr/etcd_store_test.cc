#include "clustermgr/etcd/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/clustermgr/fake_etcd.h"

namespace plexrl::clustermgr::test {
namespace {

using ::testing::HasSubstr;
using Next = FakeEtcd::Next;

struct EtcdStoreTest : ::testing::Test {
  FakeEtcd etcd;
  std::chrono::milliseconds all_patience{0};  ///< each endpoint is asked once

  std::unique_ptr<EtcdStore> store(const std::string& name = "one") const {
    EtcdOptions options;
    options.endpoints.push_back({"127.0.0.1", etcd.port()});
    options.prefix = "p";
    options.name = name;
    options.lease = std::chrono::hours(1);
    options.patience = std::chrono::minutes(1);
    options.all_patience = all_patience;
    return std::make_unique<EtcdStore>(std::move(options));
  }
  std::unique_ptr<EtcdStore> leader() const {
    auto made = store();
    EXPECT_TRUE(made->try_to_lead().value());
    return made;
  }
  static absl::Status set(EtcdStore& store, const std::string& key,
                          std::optional<std::string> value) {
    const Change changes[] = {{key, std::move(value)}};
    return store.apply(changes);
  }
};

TEST_F(EtcdStoreTest, WhatWasAppliedIsThereForTheNextLeaderPageByPage) {
  constexpr int kEntries = 1100;
  {
    const auto one = leader();
    for (int i = 0; i < kEntries; i += 100) {
      std::vector<Change> changes;
      for (int k = i; k < i + 100; ++k) changes.push_back({"node/" + std::to_string(k), "old"});
      ASSERT_TRUE(one->apply(changes).ok());
    }
    // Of a key that is changed twice the last counts.
    const Change changes[] = {{"node/7", "x"}, {"node/7", "new"}, {"node/8", std::nullopt}};
    ASSERT_TRUE(one->apply(changes).ok());
  }
  const auto two = leader();
  EXPECT_EQ(two->list("node/").value().size(), static_cast<std::size_t>(kEntries - 1));
  EXPECT_EQ(two->list("node").value().size(), static_cast<std::size_t>(kEntries - 1));
  EXPECT_TRUE(two->list("nodes").value().empty());
  EXPECT_EQ(two->get("node/7").value(), "new");
  EXPECT_EQ(two->get("node/8").value(), std::nullopt);
}

TEST_F(EtcdStoreTest, OneLeadsUntilItGoes) {
  auto one = leader();
  const auto two = store("two");
  EXPECT_FALSE(two->try_to_lead().value());
  EXPECT_EQ(two->leader(), "one");
  one.reset();
  EXPECT_TRUE(two->try_to_lead().value());
  EXPECT_TRUE(two->leads());
}

TEST_F(EtcdStoreTest, AWriteThatFailedCountsForNobody) {
  const auto one = leader();
  ASSERT_TRUE(set(*one, "kept", "1").ok());
  for (const Next how : {Next::kIsDown, Next::kLosesAnswer}) {
    etcd.set_next(how);
    const absl::Status status = set(*one, "kept", "2");
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr("no endpoint answers"));
    EXPECT_FALSE(set(*one, "new", "2").ok());
    EXPECT_EQ(one->get("kept").value(), "1");
    EXPECT_EQ(one->get("new").value(), std::nullopt);
    etcd.set_next(Next::kAnswers);
    ASSERT_TRUE(set(*one, "other", "3").ok());
    EXPECT_EQ(etcd.value("p/entry/kept"), "1");
    EXPECT_EQ(etcd.value("p/entry/new"), std::nullopt);
  }
}

TEST_F(EtcdStoreTest, AWriteThatIsDoneLateOverwritesNothingNewer) {
  const auto one = leader();
  etcd.set_next(Next::kIsLate);
  EXPECT_FALSE(set(*one, "key", "old").ok());
  etcd.set_next(Next::kAnswers);
  ASSERT_TRUE(set(*one, "key", "new").ok());
  etcd.catch_up();
  EXPECT_EQ(etcd.value("p/entry/key"), "new");
  ASSERT_TRUE(set(*one, "key", std::nullopt).ok());
  EXPECT_EQ(etcd.value("p/entry/key"), std::nullopt);
}

TEST_F(EtcdStoreTest, AnAnswerThatIsLostOnTheWayIsAskedForAgain) {
  all_patience = std::chrono::hours(1);
  const auto one = leader();
  ASSERT_TRUE(set(*one, "key", "1").ok());
  etcd.set_next(Next::kLosesAnswer);
  std::thread again([&] {
    while (etcd.value("p/entry/key") != "2") std::this_thread::yield();
    etcd.set_next(Next::kAnswers);  // and finds it done
  });
  EXPECT_TRUE(set(*one, "key", "2").ok());
  again.join();
  EXPECT_EQ(one->get("key").value(), "2");
  EXPECT_EQ(etcd.value("p/entry/key"), "2");
  ASSERT_TRUE(set(*one, "key", "3").ok());
}

TEST_F(EtcdStoreTest, WhoLeadsNoMoreWritesNothing) {
  const auto one = leader();
  etcd.depose("p/leader");
  const absl::Status status = set(*one, "key", "1");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another cluster manager leads"));
  EXPECT_FALSE(one->leads());
  EXPECT_EQ(etcd.value("p/entry/key"), std::nullopt);
  EXPECT_FALSE(set(*one, "key", "1").ok());
}

TEST_F(EtcdStoreTest, EntriesOfANewerVersionAreLeftAlone) {
  etcd.put("p/version", "2");
  const auto one = store();
  const auto leads = one->try_to_lead();
  EXPECT_EQ(leads.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(etcd.value("p/leader"), std::nullopt) << "nobody else waits for it";
}

TEST_F(EtcdStoreTest, NobodyLeadsWithoutAnAnswer) {
  etcd.set_next(Next::kLosesAnswer);
  const auto one = store();
  EXPECT_EQ(one->try_to_lead().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(etcd.value("p/leader"), std::nullopt) << "the key went with the lease";
  etcd.set_next(Next::kAnswers);
  EXPECT_TRUE(one->try_to_lead().value());
}

TEST(EtcdUrl, IsReadOrRefusedInWords) {
  const auto good = parse_etcd_url("etcd://a:1,[::1]:2/x/y").value();
  EXPECT_EQ(good.endpoints.size(), 2u);
  EXPECT_EQ(good.endpoints[1].host, "::1");
  EXPECT_EQ(good.prefix, "x/y");
  EXPECT_EQ(parse_etcd_url("etcd://a:1").value().prefix, "plexrl");
  for (const char* bad : {"", "a:1", "http://a:1", "etcd://", "etcd://a", "etcd://a:1,",
                          "etcd://a:1/", "etcd://a:1/x/", "etcd://a:99999"}) {
    EXPECT_FALSE(parse_etcd_url(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace plexrl::clustermgr::test
