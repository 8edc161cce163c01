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

TEST(HtmlReport, AGpuThatTwoGangsTakeTurnsOnIsBusyAllTheTimeHoweverFewSlicesAreKept) {
  FakeTrace trace;
  trace.gpu(0).job("a", 0).job("b", 0);
  trace.lease("a", 1, "running", 0, 1, 1).lease("a", 1, "idle", 1000, 1);
  for (std::int64_t at = 1000; at < 2000; at += 10) {
    trace.lease("b", 2, "running", at, 1, 2).lease("b", 2, "idle", at + 9, 1);
  }
  trace.lease("a", 1, "running", 2000, 1, 3).lease("a", 1, "gone", 3000);
  trace.lease("b", 2, "gone", 3000).job_end("a", 3000).job_end("b", 3000);
  const Json data = report_data(trace.model(), {.slices = 10});
  std::int64_t busy = 0;
  for (const Json& slice : data["rows"][0]["slices"]) busy += slice[1].get<std::int64_t>();
  EXPECT_GE(busy, FakeTrace::ms(2990) - FakeTrace::ms(0));
}

TEST(HtmlReport, OfManyRowsTheGpusAndTheBusiestGangsStay) {
  FakeTrace trace;
  trace.gpu(0);
  for (const char* id : {"a", "b", "c"}) {
    trace.job(id, 0).lease(id, 1, "running", 0, 1, 1);
    trace.lease(id, 1, "gone", id[0] == 'b' ? 10 : 50).job_end(id, 60);
  }
  const Json data = report_data(trace.model(), {.rows = 3});
  ASSERT_EQ(data["rows"].size(), 3u);
  EXPECT_EQ(data["rows_in_all"], 4u);
  EXPECT_EQ(data["rows"][0]["label"], "GPU 0");
  EXPECT_EQ(data["rows"][1]["label"], "job-a");
  EXPECT_EQ(data["rows"][2]["label"], "job-c");
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
