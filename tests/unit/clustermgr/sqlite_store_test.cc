#include "clustermgr/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/unit/own_folder.h"

namespace plexrl::clustermgr {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

struct StoreTest : ::testing::Test {
  const OwnFolder own;
  const std::string folder = own.path();
  const std::string path = own.file("cluster.sqlite");
};

absl::Status set(Store& store, const std::string& key, const std::string& value) {
  const Change changes[] = {{key, value}};
  return store.apply(changes);
}

TEST_F(StoreTest, WhatWasAppliedIsThereInTheNextRun) {
  {
    const auto store = SqliteStore::open(path).value();
    const std::string binary("\0\xff", 2);
    const Change changes[] = {{"node/a", binary}, {"node/b", "2"}, {"job/a", ""}};
    ASSERT_TRUE(store->apply(changes).ok());
    const Change removed[] = {{"node/b", std::nullopt}};
    ASSERT_TRUE(store->apply(removed).ok());
  }
  const auto store = SqliteStore::open(path).value();
  EXPECT_THAT(store->list("node/").value(), ElementsAre(Pair("node/a", std::string("\0\xff", 2))));
  EXPECT_EQ(store->get("job/a").value(), "");
  EXPECT_EQ(store->get("node/b").value(), std::nullopt);
}

TEST_F(StoreTest, TwoManagersDoNotShareAFile) {
  const auto store = SqliteStore::open(path).value();
  const auto second = SqliteStore::open(path);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another cluster manager uses it"));
  EXPECT_TRUE(set(*store, "a", "1").ok());
}

TEST_F(StoreTest, ADamagedFileIsAnErrorAndLeftAsItIs) {
  {
    const auto store = SqliteStore::open(path).value();
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(set(*store, "key" + std::to_string(i), std::string(500, 'x')).ok());
    }
  }
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(3 * 4096, '\x5a');
  }
  const auto contents = [&] {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string before = contents();
  const auto opened = SqliteStore::open(path);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(opened.status().message()),
              AllOf(HasSubstr(path), HasSubstr("is damaged"), HasSubstr("backup")));
  EXPECT_EQ(contents(), before);
}

TEST_F(StoreTest, AFileOfSomethingElseIsNotTouched) {
  std::ofstream(path) << "these are somebody's notes, and long enough to be looked at closely";
  EXPECT_EQ(SqliteStore::open(path).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(std::filesystem::file_size(path), 67);
}

// What follows happens in a child, which is killed or has a disk of its own.
template <typename Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(StoreTest, WhatWasSaidToBeDoneSurvivesAKill) {
  int done[2];
  ASSERT_EQ(::pipe(done), 0);
  const pid_t writer = ::fork();
  if (writer == 0) {
    const auto store = SqliteStore::open(path);
    if (!store.ok()) ::_exit(1);
    for (int i = 1;; ++i) {
      const Change changes[] = {{"first", std::to_string(i)}, {"second", std::to_string(i)}};
      if (!(*store)->apply(changes).ok()) ::_exit(2);
      if (::write(done[1], &i, sizeof i) != sizeof i) ::_exit(3);
    }
  }
  ::close(done[1]);
  int last = 0;
  while (last < 50)
    ASSERT_EQ(::read(done[0], &last, sizeof last), static_cast<ssize_t>(sizeof last));
  ::kill(writer, SIGKILL);
  ::waitpid(writer, nullptr, 0);
  while (::read(done[0], &last, sizeof last) == static_cast<ssize_t>(sizeof last)) {
  }
  ::close(done[0]);
  const auto store = SqliteStore::open(path).value();
  const std::string first = store->get("first").value().value();
  EXPECT_GE(std::stoi(first), last);
  EXPECT_EQ(store->get("second").value().value(), first);  // all of a change or nothing
}

// Each number is what went wrong.
int fill_a_disk(const std::string& folder) {
  const auto store = SqliteStore::open(folder + "/cluster.sqlite");
  if (!store.ok() || !set(**store, "kept", "1").ok()) return 1;
  std::ofstream filler(folder + "/filler", std::ios::binary);
  while (filler << std::string(4096, 'f') << std::flush) {
  }
  absl::Status status = absl::OkStatus();
  int stored = 0;  // what room is left inside SQLite's own files
  for (; status.ok(); ++stored) {
    status = set(**store, "more" + std::to_string(stored), std::string(4096, 'm'));
  }
  if (status.code() != absl::StatusCode::kResourceExhausted) return 2;
  if (status.message().find("the disk is full") == absl::string_view::npos) return 3;
  if ((*store)->get("kept").value() != "1") return 4;
  if ((*store)->list("more")->size() != static_cast<std::size_t>(stored - 1)) return 5;
  std::filesystem::resize_file(folder + "/filler", 0);
  if (!set(**store, "after", "2").ok()) return 6;
  return (*store)->get("after").value() == "2" ? 0 : 7;
}

TEST_F(StoreTest, AFullDiskIsSaidAndNothingIsLost) {
  constexpr int kNoMount = 77;
  const int result = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return kNoMount;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=512k") != 0) {
      return kNoMount;
    }
    return fill_a_disk(folder);
  });
  if (result == kNoMount) GTEST_SKIP() << "this user may not mount a small disk";
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace plexrl::clustermgr
