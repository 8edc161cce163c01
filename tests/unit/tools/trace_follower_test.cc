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

std::vector<std::string> jobs_of(const Follower& follower) {
  std::vector<std::string> ids;
  for (const TraceRecord& record : follower.trace().records) {
    ids.push_back(record.session().job_id());
  }
  return ids;
}

TEST(Follower, ReadsWhatIsAddedAndNothingTwice) {
  ScratchFolder folder;
  Follower follower({folder.path()});
  EXPECT_FALSE(follower.look().ok()) << "there is no run";
  folder.write("n1-1/000000.plxt", frame("a", 1));
  EXPECT_TRUE(*follower.look());
  EXPECT_FALSE(*follower.look());
  folder.write("n1-1/000000.plxt", frame("a", 1) + frame("b", 2));
  folder.write("n1-1/000001.plxt", frame("c", 3));
  EXPECT_TRUE(*follower.look());
  EXPECT_THAT(jobs_of(follower), ElementsAre("a", "b", "c"));
}

TEST(Follower, AFrameThatIsBeingWrittenIsReadWhenItIsWhole) {
  const std::string both = frame("a", 1) + frame("b", 2);
  for (std::size_t cut = frame("a", 1).size(); cut < both.size(); ++cut) {
    ScratchFolder folder;
    folder.write("000000.plxt", both.substr(0, cut));
    Follower follower({folder.path()});
    EXPECT_TRUE(*follower.look());
    EXPECT_FALSE(*follower.look());
    folder.write("000000.plxt", both);
    EXPECT_TRUE(*follower.look()) << cut;
    EXPECT_THAT(jobs_of(follower), ElementsAre("a", "b"));
    EXPECT_TRUE(follower.trace().warnings.empty());
  }
}

TEST(Follower, RecordsAreInOrderOfTimeAndOutliveTheirSegment) {
  ScratchFolder folder;
  folder.write("000000.plxt", frame("b", 2));
  Follower follower({folder.path()});
  EXPECT_TRUE(*follower.look());
  folder.write("000001.plxt", frame("a", 1));
  std::filesystem::remove(folder.path("000000.plxt"));
  EXPECT_TRUE(*follower.look());
  EXPECT_THAT(jobs_of(follower), ElementsAre("a", "b"));
}

TEST(Follower, GoesOnWithTheNextManagersRun) {
  ScratchFolder folder;
  folder.write("n1-1/000000.plxt", frame("a", 1));
  Follower follower({folder.path()});
  EXPECT_TRUE(*follower.look());
  folder.write("n1-2/000000.plxt", frame("b", 2));
  std::filesystem::last_write_time(
      folder.path("n1-1/000000.plxt"),
      std::filesystem::last_write_time(folder.path("n1-2/000000.plxt")) - std::chrono::hours(1));
  EXPECT_TRUE(*follower.look());
  EXPECT_THAT(jobs_of(follower), ElementsAre("b"));
  EXPECT_THAT(follower.run(), HasSubstr("n1-2"));
}

TEST(Follower, DamageIsSaidOnce) {
  ScratchFolder folder;
  folder.write("000000.plxt", frame("a", 1));
  Follower follower({folder.path()});
  EXPECT_TRUE(*follower.look());
  folder.write("000000.plxt", frame("a", 1) + "no frame at all, but long enough");
  EXPECT_FALSE(*follower.look());
  EXPECT_FALSE(*follower.look());
  EXPECT_THAT(follower.trace().warnings, ElementsAre(HasSubstr("no frame begins")));
}

}  // namespace
}  // namespace plexrl::trace
