#include "tools/trace/follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tools/fake_trace.h"

namespace plexrl::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string frame(const std::string& job, std::int64_t at) {
  return encode_frame(FakeTrace().job(job, at).chunk());
}

/// What a follower gave out.
struct Followed {
  std::vector<std::string> jobs, warnings;
  Follower follower;

  explicit Followed(const std::string& folder)
      : follower(
            {folder},
            {.begin = [this] { jobs.clear(); },
             .take = [this](TraceRecord&& record) { jobs.push_back(record.session().job_id()); },
             .warn = [this](const std::string& text) { warnings.push_back(text); }}) {}
  Followed(const Followed&) = delete;
  Followed& operator=(const Followed&) = delete;

  absl::StatusOr<bool> look() { return follower.look(); }
};

TEST(Follower, ReadsWhatIsAddedAndNothingTwice) {
  ScratchFolder folder;
  Followed follower(folder.path());
  EXPECT_FALSE(follower.look().ok()) << "there is no run";
  folder.write("n1-1/000000.plxt", frame("a", 1));
  EXPECT_TRUE(*follower.look());
  EXPECT_FALSE(*follower.look());
  folder.write("n1-1/000000.plxt", frame("a", 1) + frame("b", 2));
  folder.write("n1-1/000001.plxt", frame("c", 3));
  EXPECT_TRUE(*follower.look());
  EXPECT_THAT(follower.jobs, ElementsAre("a", "b", "c"));
}

TEST(Follower, AFrameThatIsBeingWrittenIsReadWhenItIsWhole) {
  const std::string both = frame("a", 1) + frame("b", 2);
  for (std::size_t cut = frame("a", 1).size(); cut < both.size(); ++cut) {
    ScratchFolder folder;
    folder.write("000000.plxt", both.substr(0, cut));
    Followed follower(folder.path());
    EXPECT_TRUE(*follower.look());
    EXPECT_FALSE(*follower.look());
    folder.write("000000.plxt", both);
    EXPECT_TRUE(*follower.look()) << cut;
    EXPECT_THAT(follower.jobs, ElementsAre("a", "b"));
    EXPECT_TRUE(follower.warnings.empty());
  }
}

TEST(Follower, ALengthThatIsDamagedIsToldFromAFrameThatIsBeingWritten) {
  ScratchFolder folder;
  std::string longer = frame("a", 1);
  longer[6] = 1;  // 64 KiB more, which nobody is going to write
  folder.write("000000.plxt", longer);
  Followed follower(folder.path());
  EXPECT_FALSE(*follower.look());
  EXPECT_TRUE(follower.warnings.empty()) << "it may be one that is being written";
  folder.write("000000.plxt", longer + frame("b", 2).substr(0, 20));
  EXPECT_FALSE(*follower.look());
  EXPECT_TRUE(follower.warnings.empty()) << "so may this";
  folder.write("000000.plxt", longer + frame("b", 2));
  EXPECT_FALSE(*follower.look());
  EXPECT_THAT(follower.warnings, ElementsAre(HasSubstr("a frame is cut short at byte 0")));
  folder.write("000001.plxt", frame("c", 3));
  EXPECT_TRUE(*follower.look());
  EXPECT_THAT(follower.jobs, ElementsAre("c"));
  EXPECT_EQ(follower.warnings.size(), 1u);
}

TEST(Follower, AFrameThatIsCutShortIsDamagedWhenANewerSegmentHasBegun) {
  ScratchFolder folder;
  const std::string both = frame("a", 1) + frame("b", 2);
  folder.write("000000.plxt", both.substr(0, both.size() - 1));
  Followed follower(folder.path());
  EXPECT_TRUE(*follower.look());
  EXPECT_TRUE(follower.warnings.empty());
  folder.write("000001.plxt", frame("c", 3));
  EXPECT_TRUE(*follower.look());
  EXPECT_FALSE(*follower.look());
  EXPECT_THAT(follower.warnings, ElementsAre(HasSubstr("000000.plxt: a frame is cut short")));
  EXPECT_THAT(follower.jobs, ElementsAre("a", "c"));
}

TEST(Follower, GoesOnWithTheNextManagersRun) {
  ScratchFolder folder;
  folder.write("n1-1/000000.plxt", frame("a", 1));
  Followed follower(folder.path());
  EXPECT_TRUE(*follower.look());
  folder.write("n1-2/000000.plxt", frame("b", 2));
  std::filesystem::last_write_time(
      folder.path("n1-1/000000.plxt"),
      std::filesystem::last_write_time(folder.path("n1-2/000000.plxt")) - std::chrono::hours(1));
  EXPECT_TRUE(*follower.look());
  EXPECT_THAT(follower.jobs, ElementsAre("b"));
  EXPECT_THAT(follower.follower.run(), HasSubstr("n1-2"));
}

TEST(Follower, DamageIsSaidOnce) {
  ScratchFolder folder;
  folder.write("000000.plxt", frame("a", 1));
  Followed follower(folder.path());
  EXPECT_TRUE(*follower.look());
  folder.write("000000.plxt", frame("a", 1) + "no frame at all, but long enough");
  EXPECT_FALSE(*follower.look());
  EXPECT_FALSE(*follower.look());
  EXPECT_THAT(follower.warnings, ElementsAre(HasSubstr("no frame begins")));
}

}  // namespace
}  // namespace plexrl::trace
