#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/unit/tools/fake_trace.h"
#include "tools/trace/export_perfetto.h"
#include "tools/trace/perfetto.pb.h"
#include "tools/trace/summary.h"

namespace plexrl::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;

/// What a viewer makes of an export.
struct Loaded {
  struct Slice {
    std::string track, name;
    std::map<std::string, std::string> arguments;
    std::int64_t start_ns, end_ns;
  };
  std::vector<std::string> tracks;  // "parent/child"
  std::vector<Slice> slices;
  std::map<std::string, std::vector<std::int64_t>> values;  // of counters, by track
  std::vector<std::string> instants;

  explicit Loaded(const Model& model) {
    perfetto::Trace trace;
    EXPECT_TRUE(trace.ParseFromString(export_perfetto(model)));
    std::map<std::uint64_t, std::string> names;
    std::map<std::uint64_t, Slice> open;
    std::map<std::uint64_t, std::int64_t> last_end;
    for (const auto& packet : trace.packet()) {
      if (packet.has_track_descriptor()) {
        const auto& track = packet.track_descriptor();
        std::string& name = names[track.uuid()];
        if (track.has_parent_uuid()) name = names.at(track.parent_uuid()) + "/";
        tracks.push_back(name += track.name());
      }
      if (!packet.has_track_event()) continue;
      const auto& event = packet.track_event();
      const auto at = static_cast<std::int64_t>(packet.timestamp());
      const std::string& track = names.at(event.track_uuid());
      if (event.type() == perfetto::TrackEvent::TYPE_SLICE_BEGIN) {
        Slice slice{track, event.name(), {}, at, 0};
        for (const auto& argument : event.debug_annotations()) {
          slice.arguments[argument.name()] = argument.has_uint_value()
                                                 ? std::to_string(argument.uint_value())
                                                 : argument.string_value();
        }
        EXPECT_TRUE(open.emplace(event.track_uuid(), slice).second) << track << " nests";
        EXPECT_LE(last_end[event.track_uuid()], at) << track << " goes back";
      } else if (event.type() == perfetto::TrackEvent::TYPE_SLICE_END) {
        slices.push_back(open.at(event.track_uuid()));
        slices.back().end_ns = last_end[event.track_uuid()] = at;
        open.erase(event.track_uuid());
      } else if (event.type() == perfetto::TrackEvent::TYPE_COUNTER) {
        values[track].push_back(event.counter_value());
      } else {
        instants.push_back(event.name());
      }
    }
    EXPECT_TRUE(open.empty());
  }

  std::int64_t total_ns(const std::string& track, const std::string& state) const {
    std::int64_t total = 0;
    for (const Slice& slice : slices) {
      const auto found = slice.arguments.find("state");
      if (slice.track != track || found == slice.arguments.end()) continue;
      if (found->second == state) total += slice.end_ns - slice.start_ns;
    }
    return total;
  }
};

void add_switch(FakeTrace& trace, const std::string& out, const std::string& in,
                std::int64_t decided, std::int64_t at, std::uint64_t out_bytes,
                std::uint64_t in_bytes) {
  SwitchRecord* record = trace.add(at)->mutable_switch_();
  record->set_out_job_id(out);
  record->set_out_gang(out == "a" ? 1 : 2);
  record->set_in_job_id(in);
  record->set_in_gang(in == "a" ? 1 : 2);
  record->set_reason("holder idle");
  record->set_decided_at_ns(static_cast<std::uint64_t>(FakeTrace::ms(decided)));
  record->set_out_bytes(out_bytes);
  record->set_in_bytes(in_bytes);
}

// a runs, goes idle, and still drains while b's bytes come in.
FakeTrace two_jobs() {
  FakeTrace trace;
  trace.gpu(0).job("a", 0).job("b", 0).lease("a", 1, "running", 0, 1, 1);
  trace.lease("b", 2, "waiting", 30).lease("a", 1, "draining", 50, 1, 1);
  trace.lease("b", 2, "loading", 60, 1, 2).lease("a", 1, "idle", 64, 1, 1);
  trace.lease("b", 2, "running", 70, 1, 2);
  add_switch(trace, "a", "b", 50, 70, 300, 200);
  trace.gap("a", 1, 40, 80, "tool call").lease("a", 1, "waiting", 80);
  trace.lease("b", 2, "gone", 90).job_end("b", 90);
  add_switch(trace, "b", "a", 90, 95, 0, 300);
  trace.lease("a", 1, "running", 95, 1, 3).lease("a", 1, "gone", 100).job_end("a", 100);
  return trace;
}

