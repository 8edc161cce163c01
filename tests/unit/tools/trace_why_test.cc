#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tools/fake_trace.h"
#include "tools/trace/why.h"

namespace plexrl::trace {
namespace {

using ::testing::HasSubstr;

void decide(FakeTrace& trace, const std::string& job, std::uint64_t gang, std::int64_t at,
            const std::string& kind, const std::string& reason, double figure) {
  DecisionRecord* decision = trace.add(at)->mutable_decision();
  decision->set_kind(kind);
  decision->set_job_id(job);
  decision->set_gang(gang);
  decision->set_gpus_mask(1);
  decision->set_reason(reason);
  Figure* added = decision->add_figures();
  added->set_name("switch_cost_ns");
  added->set_value(figure);
}

// a runs from 0 to 50 ms while b waits from 20 ms; then b runs.
FakeTrace two_jobs() {
  FakeTrace trace;
  trace.gpu(0).job("a", 0).job("b", 10);
  decide(trace, "a", 1, 0, "run", "free", 1);
  trace.lease("a", 1, "running", 0, 1, 1);
  trace.lease("b", 2, "waiting", 20, 1);
  decide(trace, "b", 2, 21, "wait", "holder busy", 5e6);
  decide(trace, "b", 2, 50, "grant", "turn", 6e6);
  trace.lease("a", 1, "idle", 50, 1).lease("b", 2, "running", 50, 1, 2);
  trace.lease("b", 2, "gone", 90).job_end("b", 90).lease("a", 1, "gone", 100).job_end("a", 100);
  return trace;
}

TEST(Why, NamesTheDecisionsBeforeAndAfterAndTheHolder) {
  const Model model = two_jobs().model();
  const auto why = explain(model, "job-b@30ms");
  ASSERT_TRUE(why.ok()) << why.status();
  ASSERT_EQ(why->gangs.size(), 1u);
  const GangThen& then = why->gangs[0];
  EXPECT_EQ(then.slice->state, "waiting");
  EXPECT_EQ(then.last->record.reason(), "holder busy");
  EXPECT_EQ(then.next->record.kind(), "grant");
  ASSERT_EQ(then.holders.size(), 1u);
  EXPECT_EQ(then.holders[0].gang->job_id, "a");
  EXPECT_EQ(then.holders[0].decision->record.kind(), "run");
  const Json json = why_json(model, *why);
  EXPECT_EQ(json["why"]["gangs"][0]["last_decision"]["figures"]["switch_cost_ns"], 5e6);
  EXPECT_EQ(json["why"]["gangs"][0]["holders"][0]["name"], "job-a");
}

TEST(Why, BeforeAnythingWasDecidedThereIsNoDecision) {
  const auto why = explain(two_jobs().model(), "b@15ms");
  ASSERT_TRUE(why.ok()) << why.status();
  EXPECT_EQ(why->gangs[0].slice, nullptr);
  EXPECT_EQ(why->gangs[0].last, nullptr);
}

TEST(Why, OfSeveralJobsOfANameTheOneThatExistedThenIsMeant) {
  FakeTrace trace;
  trace.gpu(0).job("a1", 0).lease("a1", 1, "running", 0).job_end("a1", 40);
  trace.job("a2", 60).lease("a2", 2, "running", 60).job_end("a2", 100);
  const Model model = trace.model();
  EXPECT_EQ(explain(model, "a@20ms")->job->id, "a1");
  EXPECT_EQ(explain(model, "a@80ms")->job->id, "a2");
  EXPECT_THAT(std::string(explain(model, "a@50ms").status().message()), HasSubstr("fits 2 jobs"));
}

TEST(Why, SaysWhatIsWrongWithTheWord) {
  const Model model = two_jobs().model();
  for (const char* word : {"a", "@1s", "a@", "a@soon"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(explain(model, word).status())) << word;
  }
  EXPECT_TRUE(absl::IsNotFound(explain(model, "c@1ms").status()));
  EXPECT_TRUE(absl::IsOutOfRange(explain(model, "a@1h").status()));
}

}  // namespace
}  // namespace plexrl::trace
