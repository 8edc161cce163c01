#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/unit/tools/fake_trace.h"
#include "tools/cli/table.h"
#include "tools/trace/export_csv.h"
#include "tools/trace/timeline.h"

namespace plexrl::trace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

FakeTrace one_job() {
  FakeTrace trace;
  trace.gpu(0).job("a", 0).lease("a", 1, "running", 0, 1, 1).lease("a", 1, "idle", 50, 1, 1);
  trace.lease("a", 1, "waiting", 75).lease("a", 1, "gone", 100).job_end("a", 100);
  return trace;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TimelineView view_of(std::int64_t from, std::int64_t to, int columns) {
  return {.from_ns = FakeTrace::ms(from), .to_ns = FakeTrace::ms(to), .columns = columns};
}

TEST(Timeline, EachCellShowsWhatTookMostOfItsTime) {
  const auto lines = lines_of(draw_timeline(one_job().model(), view_of(0, 100, 46)));
  ASSERT_EQ(lines.size(), 4u);  // scale, GPU, gang, legend
  EXPECT_EQ(lines[1], "GPU 0 " + std::string(20, '#') + std::string(20, ' '));
  EXPECT_EQ(lines[2],
            "job-a " + std::string(20, '#') + std::string(10, '_') + std::string(10, '.'));
  EXPECT_THAT(lines[0], HasSubstr("0 s"));
  EXPECT_THAT(lines[0], HasSubstr("100 ms"));
}

TEST(Timeline, ALeaseWithoutWorkIsNotDrawnAsBusy) {
  FakeTrace trace;
  trace.gpu(0).job("a", 0).lease("a", 1, "running", 0, 1, 1).gap("a", 1, 25, 75, "");
  trace.lease("a", 1, "gone", 100).job_end("a", 100);
  const auto lines = lines_of(draw_timeline(trace.model(), view_of(0, 100, 46)));
  const std::string drawn = std::string(10, '#') + std::string(20, '=') + std::string(10, '#');
  EXPECT_EQ(lines[1], "GPU 0 " + drawn);
  EXPECT_EQ(lines[2], "job-a " + drawn);
}

TEST(Timeline, AWindowShowsItsPartOnly) {
  const auto lines = lines_of(draw_timeline(one_job().model(), view_of(40, 60, 46)));
  EXPECT_EQ(lines[2], "job-a " + std::string(20, '#') + std::string(20, '_'));
}

TEST(Timeline, FitsTheWidthInEveryStyle) {
  for (const int columns : {40, 80, 133}) {
    for (const bool unicode : {false, true}) {
      TimelineView view = view_of(0, 100, columns);
      view.has_unicode = unicode;
      const auto lines = lines_of(draw_timeline(one_job().model(), view));
      for (size_t i = 0; i + 1 < lines.size(); ++i) {
        EXPECT_LE(cli::display_width(lines[i]), static_cast<size_t>(columns)) << lines[i];
      }
    }
  }
}

TEST(Timeline, HasNoEscapesUnlessColourIsAskedFor) {
  TimelineView view = view_of(0, 100, 60);
  EXPECT_THAT(draw_timeline(one_job().model(), view), Not(HasSubstr("\x1b")));
  view.has_colour = true;
  EXPECT_THAT(draw_timeline(one_job().model(), view), HasSubstr("\x1b[32m"));
}

TEST(Timeline, ATraceWithoutJobsIsDrawnToo) {
  EXPECT_THAT(draw_timeline(Model{}, {.from_ns = 0, .to_ns = 1}), HasSubstr("held, idle"));
}

TEST(CsvExport, HasALineForEachSliceAndQuotesNames) {
  FakeTrace fake = one_job();
  fake.add(100)->mutable_lease()->set_job_id("b");
  SessionRecord* session = fake.add(100)->mutable_session();
  session->set_event(SessionRecord::JOB_ADMITTED);
  session->set_job_id("b");
  session->set_job_name("my \"best\", job");
  fake.lease("b", 2, "running", 100).job_end("b", 150);
  const std::string csv = export_csv(fake.model());
  EXPECT_THAT(csv,
              HasSubstr("\r\na,job-a,1,0,running,1000000000,1050000000,50000000,1.1,,true\r\n"));
  EXPECT_THAT(csv, HasSubstr("\"my \"\"best\"\", job\""));
}

}  // namespace
}  // namespace plexrl::trace