TEST(PerfettoExport, HasTracksForGpusAndGangs) {
  EXPECT_THAT(
      Loaded(two_jobs().model()).tracks,
      ElementsAre("GPU 0 of n1: Model (simulated)", "GPU 0 of n1: Model (simulated)/Switches",
                  "job-a gang 1 (simulated)", "job-a gang 1 (simulated)/Gaps",
                  "job-a gang 1 (simulated)/Bytes copied out",
                  "job-a gang 1 (simulated)/Bytes copied in", "job-b gang 2 (simulated)",
                  "job-b gang 2 (simulated)/Bytes copied in"));
}

TEST(PerfettoExport, JobsOfOneNameAreToldApart) {
  FakeTrace fake;
  fake.gpu(0);
  for (const char* id : {"0123456789", "abcdef0123"}) {
    SessionRecord* session = fake.add(0)->mutable_session();
    session->set_event(SessionRecord::JOB_ADMITTED);
    session->set_job_id(id);
    session->set_job_name("train");
    fake.memory(id, 1, 1, 5);
  }
  EXPECT_THAT(Loaded(fake.model()).tracks,
              IsSupersetOf({"GPU 0 of n1: Model (simulated)/Resident bytes of train (01234567)",
                            "GPU 0 of n1: Model (simulated)/Resident bytes of train (abcdef01)"}));
}

TEST(PerfettoExport, SlicesOfTheGangsAddUpToTheSummary) {
  const Model model = two_jobs().model();
  const Loaded loaded(model);
  const Summary summary = summarize(model);
  ASSERT_EQ(summary.jobs.size(), 2u);
  for (const JobSummary& job : summary.jobs) {
    const std::string track = job.name + " gang " + (job.id == "a" ? "1" : "2") + " (simulated)";
    EXPECT_EQ(loaded.total_ns(track, "running"), job.running_ns);
    EXPECT_EQ(loaded.total_ns(track, "waiting"), job.waiting_ns);
    EXPECT_EQ(loaded.total_ns(track, "loading"), job.paging_ns);
    EXPECT_EQ(loaded.total_ns(track, "draining"), job.draining_ns);
    EXPECT_GT(job.running_ns, 0);
  }
}

TEST(PerfettoExport, SlicesOfAGpuAreNamedAfterItsHolder) {
  std::vector<std::pair<std::string, std::int64_t>> seen;  // name, length in ms
  for (const auto& slice : Loaded(two_jobs().model()).slices) {
    if (slice.track != "GPU 0 of n1: Model (simulated)") continue;
    seen.emplace_back(slice.name, (slice.end_ns - slice.start_ns) / 1'000'000);
  }
  using Named = std::pair<std::string, std::int64_t>;
  EXPECT_THAT(seen, ElementsAre(Named("job-a", 50), Named("job-a (draining)", 10),
                                Named("job-b (paging)", 10), Named("job-b", 20),
                                Named("switching", 5), Named("job-a", 5)));
}

// Whatever a trace says, also where gangs overlap as they should not.
TEST(PerfettoExport, SlicesOfAGpuAddUpToTheSummary) {
  const std::vector<std::string> states = {"running", "loading", "draining", "waiting",
                                           "idle",    "queued",  "paused"};
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    FakeTrace trace;
    trace.gpu(0).gpu(1).job("a", 0).job("b", 0);
    for (std::int64_t at = 0; at < 200; at += 1 + static_cast<std::int64_t>(random() % 4)) {
      const std::uint64_t gang = 1 + random() % 3;
      const std::string job = gang == 3 ? "b" : "a";
      trace.lease(job, gang, states[random() % states.size()], at, 1 + random() % 3, 1);
      if (random() % 5 == 0) add_switch(trace, "a", "b", at - random() % 9, at, 1, 1);
    }
    const Model model = trace.model();
    const Loaded loaded(model);
    for (const GpuSummary& gpu : summarize(model).gpus) {
      const std::string track =
          "GPU " + std::to_string(gpu.gpu.index) + " of n1: Model (simulated)";
      EXPECT_EQ(loaded.total_ns(track, "running"), gpu.running_ns) << seed;
      EXPECT_EQ(loaded.total_ns(track, "loading") + loaded.total_ns(track, "draining") +
                    loaded.total_ns(track, "switching"),
                gpu.switching_ns)
          << seed;
    }
  }
}

