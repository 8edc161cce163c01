#include "nodemgr/paging_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "nodemgr/log.h"
#include "tests/unit/nodemgr/read_trace.h"

namespace plexrl::nodemgr {
namespace {

using namespace std::chrono_literals;
using trace::PagingRecord;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr wire::Epoch kLast{3, 7};

std::uint64_t ns(std::chrono::nanoseconds time) { return static_cast<std::uint64_t>(time.count()); }

/// Processes of gang 1 (`a1`, `a2`) and of gang 2 (`b`), and the records that come of what they do.
class PagingLogTest : public ::testing::Test {
 protected:
  PagingLogTest() {
    set_log_level("error");
    std::string pattern = ::testing::TempDir() + "/pagingXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    TraceOptions options;
    options.folder = folder_;
    options.node = "n1";
    trace_ = std::make_unique<TraceWriter>(options);
    switches_ = std::make_unique<SwitchLog>(*trace_);
    paging = std::make_unique<PagingLog>(*trace_, *switches_);
    std::uint64_t id = 10;
    for (Session* session : {&a1, &a2, &b}) {
      session->id = ++id;
      session->process.pid = static_cast<pid_t>(1000 + id);
      session->job = session == &b ? &job_b : &job_a;
      session->gang = session == &b ? 2 : 1;
    }
  }
  ~PagingLogTest() override {
    paging.reset();
    switches_.reset();
    trace_.reset();  // which writes the rest
    std::filesystem::remove_all(folder_);
  }

  SwitchLog& switches() { return *switches_; }
  static policy::Decision about_gpu_0(const char* reason) {
    policy::Decision decision;
    decision.gpus = 1;
    decision.reason = reason;
    return decision;
  }
  static wire::Evicted evicted(std::uint64_t moved, std::chrono::nanoseconds start,
                               std::chrono::nanoseconds end) {
    wire::Evicted message{};
    message.moved_bytes = moved;
    message.start_ns = ns(start);
    message.end_ns = ns(end);
    return message;
  }
  /// Gang 1 loses GPU 0 to gang 2 by the time 11 s; returns the change's number.
  std::uint64_t change_holder() {
    switches().withdrawn({"a", 1}, about_gpu_0("quantum over"), 10s);
    switches().revoked({"a", 1}, 1, 11s);
    return switches().evicting(0, 100 * kMiB, 11s);
  }
  void gang_2_runs(std::chrono::nanoseconds granted, std::chrono::nanoseconds runs) {
    switches().granted({"b", 2}, about_gpu_0("turn"), granted);
    switches().running({"b", 2}, 1, runs);
  }

  /// All records so far but the clock's.
  std::vector<trace::TraceRecord> records() {
    trace_->flush();
    std::vector<trace::TraceRecord> found =
        test::read_trace(test::bytes_of(trace_->run_folder() + "/000000.plxt")).records;
    std::erase_if(found, [](const trace::TraceRecord& record) { return record.has_clock(); });
    return found;
  }
  std::vector<trace::GapRecord> gaps() {
    std::vector<trace::GapRecord> found;
    for (const trace::TraceRecord& record : records()) {
      if (record.has_gap()) found.push_back(record.gap());
    }
    return found;
  }
  std::vector<PagingRecord> windows() {
    std::vector<PagingRecord> found;
    for (const trace::TraceRecord& record : records()) {
      if (record.has_paging()) found.push_back(record.paging());
    }
    return found;
  }

  Job job_a, job_b;
  Session a1, a2, b;
  std::unique_ptr<PagingLog> paging;

