#include "tools/trace/windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tools/fake_trace.h"
#include "tests/unit/tools/long_trace.h"
#include "tools/trace/report_json.h"
#include "tools/trace/run_folder.h"
#include "tools/trace/totals.h"

namespace plexrl::trace {
namespace {

constexpr std::size_t kGaps = 50;

struct Shown {
  Json summary, gaps, slices, swaps;
  std::uint64_t late;
};

RawTrace long_trace(unsigned seed, std::size_t records) {
  LongTrace trace(seed);
  RawTrace raw;
  for (std::size_t i = 0; i < records; ++i) raw.records.push_back(trace.next());
  return raw;
}

Shown of_the_whole(RawTrace raw) {
  sort_by_time(raw);
  const Model model = build_model(raw);
  return {summary_json(model, summarize(model)), gaps_json(model, gap_report(model, kGaps)),
          timeline_json(model, INT64_MIN, INT64_MAX), swaps_json(model), 0};
}

Shown in_windows(const RawTrace& raw, std::size_t held) {
  Totals totals(kGaps);
  Recent recent;
  Windows sums(totals, held), all(recent, held);
  for (const TraceRecord& record : raw.records) {
    sums.take(TraceRecord(record));
    all.take(TraceRecord(record));
  }
  const Model ended = sums.finish();
  const Model model = recent.model(all.finish());
  return {summary_json(ended, totals.summary(ended)), gaps_json(ended, totals.gaps()),
          timeline_json(model, INT64_MIN, INT64_MAX), swaps_json(model), sums.late_records()};
}

void expect_same(const Shown& seen, const Shown& wanted) {
  EXPECT_EQ(seen.late, 0u);
  EXPECT_EQ(seen.summary.dump(1), wanted.summary.dump(1));
  EXPECT_EQ(seen.gaps.dump(1), wanted.gaps.dump(1));
  EXPECT_EQ(seen.slices, wanted.slices);
  EXPECT_EQ(seen.swaps, wanted.swaps);
}

TEST(Windows, FiguresAreThoseOfTheWholeTrace) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    const RawTrace raw = long_trace(seed, 20'000);
    const Shown whole = of_the_whole(raw);
    ASSERT_GT(whole.summary["summary"]["jobs"].size(), 12u) << "some came later";
    for (const std::size_t held : {1500u, 7000u, 50'000u}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", held " << held);
      expect_same(in_windows(raw, held), whole);
    }
  }
}

TEST(Windows, AManagersStartEndsWhatTheLastOneLeftOpen) {
  RawTrace raw = long_trace(4, 5000);
  const std::uint64_t then_ns = raw.records.back().at_ns() + 1'000'000'000;
  TraceRecord start;
  start.set_at_ns(then_ns);
  start.mutable_session()->set_event(SessionRecord::MANAGER_START);
  raw.records.push_back(start);
  for (TraceRecord record : long_trace(4, 5000).records) {
    record.set_at_ns(record.at_ns() + then_ns);
    if (record.has_gap()) {
      record.mutable_gap()->set_start_ns(record.gap().start_ns() + then_ns);
      if (record.gap().end_ns() != 0) {
        record.mutable_gap()->set_end_ns(record.gap().end_ns() + then_ns);
      }
    }
    if (record.has_switch_()) {
      record.mutable_switch_()->set_decided_at_ns(record.switch_().decided_at_ns() + then_ns);
    }
    raw.records.push_back(record);
  }
  expect_same(in_windows(raw, 1500), of_the_whole(raw));
}

TEST(Windows, ATraceWithoutGapRecordsHasItsIdleSlices) {
  RawTrace raw = long_trace(5, 20'000);
  std::erase_if(raw.records, [](const TraceRecord& record) { return record.has_gap(); });
  const Shown whole = of_the_whole(raw);
  ASSERT_FALSE(whole.gaps["gaps"].empty());
  expect_same(in_windows(raw, 500), whole);
}

TEST(Windows, AGapThatLastsOverManyWindowsIsOne) {
  FakeTrace trace;
  trace.gpu(0).job("a", 0).job("b", 0).lease("a", 1, "running", 0, 1, 1).gap("a", 1, 10, 0, "");
  trace.lease("a", 1, "idle", 20);
  for (int i = 0; i < 200; ++i) {
    trace.lease("b", 2, i % 2 == 0 ? "running" : "waiting", 30 + i, 1, 2 + i);
  }
  trace.lease("a", 1, "running", 500, 1, 300)
      .gap("a", 1, 10, 400, "disk")
      .lease("b", 2, "idle", 600);
  trace.job_end("a", 700).job_end("b", 700);
  RawTrace raw;
  raw.records.assign(trace.chunk().records().begin(), trace.chunk().records().end());
  const Shown whole = of_the_whole(raw);
  ASSERT_EQ(whole.summary["summary"]["jobs"][0]["idle_by"].count("disk"), 1u);
  expect_same(in_windows(raw, 10), whole);
}

TEST(Windows, WhatIsToldLaterThanItHoldsIsTakenAndCounted) {
  const RawTrace raw = long_trace(6, 20'000);
  const Shown seen = in_windows(raw, 20);
  EXPECT_GT(seen.late, 0u);
  const Json whole = of_the_whole(raw).summary["summary"], cut = seen.summary["summary"];
  for (std::size_t i = 0; i < whole["jobs"].size(); ++i) {
    EXPECT_EQ(cut["jobs"][i]["out_bytes"], whole["jobs"][i]["out_bytes"]);
    EXPECT_EQ(cut["jobs"][i]["swaps_in"], whole["jobs"][i]["swaps_in"]);
  }
}

// What begins long ago is told again and again, and the windows end all the same.
TEST(Windows, ATraceThatContradictsItselfIsNotKept) {
  class Largest : public WindowSink {
   public:
    void pass(const Model& model, const OpenGaps&, std::int64_t, std::int64_t) override {
      std::size_t slices = 0;
      for (const Gang& gang : model.gangs) slices += gang.slices.size();
      largest = std::max(largest, slices);
    }
    void settle(const Model&, const std::vector<Gap>&) override {}
    std::size_t largest = 0;
  };
  Largest largest;
  Windows windows(largest, 100);
  FakeTrace trace;
  trace.gpu(0).job("a", 0).job("b", 0);
  for (int i = 0; i < 50'000; ++i) {
    trace.lease("a", 1, i % 2 == 0 ? "running" : "waiting", 30 + i, 1);
    trace.gap("b", 2, 1, 30 + i, "disk");
    if (i == 0) trace.gap("a", 1, 30, 0, "");
  }
  for (const TraceRecord& record : trace.chunk().records()) windows.take(TraceRecord(record));
  windows.finish();
  EXPECT_GT(windows.late_records(), 0u);
  EXPECT_LT(largest.largest, 12'000u);
}

TEST(Recent, KeepsTheNewest) {
  const RawTrace raw = long_trace(7, 20'000);
  Recent recent(3000);
  Windows windows(recent, 500);
  for (const TraceRecord& record : raw.records) windows.take(TraceRecord(record));
  const Model model = recent.model(windows.finish());
  EXPECT_TRUE(recent.is_cut());
  const Json whole = of_the_whole(raw).swaps["swaps"], kept = swaps_json(model)["swaps"];
  ASSERT_GT(kept.size(), 100u);
  ASSERT_LT(kept.size(), 3000u);
  for (std::size_t i = 1; i <= kept.size(); ++i) {
    EXPECT_EQ(kept[kept.size() - i], whole[whole.size() - i]);
  }
  EXPECT_GT(model.start_ns, static_cast<std::int64_t>(raw.records.front().at_ns()));
}

}  // namespace
}  // namespace plexrl::trace