TEST(PerfettoExport, SwitchesHaveTheirFigures) {
  std::vector<Loaded::Slice> switches;
  for (const auto& slice : Loaded(two_jobs().model()).slices) {
    if (slice.track.ends_with("/Switches")) switches.push_back(slice);
  }
  ASSERT_EQ(switches.size(), 2u);
  EXPECT_EQ(switches[0].name, "job-a > job-b");
  EXPECT_EQ(switches[0].start_ns, FakeTrace::ms(50));
  EXPECT_EQ(switches[0].end_ns, FakeTrace::ms(70));
  EXPECT_THAT(switches[0].arguments,
              IsSupersetOf(std::map<std::string, std::string>{
                  {"reason", "holder idle"}, {"out_bytes", "300"}, {"in_bytes", "200"}}));
}

TEST(PerfettoExport, CopiedBytesEndAtTheSummary) {
  FakeTrace fake = two_jobs();
  add_switch(fake, "a", "b", 96, 97, 11, 0);
  const Model model = fake.model();
  const Summary summary = summarize(model);
  const Loaded loaded(model);
  EXPECT_THAT(loaded.values.at("job-a gang 1 (simulated)/Bytes copied out"),
              ElementsAre(0, 300, 311));
  EXPECT_EQ(summary.jobs[0].out_bytes, 311u);
  EXPECT_THAT(loaded.values.at("job-b gang 2 (simulated)/Bytes copied in"), ElementsAre(0, 200));
  EXPECT_EQ(summary.jobs[1].in_bytes, 200u);
}

TEST(PerfettoExport, CopiedBytesAreThoseThatTheProcessesTold) {
  FakeTrace fake = two_jobs();
  fake.paging(PagingRecord::EVICT, "a", 7, 52, 55, 30)
      .paging(PagingRecord::EVICT, "a", 7, 70, 71, 5);
  const Model model = fake.model();
  EXPECT_THAT(Loaded(model).values.at("job-a gang 1 (simulated)/Bytes copied out"),
              ElementsAre(0, 30, 35));
  EXPECT_EQ(summarize(model).jobs[0].out_bytes, 35u);
}

TEST(PerfettoExport, EachProcessHasATrackOfWhatItMoved) {
  FakeTrace fake = two_jobs();
  fake.process(SessionRecord::PROCESS_JOIN, "a", 7, 0, 1);
  fake.paging(PagingRecord::EVICT, "a", 7, 50, 60, 30).paging(PagingRecord::LOAD, "a", 7, 70, 0, 0);
  fake.paging(PagingRecord::LOAD, "a", 7, 80, 90, 30);
  fake.paging(PagingRecord::LOAD, "other", 8, 80, 90, 1);
  std::vector<std::string> seen;
  for (const auto& slice : Loaded(fake.model()).slices) {
    if (slice.track != "job-a gang 1 (simulated)/Moves of pid 1007") continue;
    const auto ms = [](std::int64_t at) { return (at - FakeTrace::kStart) / 1'000'000; };
    seen.push_back(slice.name + " " + std::to_string(ms(slice.start_ns)) + "-" +
                   std::to_string(ms(slice.end_ns)));
  }
  // The load whose end is not known is cut where the next one begins.
  EXPECT_THAT(seen, ElementsAre("evict 50-60", "load 70-80", "load 80-90"));
}

TEST(PerfettoExport, ResidentBytesAreACounterOfAllProcesses) {
  FakeTrace fake = two_jobs();
  fake.memory("a", 7, 10, 100).memory("a", 8, 20, 30).memory("a", 7, 30, 0);
  const Loaded loaded(fake.model());
  EXPECT_THAT(loaded.values.at("GPU 0 of n1: Model (simulated)/Resident bytes of job-a"),
              ElementsAre(100, 130, 30));
}

TEST(PerfettoExport, GapsNameTheirCause) {
  std::vector<std::string> names;
  for (const auto& slice : Loaded(two_jobs().model()).slices) {
    if (slice.track.ends_with("/Gaps")) names.push_back(slice.name);
  }
  EXPECT_THAT(names, UnorderedElementsAre("tool call"));
}

TEST(PerfettoExport, ProblemsAreInstants) {
  FakeTrace fake = two_jobs();
  fake.add(55)->mutable_error()->set_what("not_drained");
  EXPECT_THAT(Loaded(fake.model()).instants, ElementsAre("not_drained"));
}

}  // namespace
}  // namespace plexrl::trace
