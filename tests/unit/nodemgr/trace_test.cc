#include "nodemgr/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "nodemgr/log.h"
#include "nodemgr/trace_segments.h"
#include "tests/unit/nodemgr/read_trace.h"

namespace plexrl::nodemgr {
namespace {

namespace fs = std::filesystem;

class TraceTest : public ::testing::Test {
 protected:
  TraceTest() {
    set_log_level("error");
    std::string pattern = ::testing::TempDir() + "/traceXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~TraceTest() override { fs::remove_all(folder_); }
  TraceOptions options(std::uint64_t max_bytes = 1 << 30) {
    TraceOptions options;
    options.folder = folder_;
    options.node = "n1";
    options.max_bytes = max_bytes;
    return options;
  }
  std::string folder_;
};

TEST_F(TraceTest, RecordsComeBackWithTheirFiguresBehindAClockAnchor) {
  std::string first;
  {
    TraceWriter writer(options());
    TraceDecision decision;
    decision.kind = "withdraw";
    decision.job_id = "j";
    decision.gang = 7;
    decision.figures = {{"switch_cost_ns", 12.5}};
    writer.add(decision);
    TraceSwitch change;
    change.gpu = 3;
    change.out_bytes = 100;
    change.load_blocked_ns = 9;
    writer.add(change);
    first = writer.run_folder() + "/000000.plxt";
  }
  const auto [records, problem] = test::read_trace(test::bytes_of(first));
  EXPECT_EQ(problem, "");
  ASSERT_EQ(records.size(), 3u);
  EXPECT_GT(records[0].clock().realtime_ns(), 0);
  EXPECT_EQ(records[1].decision().figures(0).name(), "switch_cost_ns");
  EXPECT_EQ(records[1].decision().figures(0).value(), 12.5);
  EXPECT_GT(records[1].at_ns(), 0u);
  EXPECT_EQ(records[2].switch_().gpu_index(), 3u);
  EXPECT_EQ(records[2].switch_().load_blocked_ns(), 9u);
}

TEST_F(TraceTest, ATraceCutAnywhereIsReadAsFarAsItGoes) {
  std::string path;
  {
    TraceWriter writer(options());
    for (int i = 0; i < 3; ++i) {
      writer.add(TraceError{"j", 0, "what", "text"});
      writer.flush();
    }
    path = writer.run_folder() + "/000000.plxt";
  }
  const std::string whole = test::bytes_of(path);
  const std::size_t all = test::read_trace(whole).records.size();
  EXPECT_EQ(all, 4u);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    std::size_t read = test::read_trace(whole.substr(0, size)).records.size();
    EXPECT_LT(read, all);
  }
}

TEST_F(TraceTest, TheOldestSegmentsGoWhenThereAreTooManyBytes) {
  constexpr std::uint64_t kMaxBytes = 2 << 20;
  std::mt19937_64 rng(3);
  TraceWriter writer(options(kMaxBytes));
  for (int i = 0; i < 80; ++i) {
    std::string noise(100'000, '\0');
    for (char& c : noise) c = static_cast<char>('!' + rng() % 90);
    writer.add(TraceError{"j", 0, "what", noise});
    writer.flush();
  }
  std::uint64_t total = 0;
  for (const auto& file : fs::directory_iterator(writer.run_folder())) total += file.file_size();
  // What is being written comes on top, at most one segment.
  EXPECT_LE(total, kMaxBytes + (1 << 20) + 200'000);
  EXPECT_FALSE(fs::exists(writer.run_folder() + "/000000.plxt"));
}

TEST_F(TraceTest, SegmentsBeyondTheirAgeGo) {
  fs::create_directories(folder_ + "/old-run");
  std::ofstream(folder_ + "/old-run/000000.plxt") << "x";
  fs::last_write_time(folder_ + "/old-run/000000.plxt",
                      fs::file_time_type::clock::now() - std::chrono::hours(48));
  prune_segments(folder_, 1 << 30, std::chrono::hours(72), "");
  EXPECT_TRUE(fs::exists(folder_ + "/old-run/000000.plxt"));
  prune_segments(folder_, 1 << 30, std::chrono::hours(24), "");
  EXPECT_FALSE(fs::exists(folder_ + "/old-run"));
}

TEST_F(TraceTest, ADiskThatTakesNothingLosesRecordsAndHindersNothing) {
  std::ofstream(folder_ + "/file") << "x";
  TraceOptions bad = options();
  bad.folder = folder_ + "/file";
  TraceWriter writer(bad);
  writer.add(TraceError{"j", 0, "what", "text"});
  writer.flush();
  EXPECT_EQ(writer.lost_records(), 1u);
  EXPECT_FALSE(writer.is_dirty());
}

}  // namespace
}  // namespace plexrl::nodemgr
