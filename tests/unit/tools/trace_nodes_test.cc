#include "tools/trace/nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tools/fake_trace.h"
#include "tools/trace/run_folder.h"

namespace plexrl::trace {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kSecond = 1'000'000'000;

/// A node that was booted at `boot_s` of wall time, with a job that holds GPU 0 from 10 to 20 ms.
FakeTrace node(const std::string& name, const std::string& job, std::int64_t boot_s) {
  FakeTrace trace;
  trace.gpu(0).clock(1, boot_s * kSecond + FakeTrace::ms(1));
  trace.process(SessionRecord::PROCESS_JOIN, job, 5, 5, 1);
  trace.job(job, 5).lease(job, 1, "running", 10, 1, 1).lease(job, 1, "idle", 20);
  trace.gap(job, 1, 20, 30, "sleep").paging(PagingRecord::LOAD, job, 5, 8, 10, 64);
  trace.process(SessionRecord::PROCESS_END, job, 5, 40).job_end(job, 40);
  TraceRecord* begin = trace.add(0);
  begin->mutable_session()->set_event(SessionRecord::MANAGER_START);
  begin->mutable_session()->set_node(name);
  return trace;
}

RawTrace raw(const FakeTrace& trace, const std::string& name) {
  RawTrace out;
  out.records.assign(trace.chunk().records().begin(), trace.chunk().records().end());
  for (TraceRecord& record : out.records) {
    if (record.session().event() == SessionRecord::GPU) record.mutable_session()->set_node(name);
  }
  sort_by_time(out);
  return out;
}

TEST(Nodes, LieOnTheTimeLineOfTheOneThatIsUpForLongest) {
  const auto model =
      merge_nodes({raw(node("n1", "a", 1000), "n1"), raw(node("n2", "b", 400), "n2")});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->node, "n1, n2");
  const std::int64_t later = 600 * kSecond;
  const Gang& first = *model->gangs_of("a").at(0);
  const Gang& second = *model->gangs_of("b").at(0);
  EXPECT_EQ(first.slices.at(0).start_ns, FakeTrace::ms(10) + later);
  EXPECT_EQ(second.slices.at(0).start_ns, FakeTrace::ms(10));
  EXPECT_EQ(first.slices.at(0).length_ns(), 10'000'000) << "lengths stay";
  EXPECT_EQ(model->gaps.at(0).start_ns, FakeTrace::ms(20) + later);
  EXPECT_EQ(model->paging.at(0).record.start_ns(), static_cast<std::uint64_t>(FakeTrace::ms(8)));
  EXPECT_EQ(model->start_ns, FakeTrace::ms(0));
  EXPECT_EQ(model->end_ns, FakeTrace::ms(40) + later);
  EXPECT_EQ(model->realtime_at_0, 400 * kSecond);
  EXPECT_EQ(model->find_job("a")->end_ns, FakeTrace::ms(40) + later);
}

TEST(Nodes, GpusAndSessionsOfEachAreItsOwn) {
  const auto model =
      merge_nodes({raw(node("n1", "a", 1000), "n1"), raw(node("n2", "b", 400), "n2")});
  ASSERT_EQ(model->gpus.size(), 2u);
  EXPECT_EQ(model->gpus[0].name, "n1: Model");
  EXPECT_EQ(model->gpus[1].name, "n2: Model");
  EXPECT_EQ(model->gpus[1].index, 1u);
  EXPECT_EQ(model->gangs_of("a").at(0)->slices.at(0).gpus_mask, 1u);
  EXPECT_EQ(model->gangs_of("b").at(0)->slices.at(0).gpus_mask, 2u);
  ASSERT_EQ(model->processes.size(), 2u);
  EXPECT_NE(model->processes[0].session, model->processes[1].session);
  EXPECT_EQ(model->processes[1].end_ns, FakeTrace::ms(40));
}

TEST(Nodes, OneAloneStaysAsItIs) {
  const auto model = merge_nodes({raw(node("n1", "a", 1000), "n1")});
  EXPECT_EQ(model->gpus.at(0).name, "Model");
  EXPECT_EQ(model->gangs_of("a").at(0)->slices.at(0).start_ns, FakeTrace::ms(10));
}

TEST(Nodes, WithoutWallTimeTheyAreNotLaidSideBySide) {
  FakeTrace without;
  without.gpu(0).job("b", 1);
  const auto model = merge_nodes({raw(node("n1", "a", 1000), "n1"), raw(without, "n2")});
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("node 'n2'"));
}

TEST(Nodes, AreToldApartByTheirNames) {
  ScratchFolder folder;
  const auto write = [&](const std::string& run, const RawTrace& trace) {
    TraceChunk chunk;
    for (const TraceRecord& record : trace.records) *chunk.add_records() = record;
    folder.write(run + "/000000.plxt", encode_frame(chunk));
  };
  write("n1-1", raw(node("n1", "a", 1000), "n1"));
  write("n2-1", raw(node("n2", "b", 400), "n2"));
  write("n1-2", raw(node("n1", "c", 1000), "n1"));
  const auto nodes = read_nodes({folder.path("n1-1"), folder.path("n2-1"), folder.path("n1-2")});
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  ASSERT_EQ(nodes->size(), 2u);
  EXPECT_EQ(nodes->at(0).records.size(), 2 * nodes->at(1).records.size());
}

}  // namespace
}  // namespace plexrl::trace
