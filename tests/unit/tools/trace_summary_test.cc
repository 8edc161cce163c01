#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tools/fake_trace.h"
#include "tools/trace/gap_report.h"
#include "tools/trace/report_json.h"
#include "tools/trace/summary.h"

namespace plexrl::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
constexpr std::int64_t kMs = 1'000'000;

// Two jobs on one GPU:
//   a: running 0-40, idle 40-50, draining 50-52, waiting 52-100, loading 100-110, running 110-150,
//   gone b: waiting 40-52, loading 52-60, running 60-100, idle 100-200 (its end)
FakeTrace two_jobs() {
  FakeTrace trace;
  trace.gpu(0).job("a", 0).lease("a", 1, "running", 0, 1, 1).job("b", 30);
  trace.lease("b", 2, "waiting", 40).lease("a", 1, "idle", 40, 1, 1);
  trace.lease("a", 1, "draining", 50, 1, 1).lease("a", 1, "waiting", 52);
  trace.lease("b", 2, "loading", 52, 1, 2).lease("b", 2, "running", 60, 1, 2);
  trace.lease("b", 2, "idle", 100).lease("a", 1, "loading", 100, 1, 3);
  trace.lease("a", 1, "running", 110, 1, 3).lease("a", 1, "gone", 150).job_end("a", 150);
  trace.job_end("b", 200);
  return trace;
}

TEST(Model, SlicesFollowEachOtherAndEndWithTheGang) {
  const Model model = two_jobs().model();
  const Gang& a = *model.gangs_of("a").at(0);
  ASSERT_EQ(a.slices.size(), 6u);
  for (size_t i = 1; i < a.slices.size(); ++i) {
    EXPECT_EQ(a.slices[i].start_ns, a.slices[i - 1].end_ns);
  }
  EXPECT_EQ(a.slices.back().end_ns, FakeTrace::ms(150));
  EXPECT_EQ(epoch_text(a.slices.back().generation, a.slices.back().counter), "1.3");
  EXPECT_TRUE(model.simulated);
  EXPECT_EQ(model.node, "n1");
}

TEST(Model, ATraceThatStopsInTheMiddleClosesEverythingAtItsLastRecord) {
  FakeTrace trace;
  trace.job("a", 0).lease("a", 1, "running", 0).lease("b", 2, "waiting", 70);
  const Model model = trace.model();
  EXPECT_EQ(model.gangs_of("a").at(0)->slices.at(0).end_ns, FakeTrace::ms(70));
  EXPECT_EQ(model.find_job("a")->end_ns, FakeTrace::ms(70));
}

TEST(Model, ANewManagerStartsWithNothingOpenButTheJobGoesOn) {
  FakeTrace trace;
  trace.job("a", 0).lease("a", 1, "running", 0).lease("b", 2, "waiting", 10);
  trace.add(60)->mutable_session()->set_event(SessionRecord::MANAGER_START);
  trace.job("a", 65).lease("a", 1, "running", 70).job_end("a", 90);
  const Model model = trace.model();
  const auto& slices = model.gangs_of("a").at(0)->slices;
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].end_ns, FakeTrace::ms(10));
  EXPECT_EQ(slices[1].end_ns, FakeTrace::ms(90));
  EXPECT_EQ(model.find_job("a")->start_ns, FakeTrace::ms(0));
  EXPECT_EQ(model.find_job("a")->end_ns, FakeTrace::ms(90));
}

TEST(Summary, TimesAreSumsOfSlices) {
  const Summary summary = summarize(two_jobs().model());
  const JobSummary& a = summary.jobs.at(0);
  EXPECT_EQ(a.running_ns, 80 * kMs);
  EXPECT_EQ(a.waiting_ns, 48 * kMs);
  EXPECT_EQ(a.paging_ns, 10 * kMs);
  EXPECT_EQ(a.draining_ns, 2 * kMs);
  EXPECT_EQ(a.idle_ns, 10 * kMs);
  EXPECT_EQ(a.wall_ns, 150 * kMs);
  EXPECT_EQ(a.held_ns, 92 * kMs);
  EXPECT_DOUBLE_EQ(a.duty_ratio(), 82.0 / 150)
      << "no gap is known: it drains with work outstanding";
  EXPECT_DOUBLE_EQ(a.slowdown_ratio(), 150.0 / 90);
  EXPECT_EQ(summary.span_ns, 200 * kMs);
}