 private:
  std::string folder_;
  std::unique_ptr<TraceWriter> trace_;
  std::unique_ptr<SwitchLog> switches_;
};

TEST_F(PagingLogTest, WhileAGpuLiesFreeNothingIsSwitched) {
  switches().withdrawn({"a", 1}, about_gpu_0("asks for more GPUs than it holds"), 10s);
  switches().revoked({"a", 1}, 1, 11s);
  gang_2_runs(71s, 73s);
  // Nor before memory begins to leave for whoever comes then.
  switches().withdrawn({"b", 2}, about_gpu_0("paused"), 80s);
  switches().revoked({"b", 2}, 1, 81s);
  switches().evicting(0, kMiB, 91s);
  switches().granted({"a", 1}, about_gpu_0("turn"), 92s);
  switches().running({"a", 1}, 1, 93s);
  std::vector<std::chrono::nanoseconds> took;
  for (const trace::TraceRecord& record : records()) {
    if (record.has_switch_()) {
      took.emplace_back(record.at_ns() - record.switch_().decided_at_ns());
      EXPECT_EQ(record.switch_().drain_ns(), ns(1s));
    }
  }
  EXPECT_THAT(took, ::testing::ElementsAre(3s, 3s));
}

TEST_F(PagingLogTest, AGapIsToldWhenItIsOverAndOnceBeforeIfItLasts) {
  switches().idle({"a", 1}, 10s);
  EXPECT_TRUE(switches().has_untold_gaps());
  switches().tell_open_gaps(7s);
  switches().tell_open_gaps(7s);
  EXPECT_FALSE(switches().has_untold_gaps());
  switches().lent(1);
  switches().busy({"a", 1}, 14s);
  switches().idle({"a", 1}, 15s);
  switches().gone({"a", 1}, 16s);
  const auto all = gaps();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].start_ns(), ns(10s));
  EXPECT_EQ(all[0].end_ns(), 0u);
  EXPECT_EQ(all[1].start_ns(), ns(10s));
  EXPECT_EQ(all[1].end_ns(), ns(14s));
  EXPECT_TRUE(all[1].lent());
  EXPECT_EQ(all[2].start_ns(), ns(15s));
  EXPECT_EQ(all[2].end_ns(), ns(16s)) << "a gang that goes in a gap";
}

TEST_F(PagingLogTest, AWindowSaysWhoMovedWhatFromWhenToWhen) {
  paging->evicting(a1, 2, kLast, 0, 11s);
  paging->evicted(a1, evicted(5 * kMiB, 12s, 13s), 14s);
  const auto all = windows();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].kind(), PagingRecord::EVICT);
  EXPECT_EQ(all[0].session(), a1.id);
  EXPECT_EQ(all[0].pid(), a1.process.pid);
  EXPECT_EQ(all[0].gang(), 1u);
  EXPECT_EQ(all[0].gpus_mask(), 4u);
  EXPECT_EQ(all[0].epoch().counter(), kLast.counter);
  EXPECT_EQ(all[0].outcome(), "done");
  EXPECT_EQ(all[0].asked_ns(), ns(11s));
  EXPECT_EQ(all[0].start_ns(), ns(12s));
  EXPECT_EQ(all[0].end_ns(), ns(13s));
  EXPECT_EQ(all[0].out_bytes(), 5 * kMiB);
}

TEST_F(PagingLogTest, AProcessCannotMoveItsWindowBeyondTheManagersOwnTimes) {
  paging->evicting(a1, 0, kLast, 0, 11s);
  paging->evicted(a1, evicted(1, 1s, 99s), 14s);
  paging->evicting(a1, 0, kLast, 0, 15s);
  paging->evicted(a1, evicted(1, 17s, 16s), 18s);
  const auto all = windows();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].start_ns(), ns(11s));
  EXPECT_EQ(all[0].end_ns(), ns(14s));
  EXPECT_EQ(all[1].start_ns(), ns(17s));
  EXPECT_EQ(all[1].end_ns(), ns(17s));
}

TEST_F(PagingLogTest, AnAnswerThatNobodyAskedForIsNoWindow) {
  paging->evicted(a1, evicted(5 * kMiB, 12s, 13s), 14s);
  EXPECT_TRUE(windows().empty());
}

TEST_F(PagingLogTest, WhatTheProcessDoesNotAnswerEndsWithIt) {
  paging->evicting(a1, 0, kLast, 0, 11s);
  paging->evicting(a1, 1, kLast, 0, 11s);
  paging->died(a1, 15s);
  paging->evicting(a2, 0, kLast, 0, 11s);
  paging->lost(a2, 15s);
  const auto all = windows();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1].outcome(), "died");
  EXPECT_EQ(all[1].end_ns(), ns(15s));
  EXPECT_EQ(all[2].outcome(), "lost");
  EXPECT_EQ(all[2].end_ns(), 0u) << "it goes on, unseen";
}

