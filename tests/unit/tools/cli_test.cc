#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <map>
#include <stdexcept>

#include "tools/cli/exit_status.h"
#include "tools/cli/format.h"
#include "tools/cli/job_match.h"
#include "tools/cli/nearest.h"
#include "tools/cli/socket_path.h"
#include "tools/cli/table.h"
#include "tools/ctl/admin_client.h"
#include "tools/ctl/answer.h"
#include "tools/ctl/verbs.h"

namespace plexrl::cli {
namespace {

using ::testing::HasSubstr;

Env env_of(const std::map<std::string, std::string>& variables) {
  return [variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(GuardedMain, AnExceptionIsAFailureAndNoCrash) {
  const auto throws = [](int, char**) -> int { throw std::runtime_error("no memory"); };
  EXPECT_EQ(guarded_main("tool", throws, 0, nullptr), kFailed);
  const auto counts = [](int argc, char**) { return argc; };
  EXPECT_EQ(guarded_main("tool", counts, 2, nullptr), kUsage);
}

TEST(Format, HasThreeDigitsAndAUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(1 << 30), "1 GiB");
  EXPECT_EQ(format_ns(1'500'000), "1.50 ms");
  EXPECT_EQ(format_ns(125e9), "2m05s");
  EXPECT_EQ(format_ns(3 * 3600e9 + 7 * 60e9), "3h07m");
  EXPECT_EQ(format_ratio(0.4213), "42.1 %");
  EXPECT_EQ(format_rfc3339(-1), "1969-12-31T23:59:59.999999999Z");
}

TEST(Format, AFiguresUnitIsTheEndOfItsName) {
  const auto shown = [](const char* name, double value) {
    const auto [words, text] = format_figure(name, value);
    return words + ": " + text;
  };
  EXPECT_EQ(shown("switch_cost_ns", 55e6), "switch cost: 55.0 ms");
  EXPECT_EQ(shown("wall_s", 1.5), "wall: 1.50 s");
  EXPECT_EQ(shown("short_bytes", 1536), "short: 1.50 KiB");
  EXPECT_EQ(shown("bytes", 1 << 30), "bytes: 1 GiB");
  EXPECT_EQ(shown("duty_ratio", 0.4213), "duty: 42.1 %");
  EXPECT_EQ(shown("slowdown_ratio", 1.567), "slowdown: 1.57x");
  EXPECT_EQ(shown("gaps_known", 12), "gaps known: 12");
}

TEST(Table, AlignsAndMarksWhatIsAbsent) {
  Table table({{"NAME"}, {"N", Table::Align::kRight}});
  table.add_row({"a", "10"});
  table.add_row({"long", ""});
  EXPECT_EQ(table.str(), "NAME   N\na     10\nlong   -\n");
}

TEST(Table, ControlCharactersOfNamesDontReachTheTerminal) {
  Table table({{"NAME"}});
  table.add_row({"a\x1b[2Jb"});
  EXPECT_EQ(table.str(), "NAME\na?[2Jb\n");
}

TEST(DidYouMean, NamesANearWordOnly) {
  const std::vector<std::string> known = {"status", "jobs", "gpus"};
  EXPECT_EQ(did_you_mean("statsu", known), " (did you mean status?)");
  EXPECT_EQ(did_you_mean("xyzzy", known), "");
}

TEST(SocketPaths, TheUsersChoiceIsTheOnlyOne) {
  const auto paths = socket_paths(env_of({{"PLEXRL_SOCKET", "/x/s"}}), "name=a");
  ASSERT_EQ(paths.size(), 1u);
  EXPECT_EQ(paths[0].path, "/x/s");
  EXPECT_EQ(admin_socket_path("/x/s"), "/x/admin.sock");
}

TEST(SocketPaths, TheSystemsComesBeforeTheUsers) {
  const auto paths = socket_paths(env_of({{"XDG_RUNTIME_DIR", "/run/user/7"}}), std::nullopt);
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_EQ(paths[0].path, "/run/plexrl/nodemgr.sock");
  EXPECT_TRUE(paths[0].is_system);
  EXPECT_EQ(paths[1].path, "/run/user/7/plexrl/nodemgr.sock");
}

TEST(SocketPaths, SimulatedGpusOfEachNameHaveAFolder) {
  const Env env = env_of({{"XDG_RUNTIME_DIR", "/r"}, {"XDG_STATE_HOME", "/s"}});
  EXPECT_EQ(socket_paths(env, "gpus=2,name=a b").at(0).path, "/r/plexrl/simgpu-a/nodemgr.sock");
  EXPECT_EQ(socket_paths(env, "name=../x").at(0).path, "/r/plexrl/simgpu-.._x/nodemgr.sock");
  EXPECT_EQ(socket_paths(env, "").at(0).path, "/r/plexrl/simgpu-default/nodemgr.sock");
  EXPECT_EQ(state_folder(env, "name=a"), "/s/plexrl/simgpu-a");
}

TEST(SocketPaths, ARelativeFolderCountsAsUnset) {
  const Env env = env_of({{"XDG_RUNTIME_DIR", "r"}, {"XDG_STATE_HOME", "s"}, {"HOME", "/h"}});
  const std::string own = "/tmp/plexrl-" + std::to_string(getuid());
  EXPECT_EQ(user_socket_folder(env), own);
  EXPECT_EQ(socket_paths(env, "").at(0).path, own + "/simgpu-default/nodemgr.sock");
  EXPECT_EQ(state_folder(env, std::nullopt),
            getuid() == 0 ? "/var/lib/plexrl" : "/h/.local/state/plexrl");
}

const std::vector<NamedJob> kJobs = {{"aa11", "ppo"}, {"aa22", "eval"}, {"bb33", "eval"}};

TEST(Ask, AManagerThatIsSilentIsNotWaitedForForever) {
  char folder[] = "/tmp/plexrl-ask-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  sockaddr_un address{.sun_family = AF_UNIX};
  const std::string path = std::string(folder) + "/admin.sock";
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(fd, 1), 0);  // connected, and never read
  const auto answer = ctl::ask({path}, {{"verb", "status"}}, std::chrono::seconds(1));
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("does not answer"));
  close(fd);
  unlink(path.c_str());
  rmdir(folder);
}

TEST(FindJob, TakesAnIdAUniquePrefixOrAName) {
  EXPECT_EQ(*find_job(kJobs, "aa22"), "aa22");
  EXPECT_EQ(*find_job(kJobs, "b"), "bb33");
  EXPECT_EQ(*find_job(kJobs, "ppo"), "aa11");
}

TEST(FindJob, SaysWhichJobsFit) {
  EXPECT_THAT(std::string(find_job(kJobs, "eval").status().message()), HasSubstr("aa22 bb33"));
  EXPECT_THAT(std::string(find_job(kJobs, "aa").status().message()), HasSubstr("fits 2 jobs"));
  EXPECT_THAT(std::string(find_job(kJobs, "pppo").status().message()),
              HasSubstr("did you mean ppo?"));
}

}  // namespace
}  // namespace plexrl::cli

