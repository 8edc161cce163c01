#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "tests/unit/tools/fake_trace.h"
#include "tools/cli/table.h"
#include "tools/trace/export_csv.h"
#include "tools/trace/export_perfetto.h"
#include "tools/trace/perfetto.pb.h"
#include "tools/trace/summary.h"
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
  EXPECT_THAT(draw_timeline(Model{}, {.from_ns = 0, .to_ns = 1}), HasSubstr("running"));
}

perfetto::Trace perfetto_of(const Model& model) {
  perfetto::Trace trace;
  EXPECT_TRUE(trace.ParseFromString(export_perfetto(model)));
  return trace;
}

TEST(PerfettoExport, SlicesOfTheGangsAddUpToTheSummary) {
  FakeTrace fake = one_job();
  fake.lease("b", 2, "loading", 100, 1, 2).lease("b", 2, "running", 110, 1, 2);
  fake.lease("b", 2, "draining", 130, 1, 2).lease("b", 2, "gone", 135);
  const Model model = fake.model();
  const auto trace = perfetto_of(model);
  std::map<std::uint64_t, std::string> track_names;
  std::map<std::string, std::int64_t> total;  // by track and slice name
  std::map<std::uint64_t, std::pair<std::string, std::int64_t>> open;
  for (const auto& packet : trace.packet()) {
    if (packet.has_track_descriptor()) {
      track_names[packet.track_descriptor().uuid()] = packet.track_descriptor().name();
    }
    const auto& event = packet.track_event();
    const auto at = static_cast<std::int64_t>(packet.timestamp());
    if (event.type() == perfetto::TrackEvent::TYPE_SLICE_BEGIN) {
      EXPECT_EQ(open.count(event.track_uuid()), 0u);  // states never nest
      open[event.track_uuid()] = {event.name(), at};
    } else if (event.type() == perfetto::TrackEvent::TYPE_SLICE_END) {
      const auto [name, start] = open.at(event.track_uuid());
      total[track_names[event.track_uuid()] + "/" + name] += at - start;
      open.erase(event.track_uuid());
    }
  }
  EXPECT_TRUE(open.empty());
  const Summary summary = summarize(model);
  EXPECT_EQ(total["job-a gang 1/running"], summary.jobs[0].running_ns);
  EXPECT_EQ(total["job-a gang 1/waiting"], summary.jobs[0].waiting_ns);
  EXPECT_EQ(total["b gang 2/paging"], summary.jobs[1].paging_ns);
  EXPECT_EQ(total["b gang 2/draining"], summary.jobs[1].draining_ns);
  EXPECT_EQ(total["GPU 0 Model/job-a"], 50'000'000);
  EXPECT_EQ(total["GPU 0 Model/b (paging)"], 10'000'000);
}

TEST(PerfettoExport, ResidentBytesAreACounterOfAllProcesses) {
  FakeTrace fake = one_job();
  fake.memory("a", 7, 10, 100).memory("a", 8, 20, 30).memory("a", 7, 30, 0);
  std::vector<std::int64_t> values;
  const auto trace = perfetto_of(fake.model());
  for (const auto& packet : trace.packet()) {
    if (packet.track_event().type() == perfetto::TrackEvent::TYPE_COUNTER) {
      values.push_back(packet.track_event().counter_value());
    }
  }
  EXPECT_THAT(values, ::testing::ElementsAre(100, 130, 30));
}

TEST(PerfettoExport, SaysThatTheGpuIsSimulated) {
  EXPECT_THAT(export_perfetto(one_job().model()), HasSubstr("(simulated)"));
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
