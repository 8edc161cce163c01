#include "nodemgr/slabs.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <map>
#include <utility>

namespace plexrl::nodemgr {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// What `count` questions are answered with, by request.
std::map<std::uint64_t, Slabs::Ready> answers(Slabs& slabs, std::size_t count) {
  std::map<std::uint64_t, Slabs::Ready> by_request;
  while (by_request.size() < count) {
    pollfd wait{slabs.event_fd(), POLLIN, 0};
    ::poll(&wait, 1, -1);
    for (const Slabs::Ready& ready : slabs.finished()) by_request[ready.request] = ready;
  }
  return by_request;
}

std::uint64_t pages_of(int fd) {
  struct stat status {};
  EXPECT_EQ(::fstat(fd, &status), 0);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

TEST(Slabs, AreAllThereWhenTheyAreHandedOut) {
  Slabs slabs(256 * kMiB, 1);
  for (std::uint64_t request = 1; request <= 8; ++request) {
    ASSERT_TRUE(slabs.ask(7, 1, 4 * kMiB, request));
  }
  std::map<std::uint64_t, bool> seen;
  for (const auto& [request, ready] : answers(slabs, 8)) {
    EXPECT_NE(ready.id, 0u);
    EXPECT_FALSE(std::exchange(seen[ready.id], true));
    EXPECT_EQ(ready.session, 7u);
    EXPECT_GE(pages_of(ready.fd), 4 * kMiB);
  }
  EXPECT_EQ(slabs.bytes_in_use(), 32 * kMiB);
}

TEST(Slabs, WhatWasMadeAheadIsHandedOutFirst) {
  Slabs slabs(256 * kMiB, 1);
  slabs.reserve(1, 4 * kMiB, 3);
  EXPECT_EQ(slabs.bytes_in_use(), 12 * kMiB);
  for (std::uint64_t request = 1; request <= 3; ++request) {
    ASSERT_TRUE(slabs.ask(7, 1, 4 * kMiB, request));
  }
  answers(slabs, 3);
  EXPECT_EQ(slabs.bytes_in_use(), 12 * kMiB);
}

TEST(Slabs, NoMoreAreMadeThanTheHostHasMemoryFor) {
  std::uint64_t left = 10 * kMiB;
  Slabs slabs(1024 * kMiB, 1, [&] { return left; });
  slabs.reserve(1, 4 * kMiB, 5);
  EXPECT_EQ(slabs.bytes_in_use(), 8 * kMiB) << "those in the making count";
  for (std::uint64_t request = 1; request <= 2; ++request) {
    ASSERT_TRUE(slabs.ask(7, 1, 4 * kMiB, request));
  }
  answers(slabs, 2);
  left = 3 * kMiB;
  EXPECT_FALSE(slabs.ask(7, 1, 4 * kMiB, 3));
  left = 4 * kMiB;
  EXPECT_TRUE(slabs.ask(7, 1, 4 * kMiB, 4));
  answers(slabs, 1);
}

TEST(Slabs, SomebodyWhoWaitsIsServedBeforeWhatIsMadeAhead) {
  Slabs slabs(1024 * kMiB, 1);
  slabs.reserve(1, 32 * kMiB, 16);
  ASSERT_TRUE(slabs.ask(7, 2, 4 * kMiB, 1));
  answers(slabs, 1);
  // The threads were busy with a few of those made ahead at most.
  slabs.drop_job(1);
  EXPECT_EQ(slabs.bytes_in_use(), 4 * kMiB);
}

TEST(Slabs, BeyondTheBudgetThereIsNoAnswerToWaitFor) {
  Slabs slabs(8 * kMiB, 1);
  ASSERT_TRUE(slabs.ask(7, 1, 4 * kMiB, 1));
  ASSERT_TRUE(slabs.ask(7, 1, 4 * kMiB, 2));
  EXPECT_FALSE(slabs.ask(7, 1, 4 * kMiB, 3));
  const auto made = answers(slabs, 2);
  ASSERT_TRUE(slabs.give_back(7, made.at(1).id, 0));
  EXPECT_TRUE(slabs.ask(8, 1, 4 * kMiB, 4));
}

TEST(Slabs, OfAnEarlierManagerAreCountedBesideItsOwnUntilTheProcessEnds) {
  Slabs slabs(64 * kMiB, 1);
  ASSERT_TRUE(slabs.ask(1, 1, 8 * kMiB, 10));
  answers(slabs, 1);
  slabs.count_held(1, 1, 32 * kMiB);
  EXPECT_EQ(slabs.bytes_in_use(), 32 * kMiB);
  EXPECT_EQ(slabs.bytes_of(1), 32 * kMiB);
  slabs.count_held(2, 2, 16 * kMiB);
  EXPECT_EQ(slabs.bytes_in_use(), 48 * kMiB);
  EXPECT_FALSE(slabs.ask(3, 3, 32 * kMiB, 11)) << "the host has no room";
  slabs.count_held(1, 1, 32 * kMiB);
  EXPECT_EQ(slabs.bytes_in_use(), 48 * kMiB) << "the connection alone was lost";
  slabs.count_held(1, 1, 4 * kMiB);
  EXPECT_EQ(slabs.bytes_in_use(), 24 * kMiB) << "its own slab is one of ours";
  slabs.drop_session(2);
  EXPECT_EQ(slabs.bytes_in_use(), 8 * kMiB);
  EXPECT_TRUE(slabs.ask(3, 3, 32 * kMiB, 12));
}

TEST(Slabs, StagingIsSetAsideAndGivenOverTheBudget) {
  Slabs slabs(16 * kMiB, 1);
  slabs.set_aside(4 * kMiB);
  ASSERT_TRUE(slabs.ask(7, 1, 12 * kMiB, 1));
  EXPECT_FALSE(slabs.ask(7, 1, 4 * kMiB, 2)) << "that is for staging";
  slabs.ask_staging(7, 1, 4 * kMiB, 3);
  answers(slabs, 2);
  EXPECT_EQ(slabs.bytes_in_use(), 16 * kMiB);
  EXPECT_EQ(slabs.bytes_with(7), 12 * kMiB);
  slabs.ask_staging(8, 1, 4 * kMiB, 4);
  EXPECT_NE(answers(slabs, 1).at(4).id, 0u);
  EXPECT_EQ(slabs.bytes_in_use(), 20 * kMiB);
}

TEST(Slabs, ANewStagingSlabTakesThePlaceOfTheOldOneAndGoesWithItsSession) {
  Slabs slabs(16 * kMiB, 1);
  slabs.ask_staging(7, 1, 4 * kMiB, 1);
  answers(slabs, 1);
  slabs.ask_staging(7, 1, 4 * kMiB, 2);
  answers(slabs, 1);
  EXPECT_EQ(slabs.bytes_in_use(), 4 * kMiB);
  slabs.drop_session(7);
  EXPECT_EQ(slabs.bytes_in_use(), 0u);
}

}  // namespace
}  // namespace plexrl::nodemgr
