#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tools/fake_trace.h"
#include "tools/trace/html_report.h"

namespace plexrl::trace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Runs for 100 ms with a gap from 40 to 60 ms.
FakeTrace one_job() {
  FakeTrace trace;
  trace.gpu(0).job("a", 0).lease("a", 1, "running", 0, 1, 1).gap("a", 1, 40, 60, "sleep");
  trace.lease("a", 1, "gone", 100).job_end("a", 100);
  return trace;
}

Json data_in(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const auto from = page.find(begin) + begin.size();
  return Json::parse(page.substr(from, page.find("</script>", from) - from));
}

TEST(HtmlReport, HoldsWhatTheSummaryAndTheTimelineSay) {
  const Json data = data_in(html_report(one_job().model()));
  EXPECT_TRUE(data["simulated"]);
  EXPECT_EQ(data["jobs"][0]["name"], "job-a");
  EXPECT_EQ(data["jobs"][0]["busy_s"], 0.08);
  ASSERT_EQ(data["rows"].size(), 2u);  // the GPU and the gang
  EXPECT_TRUE(data["rows"][0]["is_gpu"]);
  for (const Json& row : data["rows"]) {
    ASSERT_EQ(row["slices"].size(), 3u);
    EXPECT_EQ(row["slices"][1][0], FakeTrace::ms(40) - FakeTrace::kStart);
    EXPECT_EQ(row["slices"][1][1], FakeTrace::ms(20) - FakeTrace::ms(0));
    EXPECT_EQ(data["texts"][row["slices"][1][2].get<std::size_t>()], kHeldIdle);
    EXPECT_EQ(data["texts"][row["slices"][1][3].get<std::size_t>()], "job-a");
  }
}

TEST(HtmlReport, DutyOfEachPieceOfTime) {
  const Json data = report_data(one_job().model(), {.duty_bins = 5});
  EXPECT_EQ(data["duty"][0]["bins"], Json({1.0, 1.0, 0.0, 1.0, 1.0}));
}

TEST(HtmlReport, LoadsNothing) {
  const std::string page = html_report(one_job().model());
  for (const char* word : {"http:", "https:", " src=", "@import", "url(", "fetch(", "<link"}) {
    EXPECT_THAT(page, Not(HasSubstr(word)));
  }
}

TEST(HtmlReport, ANameFromAJobStaysText) {
  FakeTrace trace = one_job();
  SessionRecord* session = trace.add(100)->mutable_session();
  session->set_event(SessionRecord::JOB_ADMITTED);
  session->set_job_id("b");
  session->set_job_name("</script><script>alert(1)</script><!--");
  const std::string page = html_report(trace.model());
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_EQ(data_in(page)["jobs"][1]["name"], "</script><script>alert(1)</script><!--");
}

TEST(HtmlReport, ATraceWithoutAnythingHasAPageToo) {
  EXPECT_EQ(data_in(html_report(Model{}))["jobs"], Json::array());
}

TEST(ThinRows, KeepTheLongestAndJoinOthersToWhatIsBeforeThem) {
  Model model;
  std::vector<TimelineRow> rows = {{"r", false, {}}};
  const auto add = [&](std::int64_t start, std::int64_t end) {
    rows[0].slices.push_back({{start, end, "running", 1, 0, 0, ""}, nullptr});
  };
  add(0, 100), add(100, 101), add(101, 102), add(500, 501), add(600, 700);
  EXPECT_EQ(thin_rows(rows, 5), 0);
  EXPECT_EQ(rows[0].slices.size(), 5u);
  EXPECT_EQ(thin_rows(rows, 2), 2);
  ASSERT_EQ(rows[0].slices.size(), 2u);
  EXPECT_EQ(rows[0].slices[0].end_ns, 102);
  EXPECT_EQ(rows[0].slices[1].start_ns, 600);
}

TEST(HtmlReport, ALongTraceFitsAPage) {
  FakeTrace trace;
  trace.gpu(0).job("a", 0);
  for (std::int64_t i = 0; i < 2000; ++i) {
    trace.lease("a", 1, "running", 2 * i, 1, 1).lease("a", 1, "idle", 2 * i + 1, 1);
  }
  trace.lease("a", 1, "running", 5000, 1, 1).lease("a", 1, "gone", 9000).job_end("a", 9000);
  const Json data = report_data(trace.model(), {.slices = 100});
  std::size_t slices = 0;
  for (const Json& row : data["rows"]) slices += row["slices"].size();
  EXPECT_LE(slices, 100u);
  EXPECT_GT(data["shortest_ns"], 1'000'000);
}

}  // namespace
}  // namespace plexrl::trace
