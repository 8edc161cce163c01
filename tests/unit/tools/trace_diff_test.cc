#include <gtest/gtest.h>

#include <map>

#include "tests/unit/tools/fake_trace.h"
#include "tools/trace/diff.h"

namespace plexrl::trace {
namespace {

FakeTrace run_of(const std::string& id, std::int64_t busy_ms) {
  FakeTrace trace;
  trace.gpu(0).job(id, 0).lease(id, 1, "running", 0, 1, 1).gap(id, 1, busy_ms, 100, "");
  trace.lease(id, 1, "gone", 100).job_end(id, 100);
  return trace;
}

void name_it(FakeTrace& trace, const std::string& id, const std::string& name, std::int64_t at) {
  trace.job(id, at);
  SessionRecord* session = trace.add(at)->mutable_session();
  session->set_event(SessionRecord::JOB_ADMITTED);
  session->set_job_id(id);
  session->set_job_name(name);
}

TEST(Diff, PairsJobsByNameInTheOrderInWhichTheyBegan) {
  FakeTrace a, b;
  name_it(a, "1", "ppo", 0);
  name_it(a, "2", "ppo", 5);
  name_it(b, "3", "ppo", 0);
  name_it(b, "4", "sft", 5);
  const Summary first = summarize(a.model()), second = summarize(b.model());
  const auto pairs = pair_jobs(first, second);
  ASSERT_EQ(pairs.size(), 3u);
  EXPECT_EQ(pairs[0].a->id, "1");
  EXPECT_EQ(pairs[0].b->id, "3");
  EXPECT_EQ(pairs[1].a->id, "2");
  EXPECT_EQ(pairs[1].b, nullptr);
  EXPECT_EQ(pairs[2].a, nullptr);
  EXPECT_EQ(pairs[2].b->id, "4");
}

TEST(Diff, HasTheFiguresOfBothSummaries) {
  const Json diff = diff_json(run_of("a", 25).model(), run_of("a", 75).model());
  EXPECT_TRUE(diff["simulated"]);
  const Json& job = diff["diff"]["jobs"][0];
  EXPECT_EQ(job["a"]["busy_s"], 0.025);
  EXPECT_EQ(job["b"]["busy_s"], 0.075);
  EXPECT_EQ(diff["diff"]["gpus"][0]["a"]["duty_ratio"], 0.25);
  EXPECT_EQ(diff["diff"]["gpus"][0]["b"]["duty_ratio"], 0.75);
}

TEST(Diff, TheFiguresOfTheTableAreThoseOfTheSummary) {
  const Model model = run_of("a", 25).model();
  JobSummary job = summarize(model).jobs.at(0);
  job.out_bytes = 7;
  job.saved.untouched_bytes = 2;
  job.saved.shared_bytes = 3;
  const Json all = job_json(job);
  std::map<std::string, double> figures;
  for (const JobFigure& figure : job_figures(&job)) figures[figure.key] = figure.value;
  EXPECT_EQ(figures.at("wall_s"), all["wall_s"]);
  EXPECT_EQ(figures.at("busy_s"), 0.025);
  EXPECT_EQ(figures.at("duty_ratio"), all["duty_ratio"]);
  EXPECT_EQ(figures.at("out_bytes"), 7);
  EXPECT_EQ(figures.at("saved_bytes"), 5);
  const std::vector<JobFigure> none = job_figures(nullptr);
  EXPECT_EQ(none.size(), figures.size());
  for (const JobFigure& figure : none) EXPECT_EQ(figure.value, 0) << figure.key;
}

}  // namespace
}  // namespace plexrl::trace
