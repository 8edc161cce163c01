#include "tools/exporter/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

namespace plexrl::exporter {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

std::string page_of(const Json& status) {
  return prometheus::TextSerializer().Serialize(families_of(status));
}

const Json kStatus = Json::parse(R"({
  "schema": 1, "simulated": true, "node": "a1",
  "manager": {"generation": 3, "uptime_s": 12.5, "draining": false, "journal_ok": true, "trace_lost_records": 2,
              "host_budget_bytes": 4000, "host_promised_bytes": 3000, "host_used_bytes": 1000, "grants": 7,
              "disk_budget_bytes": 500, "disk_used_bytes": 20, "observer": null},
  "gpus": [{"uuid": "GPU-1", "index": 0, "total_bytes": 900, "budget_bytes": 800, "used_by_plexrl_bytes": 500,
            "used_by_others_bytes": 10, "holder": "aa", "queue": ["bb", "cc"], "duty_ratio": 0.5, "out_bytes": 64,
            "in_bytes": 32, "bypass_pids": null}],
  "jobs": [{"id": "aa", "name": "p\"p\no", "user": "ann", "team": null, "state": "running", "promised_bytes": 700,
            "hbm_bytes": 600, "host_bytes": 50, "disk_bytes": 0, "unpageable_bytes": 5, "share_ratio": 0.75,
            "slowdown_ratio": null, "wait_s": 1.5}]
})");

TEST(Families, EveryFigureSaysOfWhichNodeItIsAndThatItIsSimulated) {
  const std::string page = page_of(kStatus);
  EXPECT_THAT(page, HasSubstr("plexrl_manager_generation{node=\"a1\",simulated=\"true\"} 3\n"));
  EXPECT_THAT(page,
              HasSubstr("plexrl_host_bytes{node=\"a1\",simulated=\"true\",kind=\"used\"} 1000\n"));
  for (const auto& family : families_of(kStatus)) {
    for (const auto& metric : family.metric) {
      ASSERT_GE(metric.label.size(), 2u) << family.name;
      EXPECT_EQ(metric.label[1].value, "true") << family.name;
    }
  }
  Json real = kStatus;
  real["simulated"] = false;
  EXPECT_THAT(page_of(real), Not(HasSubstr("simulated=\"true\"")));
}

TEST(Families, AGpuShowsItsMemoryHolderAndQueue) {
  const std::string page = page_of(kStatus);
  const std::string gpu = "node=\"a1\",simulated=\"true\",gpu=\"0\",uuid=\"GPU-1\"";
  EXPECT_THAT(page, HasSubstr("plexrl_gpu_memory_bytes{" + gpu + ",kind=\"jobs\"} 500\n"));
  EXPECT_THAT(page, HasSubstr("plexrl_gpu_held{" + gpu + "} 1\n"));
  EXPECT_THAT(page, HasSubstr("plexrl_gpu_waiting_gangs{" + gpu + "} 2\n"));
  EXPECT_THAT(page, HasSubstr("# TYPE plexrl_gpu_moved_bytes_total counter\n"));
  EXPECT_THAT(page, HasSubstr("plexrl_gpu_moved_bytes_total{" + gpu + ",direction=\"out\"} 64\n"));
  EXPECT_THAT(page, Not(HasSubstr("plexrl_gpu_bypass_processes{"))) << "not known";
  Json free = kStatus;
  free["gpus"][0]["holder"] = nullptr;
  EXPECT_THAT(page_of(free), HasSubstr("plexrl_gpu_held{" + gpu + "} 0\n"));
}

TEST(Families, AJobShowsWhatIsKnownOfIt) {
  const std::string page = page_of(kStatus);
  EXPECT_THAT(page, HasSubstr("name=\"p\\\"p\\no\",user=\"ann\",team=\"\",tier=\"host\"} 50\n"));
  EXPECT_THAT(page, HasSubstr("state=\"running\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("plexrl_jobs{node=\"a1\",simulated=\"true\",state=\"queued\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("plexrl_jobs{node=\"a1\",simulated=\"true\",state=\"running\"} 1\n"));
  EXPECT_THAT(page, Not(HasSubstr("plexrl_job_slowdown_ratio{"))) << "null is no figure";
}

TEST(Families, CausesOfGapsAreCountedOverJobs) {
  const std::string node = "node=\"a1\",simulated=\"true\"";
  EXPECT_THAT(page_of(kStatus), HasSubstr("plexrl_observer_connected{" + node + "} 0\n"));
  EXPECT_THAT(page_of(kStatus),
              HasSubstr("plexrl_jobs_in_gap{" + node + ",cause=\"network\"} 0\n"));
  Json observed = kStatus;
  observed["manager"]["observer"] = {{"pid", 7}, {"lacks", Json::array()}};
  observed["jobs"][0]["gap_cause"] = "network";
  EXPECT_THAT(page_of(observed), HasSubstr("plexrl_observer_connected{" + node + "} 1\n"));
  EXPECT_THAT(page_of(observed),
              HasSubstr("plexrl_jobs_in_gap{" + node + ",cause=\"network\"} 1\n"));
  EXPECT_THAT(page_of(observed), HasSubstr("plexrl_disk_bytes{" + node + ",kind=\"used\"} 20\n"));
}

TEST(Families, AnAnswerThatLacksAllIsNoError) {
  EXPECT_THAT(page_of(Json::object()), HasSubstr("plexrl_jobs"));
  EXPECT_THAT(page_of(Json::parse(R"({"gpus":[{}],"jobs":[{}],"manager":3})")),
              HasSubstr("plexrl_gpu_held"));
  EXPECT_EQ(up_family(false).metric.at(0).gauge.value, 0);
}

}  // namespace
}  // namespace plexrl::exporter
