// A manager and an observer, whose part the test plays.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>

#include "tests/unit/nodemgr/manager_fixture.h"
#include "tests/unit/nodemgr/read_trace.h"

namespace plexrl::nodemgr::test {
namespace {

using nlohmann::json;

class ManagerObserverTest : public ManagerTest {
 protected:
  class Observer {
   public:
    explicit Observer(const std::string& path)
        : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      path.copy(address.sun_path, sizeof address.sun_path - 1);
      EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    }
    void say(const json& line) { say_raw(line.dump() + "\n"); }
    void say_raw(const std::string& text) {
      EXPECT_EQ(::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(text.size()));
    }
    /// The lines that have come; null at the end when the manager has hung up.
    std::vector<json> heard() {
      char buffer[4096];
      ssize_t got = 0;
      std::vector<json> lines;
      while ((got = ::recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT)) > 0) {
        in_.append(buffer, static_cast<std::size_t>(got));
      }
      // What it had not read when it hung up makes that a reset.
      const bool has_gone = got == 0 || errno == ECONNRESET;
      for (std::size_t end; (end = in_.find('\n')) != std::string::npos; in_.erase(0, end + 1)) {
        lines.push_back(json::parse(in_.substr(0, end)));
      }
      if (has_gone) lines.emplace_back(nullptr);
      return lines;
    }

   private:
    ScopedFd socket_;
    std::string in_;
  };

  Observer connect() {
    Observer observer(folder_ + "/observer.sock");
    pump();
    EXPECT_EQ(observer.heard(), std::vector<json>{json({{"welcome", {{"version", 1}}}})});
    observer.say({{"hello", {{"version", 1}, {"lacks", json::array()}}}});
    pump();
    return observer;
  }
  void be_busy(FakeProcess& process) {
    wire::Activity activity{};
    activity.count = 1;
    activity.first_is_busy = 1;
    activity.at_ns[0] = static_cast<std::uint64_t>(boot_now().count());
    process.peer.send(Type::kActivity, activity, 0);
    pump();
  }
  static json causes(std::uint64_t gap, bool is_final) {
    return {{"causes",
             {{"gap", gap},
              {"final", is_final},
              {"causes",
               {{{"cause", "network"}, {"detail", "10.0.0.3:80"}, {"time_ns", 900}},
                {{"cause", "cpu"}, {"detail", "python"}, {"time_ns", 100}}}}}}};
  }
  json job() { return admin("jobs")["jobs"].at(0); }
  json observer_told() { return tell({{"verb", "status"}})["manager"]["observer"]; }
  std::vector<trace::GapRecord> gaps() {
    const std::string folder = manager_->node().trace->run_folder();
    manager_->node().trace->flush();
    std::vector<trace::GapRecord> found;
    for (const auto& record : read_trace(bytes_of(folder + "/000000.plxt")).records) {
      if (record.has_gap()) found.push_back(record.gap());
    }
    return found;
  }
};

TEST_F(ManagerObserverTest, IsToldOfGapsAndTheirCausesAreShownAndTraced) {
  const FakeJob job_a = admit(200 * kMiB, "a");
  FakeProcess process = join_with(job_a, {0}, 100 * kMiB);
  run(process);
  EXPECT_TRUE(observer_told().is_null());
  Observer observer = connect();
  EXPECT_TRUE(observer_told().is_object());
  be_busy(process);
  report_idle(process);
  EXPECT_EQ(observer.heard(),
            std::vector<json>{json({{"begin", {{"gap", 1}, {"pids", {process.peer.pid()}}}}})});
  EXPECT_TRUE(job()["gap_cause"].is_null());
  observer.say(causes(1, false));
  pump();
  EXPECT_EQ(job()["gap_cause"], "network");
  EXPECT_EQ(job()["gap_causes"][0]["detail"], "10.0.0.3:80");
  EXPECT_EQ(job()["gap_causes"][1]["cause"], "cpu");
  be_busy(process);
  EXPECT_EQ(observer.heard(), std::vector<json>{json({{"end", {{"gap", 1}}}})});
  EXPECT_TRUE(job()["gap_cause"].is_null()) << "it is in no gap any more";
  EXPECT_TRUE(gaps().empty()) << "its causes are to come";
  observer.say(causes(1, true));
  pump();
  ASSERT_EQ(gaps().size(), 1u);
  EXPECT_EQ(gaps()[0].cause(), "network");
  ASSERT_EQ(gaps()[0].causes_size(), 2);
  EXPECT_EQ(gaps()[0].causes(0).detail(), "10.0.0.3:80");
  EXPECT_EQ(gaps()[0].causes(0).time_ns(), 900u);
}