TEST(Summary, AGpuRunsOrSwitchesButNotBoth) {
  const Summary summary = summarize(two_jobs().model());
  const GpuSummary& gpu = summary.gpus.at(0);
  EXPECT_EQ(gpu.running_ns, 120 * kMs);   // 0-40, 60-100, 110-150
  EXPECT_EQ(gpu.switching_ns, 20 * kMs);  // 50-60, 100-110
  EXPECT_EQ(gpu.held_ns, 140 * kMs);
  EXPECT_DOUBLE_EQ(gpu.duty_ratio, 122.0 / 200);
}

// On a GPU from 0 to 100 without a switch, with work until 30, from 60 to 80, and none after 90.
FakeTrace half_busy() {
  FakeTrace trace;
  trace.gpu(0).job("a", 0).lease("a", 1, "running", 0, 1, 1);
  trace.gap("a", 1, 30, 60, "").gap("a", 1, 80, 85, "tool_call").gap("a", 1, 90, 0, "");
  return trace;
}

TEST(Summary, DutyIsTheShareOfTimeWithWorkOutstandingNotThatWithALease) {
  FakeTrace trace = half_busy();
  trace.lease("a", 1, "gone", 100).job_end("a", 100);
  const Model model = trace.model();
  EXPECT_TRUE(model.has_activity);
  const Summary summary = summarize(model);
  const JobSummary& job = summary.jobs.at(0);
  EXPECT_EQ(job.busy_ns, 55 * kMs);
  EXPECT_EQ(job.held_ns, 100 * kMs);
  EXPECT_EQ(job.running_ns, 100 * kMs);
  EXPECT_EQ(job.idle_ns, 45 * kMs);
  EXPECT_THAT(job.idle_by_ns, ElementsAre(Pair("tool_call", 5 * kMs), Pair("unknown", 40 * kMs)));
  EXPECT_DOUBLE_EQ(job.duty_ratio(), 0.55);
  EXPECT_DOUBLE_EQ(job.slowdown_ratio(), 1);
  const GpuSummary& gpu = summary.gpus.at(0);
  EXPECT_EQ(gpu.busy_ns, 55 * kMs);
  EXPECT_EQ(gpu.held_ns, 100 * kMs);
  EXPECT_DOUBLE_EQ(gpu.duty_ratio, 0.55);
}

TEST(Summary, WhatWasSeenOfAGapStandsForAllOfIt) {
  FakeTrace trace;
  trace.gpu(0).job("a", 0).lease("a", 1, "running", 0, 1, 1);
  trace.gap("a", 1, 20, 60, "network").due_to("network", "10.0.0.3:80", 3).due_to("cpu", "main", 1);
  trace.gap("a", 1, 80, 90, "network").due_to("network", "10.0.0.4:80", 7);
  trace.lease("a", 1, "gone", 100).job_end("a", 100);
  const Model model = trace.model();
  EXPECT_THAT(summarize(model).jobs.at(0).idle_by_ns,
              ElementsAre(Pair("cpu", 10 * kMs), Pair("network", 40 * kMs)));
  const auto causes = gap_report(model, 1).causes;
  ASSERT_EQ(causes.size(), 3u);
  EXPECT_EQ(causes[0].cause, "network");
  EXPECT_EQ(causes[0].detail, "10.0.0.3:80");
  EXPECT_EQ(causes[0].total_ns, 30 * kMs);
  EXPECT_EQ(causes[0].gaps, 1u);
  EXPECT_EQ(causes[1].total_ns + causes[2].total_ns, 20 * kMs);
  const Json json = gaps_json(model, gap_report(model, 1));
  EXPECT_EQ(json["gaps"][0]["causes"][1]["detail"], "main");
  EXPECT_EQ(json["by_cause"][0]["total_ns"], 30 * kMs);
}