namespace plexrl::ctl {
namespace {

using ::testing::HasSubstr;

const Json kJobs = Json::parse(R"([
  {"id": "aa11", "name": "ppo", "state": "running", "hbm_bytes": 1073741824, "share_ratio": 0.5,
   "gangs": [{"id": "1", "gpus": [0, 1], "waits_for": "job 'eval': holder drains"}]},
  {"id": "aa22", "name": "eval"}, {"id": "bb33", "name": "eval"}])");

TEST(Tables, ShowWhatIsThereAndLeaveTheRestEmpty) {
  const std::string table = jobs_table(kJobs);
  EXPECT_THAT(table, HasSubstr("1 GiB"));
  EXPECT_THAT(table, HasSubstr("50.0 %"));
  EXPECT_THAT(table, HasSubstr("waits: job 'eval': holder drains"));
  EXPECT_EQ(show_gpus(Json::parse(R"({"node": "n", "simulated": true, "gpus": []})")),
            "node n (simulated GPU)\nno GPUs\n");
}

TEST(Tables, AGpuNamesItsHolderAndQueue) {
  // As the manager answers: a job's id, and a list of them.
  const ctl::Json answer = {
      {"node", "n"},
      {"gpus",
       {{{"index", 0}, {"holder", "0123456789abcdef"}, {"queue", {"fedcba9876543210", "aa"}}}}}};
  EXPECT_THAT(ctl::show_gpus(answer), HasSubstr("01234567  fedcba98 aa"));
}

TEST(Tables, AnAnswerOfAnotherShapeDoesNoHarm) {
  const Json odd = Json::parse(R"({"node": 5, "jobs": {"a": 1}, "memory": [3, {"pid": "x"}]})");
  EXPECT_THAT(show_jobs(odd), HasSubstr("no jobs"));
  EXPECT_THAT(show_memory(odd), HasSubstr("JOB"));
}

TEST(Status, ShowsFiguresItDoesNotKnow) {
  const Json answer = Json::parse(
      R"({"schema": 1, "node": "n", "spare_bytes": 2147483648, "notes": ["a", "b"], "uptime_s": 1.5})");
  EXPECT_EQ(show_status(answer), "node n\nspare: 2 GiB\nnotes: a\nnotes: b\nuptime: 1.50 s\n");
}

}  // namespace
}  // namespace plexrl::ctl
