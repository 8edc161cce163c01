#include "tools/sim/workload.h"

#include <gtest/gtest.h>

#include "nodemgr/settings/cat.h"

namespace plexrl::sim {
namespace {

std::string with(const std::string& more, const std::string& job = "") {
  return R"({"schema": 1, "nodes": [{"gpus": 8, "count": 2}], )" + more +
         R"("jobs": [{"name": "a", "steps": 3, )" + job +
         R"("gangs": [{"name": "g", "gpus": 4}],
            "stages": [{"name": "s", "gangs": ["g"], "time": 10}]}]})";
}

std::string error_of(const std::string& text) {
  auto workload = parse_workload(text);
  return workload.ok() ? "" : nodemgr::message_of(workload.status());
}

TEST(Workload, ReadsWhatItSays) {
  auto workload = parse_workload(
      with(R"("seed": 9, "policy": {"max_wait_s": 300}, )", R"("count": 3, "every_s": 60, )"));
  ASSERT_TRUE(workload.ok()) << nodemgr::message_of(workload.status());
  ASSERT_EQ(workload->jobs.size(), 3u);
  EXPECT_EQ(workload->jobs[2].arrival_s, 120);
  EXPECT_EQ(workload->jobs[0].gangs[0].gpus, 4);
  EXPECT_EQ(workload->setup.nodes.size(), 2u);
  EXPECT_EQ(workload->setup.seed, 9u);
  EXPECT_EQ(workload->setup.policy.max_wait, std::chrono::seconds(300));
  EXPECT_EQ(workload->schedulers, std::vector<std::string>{"plexrl"});
}

TEST(Workload, UnknownKeyIsNamedWithTheNearest) {
  std::string error = error_of(with("", R"("stepz": 4, )"));
  EXPECT_NE(error.find("jobs[0]"), std::string::npos) << error;
  EXPECT_NE(error.find("steps"), std::string::npos) << error;
}

TEST(Workload, WrongInputIsRefusedWithItsPlace) {
  EXPECT_NE(error_of("").find("JSON"), std::string::npos);
  EXPECT_NE(error_of("[]"), "");
  EXPECT_NE(error_of("{}").find("schema"), std::string::npos);
  EXPECT_NE(error_of(R"({"schema": 2, "nodes": [], "jobs": []})").find("schema"),
            std::string::npos);
  EXPECT_NE(error_of(with("", R"("lag": -1, )")).find("lag"), std::string::npos);
  EXPECT_NE(error_of(with("", R"("arrival_s": "soon", )")).find("arrival_s"), std::string::npos);
  EXPECT_NE(error_of(with(R"("policy": {"max_wait_s": 1e300}, )")).find("policy"),
            std::string::npos);
  EXPECT_NE(error_of(with(R"("placement": {"schedulers": ["plexlr"]}, )")).find("plexrl"),
            std::string::npos);
  EXPECT_NE(error_of(std::string(100'000, '[')).find("nested"), std::string::npos);
  EXPECT_NE(error_of(R"({"schema": 1, "nodes": [], "jobs": [{"gangs": 5}]})").find("gangs"),
            std::string::npos);
}

TEST(Workload, ManyJobsInOneLineAreBounded) {
  EXPECT_NE(error_of(with("", R"("count": 1000000000, )")).find("count"), std::string::npos);
}

}  // namespace
}  // namespace plexrl::sim