TEST(Summary, AGapThatIsNotOverLastsUntilTheTraceEnds) {
  FakeTrace trace = half_busy();
  trace.clock(120, 0);
  EXPECT_EQ(summarize(trace.model()).jobs.at(0).busy_ns, 55 * kMs);
  // Its end comes later, under the same beginning: it is told of once.
  trace.gap("a", 1, 90, 110, "");
  EXPECT_EQ(summarize(trace.model()).jobs.at(0).busy_ns, 65 * kMs);
  EXPECT_EQ(trace.model().gaps.size(), 3u);
}

TEST(Summary, ATraceWithoutEdgesSaysSoAndTakesLeasesForBusy) {
  const Model model = two_jobs().model();
  EXPECT_FALSE(model.has_activity);
  const Summary summary = summarize(model);
  EXPECT_EQ(summary.jobs.at(0).busy_ns, 82 * kMs) << "running and draining";
  EXPECT_EQ(summary_json(model, summary)["summary"]["has_activity"], false);
}

TEST(Summary, BusyIdleWaitingPagingArePartsOfTheGangsTime) {
  FakeTrace trace = two_jobs();
  trace.gap("a", 1, 20, 50, "").gap("b", 2, 90, 200, "");
  for (const JobSummary& job : summarize(trace.model()).jobs) {
    EXPECT_EQ(job.busy_ns + job.idle_ns + job.waiting_ns + job.paging_ns, job.gangs_ns) << job.name;
  }
}

TEST(Summary, EvictionBetweenTwoHoldersIsSwitching) {
  FakeTrace trace;
  trace.gpu(0).job("a", 0).lease("a", 1, "running", 0).lease("a", 1, "draining", 50);
  trace.lease("a", 1, "idle", 52).lease("b", 2, "loading", 80).lease("b", 2, "running", 90);
  SwitchRecord* record = trace.add(90)->mutable_switch_();
  record->set_decided_at_ns(static_cast<std::uint64_t>(FakeTrace::ms(50)));
  trace.lease("b", 2, "gone", 100);
  EXPECT_EQ(summarize(trace.model()).gpus.at(0).switching_ns, 40 * kMs);
}

TEST(Summary, OverlappingGangsCountOnceForTheGpu) {
  FakeTrace trace;
  trace.gpu(0).job("a", 0).lease("a", 1, "running", 0).lease("a", 2, "running", 50);
  trace.lease("a", 1, "gone", 100).lease("a", 2, "gone", 150).job_end("a", 150);
  const Summary summary = summarize(trace.model());
  EXPECT_EQ(summary.jobs.at(0).running_ns, 200 * kMs);
  EXPECT_EQ(summary.gpus.at(0).running_ns, 150 * kMs);
}

TEST(Summary, IdleTimeIsSplitByTheCausesOfGaps) {
  FakeTrace trace;
  trace.job("a", 0).lease("a", 1, "running", 0).lease("a", 1, "idle", 10);
  trace.gap("a", 1, 10, 40, "tool_call").gap("a", 1, 30, 60, "network");
  trace.lease("a", 1, "running", 100).job_end("a", 110);
  const Summary summary = summarize(trace.model());
  EXPECT_THAT(summary.jobs.at(0).idle_by_ns,
              ElementsAre(Pair("network", 20 * kMs), Pair("tool_call", 30 * kMs),
                          Pair("unknown", 40 * kMs)));
}

TEST(Summary, BytesGoToTheJobThatMovedThem) {
  FakeTrace trace = two_jobs();
  SwitchRecord* record = trace.add(60)->mutable_switch_();
  record->set_out_job_id("a");
  record->set_in_job_id("b");
  record->set_out_bytes(100);
  record->set_in_bytes(30);
  record->set_untouched_bytes(7);
  const Summary summary = summarize(trace.model());
  EXPECT_EQ(summary.jobs.at(0).out_bytes, 100u);
  EXPECT_EQ(summary.jobs.at(0).saved.untouched_bytes, 7u);
  EXPECT_EQ(summary.jobs.at(0).in_bytes, 0u);
  EXPECT_EQ(summary.jobs.at(1).in_bytes, 30u);
  EXPECT_EQ(summary.gpus.at(0).swaps, 1u);
}

TEST(Summary, WaitingForAdmissionIsQueued) {
  FakeTrace trace;
  trace.job_event(SessionRecord::JOB_QUEUED, "a", 0).job("a", 25).job_end("a", 60);
  const JobSummary job = summarize(trace.model()).jobs.at(0);
  EXPECT_EQ(job.queued_ns, 25 * kMs);
  EXPECT_EQ(job.wall_ns, 35 * kMs);
}

