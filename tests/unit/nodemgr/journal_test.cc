#include "nodemgr/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace plexrl::nodemgr {
namespace {

namespace fs = std::filesystem;

class JournalTest : public ::testing::Test {
 protected:
  JournalTest() {
    std::string pattern = ::testing::TempDir() + "/journalXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/j";
  }
  ~JournalTest() override { fs::remove_all(folder_); }

  static JournalRecord grant(int number) {
    return {"grant", {{"ctr", std::to_string(number)}, {"note", "a b%c=d\n\x7f"}}};
  }
  void write_five() {
    Journal journal(path_);
    ASSERT_TRUE(journal.rewrite({}).ok());
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(journal.append(grant(i)).ok());
  }
  Journal::Contents read() { return *Journal::read(path_); }

  std::string folder_;
  std::string path_;
};

TEST_F(JournalTest, WhatWasAppendedIsReadBackInOrder) {
  write_five();
  Journal::Contents contents = read();
  EXPECT_FALSE(contents.damaged);
  ASSERT_EQ(contents.records.size(), 5u);
  EXPECT_EQ(contents.records[3].kind, "grant");
  EXPECT_EQ(contents.records[3].number("ctr"), 3u);
  EXPECT_EQ(contents.records[3]["note"], "a b%c=d\n\x7f");
  EXPECT_EQ(contents.records[3]["absent"], "");
}

TEST_F(JournalTest, AMissingFileIsAnEmptyJournal) {
  Journal::Contents contents = read();
  EXPECT_TRUE(contents.records.empty());
  EXPECT_FALSE(contents.damaged);
}

TEST_F(JournalTest, CutAnywhereItKeepsTheWholeRecordsBefore) {
  write_five();
  auto whole = fs::file_size(path_);
  std::size_t last = 5;
  for (auto size = whole - 1;; --size) {
    fs::resize_file(path_, size);
    Journal::Contents contents = read();
    EXPECT_LE(contents.records.size(), last);
    EXPECT_EQ(contents.damaged, size != contents.records.size() * (whole / 5)) << size;
    last = contents.records.size();
    if (size == 0) break;
  }
  EXPECT_EQ(last, 0u);
}

TEST_F(JournalTest, AChangedByteEndsReadingBeforeItsRecord) {
  write_five();
  auto record_bytes = fs::file_size(path_) / 5;
  for (std::size_t at = 0; at < record_bytes; ++at) {
    write_five();
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<long>(2 * record_bytes + at));
    char byte = static_cast<char>(file.get());
    file.seekp(static_cast<long>(2 * record_bytes + at));
    file.put(static_cast<char>(byte ^ 0x40));
    file.close();
    Journal::Contents contents = read();
    EXPECT_EQ(contents.records.size(), 2u) << "byte " << at;
    EXPECT_TRUE(contents.damaged);
  }
}

TEST_F(JournalTest, RewritingKeepsOnlyTheGivenRecordsAndGoesOnBehindThem) {
  write_five();
  Journal journal(path_);
  ASSERT_TRUE(journal.rewrite({grant(8)}).ok());
  ASSERT_TRUE(journal.append(grant(9)).ok());
  Journal::Contents contents = read();
  ASSERT_EQ(contents.records.size(), 2u);
  EXPECT_EQ(contents.records[1].number("ctr"), 9u);
  EXPECT_EQ(fs::status(path_).permissions() & fs::perms::others_read, fs::perms::none);
}

TEST_F(JournalTest, AFolderThatIsNotThereIsAnError) {
  Journal journal(folder_ + "/none/j");
  EXPECT_FALSE(journal.rewrite({}).ok());
  EXPECT_FALSE(journal.append(grant(1)).ok());
}

}  // namespace
}  // namespace plexrl::nodemgr