TEST_F(ManagerObserverTest, WhoHasAGpuOpenWithoutPlexrlIsNamed) {
  const FakeJob job_a = admit(200 * kMiB, "a");
  FakeProcess process = join_with(job_a, {0}, 100 * kMiB);
  const auto opener = [](std::int64_t pid, std::vector<std::string> files, bool preloaded = false) {
    return json{{"pid", pid},
                {"uid", 0},
                {"command", "stranger"},
                {"files", std::move(files)},
                {"preloaded", preloaded}};
  };
  const auto bypass = [&] { return admin("gpus")["gpus"][0]["bypass"]; };
  {
    Observer observer = connect();
    observer.say(
        {{"openers",
          {opener(3000001, {"nvidia-uvm", "nvidia0", "nvidiactl"}),
           opener(3000002, {"nvidia0", "nvidiactl"}), opener(3000003, {"nvidia-uvm", "nvidia1"}),
           opener(3000004, {"nvidia-uvm", "nvidia0"}, true),
           opener(process.peer.pid(), {"nvidia-uvm", "nvidia0"})}}});
    pump();
    ASSERT_EQ(bypass().size(), 1u) << bypass();
    EXPECT_EQ(bypass()[0]["pid"], 3000001);
    EXPECT_EQ(bypass()[0]["command"], "stranger");
    EXPECT_EQ(bypass()[0]["has_opened"], true);
    EXPECT_EQ(bypass()[0]["has_memory"], false);
    EXPECT_EQ(admin("gpus")["gpus"][0]["bypass_pids"], json::array({3000001}));
    observer.say({{"openers", json::array()}});
    pump();
    EXPECT_EQ(bypass(), json::array());
    observer.say({{"openers", {opener(3000001, {"nvidia-uvm", "nvidia0"})}}});
    pump();
    EXPECT_EQ(bypass().size(), 1u);
  }
  pump();
  EXPECT_EQ(bypass(), json::array()) << "nobody tells it any more";
}

TEST_F(ManagerObserverTest, WhoComesLateIsToldOfTheGapsThatAreOpen) {
  const FakeJob job_a = admit(200 * kMiB, "a");
  FakeProcess process = join_with(job_a, {0}, 100 * kMiB);
  run(process);
  be_busy(process);
  report_idle(process);
  Observer observer = connect();
  EXPECT_EQ(observer.heard(),
            std::vector<json>{json({{"begin", {{"gap", 1}, {"pids", {process.peer.pid()}}}}})});
}

TEST_F(ManagerObserverTest, OneThatGoesLeavesGapsWithoutCauses) {
  const FakeJob job_a = admit(200 * kMiB, "a");
  FakeProcess process = join_with(job_a, {0}, 100 * kMiB);
  run(process);
  {
    const Observer observer = connect();
    be_busy(process);
    report_idle(process);
    be_busy(process);
    EXPECT_TRUE(gaps().empty());
  }
  pump();
  EXPECT_TRUE(observer_told().is_null());
  ASSERT_EQ(gaps().size(), 1u);
  EXPECT_EQ(gaps()[0].cause(), "");
  report_idle(process);
  be_busy(process);
  EXPECT_EQ(gaps().size(), 2u) << "nobody is waited for";
}

TEST_F(ManagerObserverTest, NonsenseEndsTheConnectionAndNothingElse) {
  for (const char* line : {"{\n", "{\"causes\":7}\n", "{\"hello\":{\"version\":99}}\n"}) {
    Observer observer = connect();
    observer.say_raw(line);
    pump();
    EXPECT_EQ(observer.heard(), std::vector<json>{json(nullptr)}) << line;
  }
  Observer endless(folder_ + "/observer.sock");
  pump();
  endless.say_raw(std::string(70'000, 'x'));
  pump();
  EXPECT_TRUE(endless.heard().back().is_null());
  EXPECT_TRUE(tell({{"verb", "status"}}).contains("manager"));
}

TEST_F(ManagerObserverTest, ASecondOneIsTurnedAway) {
  Observer first = connect();
  Observer second(folder_ + "/observer.sock");
  pump();
  EXPECT_EQ(second.heard(), std::vector<json>{json(nullptr)});
  EXPECT_TRUE(observer_told().is_object());
}

TEST_F(ManagerObserverTest, CausesOfAGapThatIsUnknownAreForgotten) {
  Observer observer = connect();
  observer.say(causes(99, true));
  pump();
  EXPECT_TRUE(observer_told().is_object());
  EXPECT_TRUE(gaps().empty());
}

}  // namespace
}  // namespace plexrl::nodemgr::test