TEST(Summary, AJobThatIsNeverAdmittedWasQueuedUntilItsEnd) {
  FakeTrace trace;
  trace.job_event(SessionRecord::JOB_QUEUED, "a", 0).job_end("a", 40);
  trace.job_event(SessionRecord::JOB_QUEUED, "b", 10).job("c", 60).job_end("c", 70);
  const Summary summary = summarize(trace.model());
  EXPECT_EQ(summary.jobs.at(0).queued_ns, 40 * kMs);
  EXPECT_EQ(summary.jobs.at(0).wall_ns, 0);
  EXPECT_EQ(summary.jobs.at(1).queued_ns, 60 * kMs);
}

TEST(Pieces, SubtractCutsOnBothSides) {
  EXPECT_THAT(subtract({{0, 10}, {20, 30}}, {{2, 4}, {8, 22}, {29, 40}}),
              ElementsAre(Pair(0, 2), Pair(4, 8), Pair(22, 29)));
  EXPECT_THAT(merge({{5, 9}, {0, 5}, {7, 12}, {20, 20}}), ElementsAre(Pair(0, 12)));
}

TEST(Summary, BytesAreThoseThatTheProcessesMoved) {
  FakeTrace fake = two_jobs();
  SwitchRecord* late = fake.add(60)->mutable_switch_();
  late->set_out_job_id("a");
  late->set_in_job_id("b");
  late->set_out_bytes(30);
  EXPECT_EQ(summarize(fake.model()).jobs[0].out_bytes, 30u) << "a trace without windows";
  // While no holder changes bytes leave as well: the holder grows.
  fake.paging(PagingRecord::EVICT, "a", 7, 52, 55, 30)
      .paging(PagingRecord::EVICT, "a", 7, 70, 71, 5);
  fake.paging(PagingRecord::LOAD, "a", 7, 100, 109, 35);
  const Summary summary = summarize(fake.model());
  EXPECT_EQ(summary.jobs[0].out_bytes, 35u);
  EXPECT_EQ(summary.jobs[0].in_bytes, 35u);
  EXPECT_EQ(summary.jobs[0].swaps_out, 1u);
  EXPECT_EQ(summary.jobs[1].out_bytes, 0u);
}

TEST(ExportJson, HasTheWindowsAndGangsOfProcesses) {
  FakeTrace fake = two_jobs();
  fake.process(SessionRecord::PROCESS_JOIN, "a", 7, 0)
      .process(SessionRecord::PROCESS_GANG, "a", 7, 1, 5);
  fake.process(SessionRecord::PROCESS_GANG, "a", 7, 3, 6);
  fake.paging(PagingRecord::EVICT, "a", 7, 52, 55, 30)
      .paging(PagingRecord::LOAD, "a", 7, 100, 0, 0);
  const Json json = export_json(fake.model());
  const Json& process = json["processes"][0];
  EXPECT_EQ(process["gang"], "6");
  EXPECT_EQ(process["gangs"][0]["gang"], "5");
  EXPECT_EQ(process["gangs"][1]["since_mono_ns"], FakeTrace::ms(3));
  const Json& evict = json["paging"][0];
  EXPECT_EQ(evict["kind"], "evict");
  EXPECT_EQ(evict["job"], "a");
  EXPECT_EQ(evict["pid"], 1007);
  EXPECT_EQ(evict["epoch"], "1.4");
  EXPECT_EQ(evict["start_mono_ns"], FakeTrace::ms(52));
  EXPECT_EQ(evict["end_mono_ns"], FakeTrace::ms(55));
  EXPECT_EQ(evict["out_bytes"], 30);
  EXPECT_TRUE(json["paging"][1]["end_mono_ns"].is_null());
  EXPECT_EQ(json["paging"][1]["outcome"], "lost");
}

TEST(Model, SwapsAreInOrderOfTimeThoughTheyWereWrittenLater) {
  FakeTrace fake = two_jobs();
  fake.add(90)->mutable_switch_()->set_out_job_id("later");
  fake.add(60)->mutable_switch_()->set_out_job_id("sooner");
  const Model model = fake.model();
  EXPECT_EQ(model.swaps[0].record.out_job_id(), "sooner");
  EXPECT_EQ(model.end_ns, FakeTrace::ms(200));
}