TEST_F(PagingLogTest, ALoadEndsWhenItIsToldOrRevokedOrBeginsAnew) {
  paging->loading(b, 1, {3, 8}, 11s);
  paging->loading(b, 1, {3, 9}, 12s);
  wire::Loaded loaded{};
  loaded.epoch = {3, 9};
  loaded.moved_bytes = 7;
  loaded.start_ns = ns(13s);
  loaded.end_ns = ns(14s);
  paging->loaded(b, loaded, 1, 15s);
  paging->loading(b, 1, {3, 10}, 20s);
  paging->revoked(b, 21s);
  const auto all = windows();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].outcome(), "superseded");
  EXPECT_EQ(all[1].outcome(), "done");
  EXPECT_EQ(all[1].asked_ns(), ns(12s));
  EXPECT_EQ(all[1].start_ns(), ns(13s));
  EXPECT_EQ(all[1].in_bytes(), 7u);
  EXPECT_EQ(all[2].outcome(), "revoked");
  EXPECT_EQ(all[2].end_ns(), ns(21s));
}

TEST_F(PagingLogTest, APrefetchIsAWindowOfItsOwn) {
  wire::Prefetched prefetched{};
  paging->prefetched(a1, prefetched, 9s);  // nobody asked
  paging->prefetching(a1, 0, kLast, 10s);
  prefetched.moved_bytes = 5;
  prefetched.zero_bytes = 6;
  prefetched.start_ns = ns(9s);
  prefetched.end_ns = ns(12s);
  paging->prefetched(a1, prefetched, 13s);
  paging->prefetching(a1, 0, kLast, 20s);
  paging->prefetching(b, 0, kLast, 20s);
  paging->lost(a1, 21s);
  paging->died(b, 22s);
  const auto all = windows();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].kind(), PagingRecord::PREFETCH);
  EXPECT_EQ(all[0].outcome(), "done");
  EXPECT_EQ(all[0].epoch().counter(), kLast.counter);
  EXPECT_EQ(all[0].start_ns(), ns(10s)) << "not before it was asked";
  EXPECT_EQ(all[0].end_ns(), ns(12s));
  EXPECT_EQ(all[0].in_bytes(), 5u);
  EXPECT_EQ(all[0].untouched_bytes(), 6u);
  EXPECT_EQ(all[1].outcome(), "lost");
  EXPECT_EQ(all[1].end_ns(), 0u);
  EXPECT_EQ(all[2].outcome(), "died");
  EXPECT_EQ(all[2].end_ns(), ns(22s));
}

TEST_F(PagingLogTest, ASwitchCountsWhoIsStillLeavingWhenTheNewcomerRuns) {
  const std::uint64_t change = change_holder();
  paging->evicting(a1, 0, kLast, change, 11s);
  paging->evicting(a2, 0, kLast, change, 11s);
  paging->evicted(a1, evicted(60 * kMiB, 11s, 12s), 12s);
  gang_2_runs(13s, 14s);
  for (const auto& record : records()) EXPECT_FALSE(record.has_switch_()) << "a2 is still leaving";
  // The GPU's next change has begun when the last answer of this one comes.
  switches().withdrawn({"b", 2}, about_gpu_0("holder idle"), 15s);
  paging->evicted(a2, evicted(50 * kMiB, 11s, 16s), 16s);
  const auto all = records();
  ASSERT_TRUE(all.back().has_switch_());
  EXPECT_EQ(all.back().at_ns(), ns(14s));
  const auto& record = all.back().switch_();
  EXPECT_EQ(record.out_bytes(), 110 * kMiB);
  EXPECT_EQ(record.evict_ns(), ns(5s));
  EXPECT_EQ(record.in_job_id(), "b");
  EXPECT_EQ(record.reason(), "quantum over");
}

TEST_F(PagingLogTest, ASwitchDoesNotWaitForWhoDied) {
  const std::uint64_t change = change_holder();
  paging->evicting(a1, 0, kLast, change, 11s);
  gang_2_runs(13s, 14s);
  paging->died(a1, 16s);
  const auto all = records();
  ASSERT_TRUE(all.back().has_switch_());
  EXPECT_EQ(all.back().switch_().out_bytes(), 0u);
}

TEST_F(PagingLogTest, WhatLeavesForAGrowingHolderBelongsToNoSwitch) {
  change_holder();
  gang_2_runs(12s, 13s);
  EXPECT_EQ(switches().evicting(0, kMiB, 14s), 0u);
  switches().withdrawn({"b", 2}, about_gpu_0("quantum over"), 15s);
  switches().reopened(1);
  EXPECT_EQ(switches().evicting(0, kMiB, 16s), 0u) << "the attempt was called off";
}

}  // namespace
}  // namespace plexrl::nodemgr