TEST(SummaryJson, HasTheContractsKeysAndUnits) {
  const Model model = two_jobs().clock(0, 1'700'000'000'000'000'000).model();
  const Json json = summary_json(model, summarize(model));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["simulated"], true);
  EXPECT_EQ(json["node"], "n1");
  const Json& job = json["summary"]["jobs"][0];
  EXPECT_DOUBLE_EQ(job["running_s"].get<double>(), 0.080);
  for (const char* key : {"waiting_s", "paging_s", "idle_s", "idle_by", "duty_ratio", "held_s",
                          "busy_s", "slowdown_ratio", "out_bytes", "in_bytes"}) {
    EXPECT_TRUE(job.contains(key)) << key;
  }
  for (const char* key : {"untouched_bytes", "repeated_bytes", "unchanged_bytes", "shared_bytes"}) {
    EXPECT_TRUE(job["saved"].contains(key)) << key;
  }
  EXPECT_TRUE(job["team"].is_null());
}

TEST(SwapsJson, HasWallTimeAndStages) {
  FakeTrace trace;
  trace.clock(0, 1'700'000'000'000'000'000);
  SwitchRecord* record = trace.add(1500)->mutable_switch_();
  record->set_in_job_id("b");
  record->set_out_bytes(5);
  record->set_in_bytes(6);
  record->set_drain_ns(77);
  const Json swap = swaps_json(trace.model())["swaps"][0];
  EXPECT_EQ(swap["at"], "2023-11-14T22:13:21.500000000Z");
  EXPECT_EQ(swap["mono_ns"], FakeTrace::ms(1500));
  EXPECT_TRUE(swap["out_job"].is_null());
  EXPECT_EQ(swap["in_job"], "b");
  EXPECT_EQ(swap["moved_bytes"], 11);
  EXPECT_EQ(swap["stages"]["drain_ns"], 77);
  EXPECT_TRUE(swap["link_ratio"].is_null());
}

TEST(Gaps, WithoutRecordsTheyAreTheIdleSlices) {
  const auto gaps = gap_report(two_jobs().model(), 10).longest;
  ASSERT_EQ(gaps.size(), 2u);
  EXPECT_EQ(gaps[0].job_id, "b");
  EXPECT_EQ(gaps[0].length_ns(), 100 * kMs);
  EXPECT_EQ(gaps[1].length_ns(), 10 * kMs);
  EXPECT_EQ(gap_report(two_jobs().model(), 1).longest.size(), 1u);
}

TEST(Gaps, OnesThatNobodySawAreDueToTheUnknown) {
  FakeTrace trace;
  trace.gap("a", 1, 0, 3, "").gap("a", 1, 10, 14, "tool_call").gap("a", 1, 20, 30, "");
  const auto causes = gap_report(trace.model(), 1).causes;
  ASSERT_EQ(causes.size(), 2u);
  EXPECT_EQ(causes[0].cause, "unknown");
  EXPECT_EQ(causes[0].gaps, 2u);
  EXPECT_EQ(causes[0].total_ns, 13 * kMs);
  EXPECT_EQ(causes[1].cause, "tool_call");
}

TEST(Gaps, TheHistogramCountsEachOnce) {
  FakeTrace trace;
  trace.gap("a", 1, 0, 3, "").gap("a", 1, 10, 14, "").gap("a", 1, 20, 80, "");
  const auto buckets = gap_report(trace.model(), 1).histogram;
  std::vector<std::int64_t> edges;
  std::vector<std::uint64_t> counts;
  for (const GapBucket& bucket : buckets) {
    edges.push_back(bucket.to_ns / kMs);
    counts.push_back(bucket.count);
  }
  EXPECT_THAT(edges, ElementsAre(1, 2, 5, 10, 20, 50, 100));
  EXPECT_THAT(counts, ElementsAre(0, 0, 2, 0, 0, 0, 1));
  EXPECT_TRUE(gap_report(FakeTrace().model(), 1).histogram.empty());
}

}  // namespace
}  // namespace plexrl::trace
