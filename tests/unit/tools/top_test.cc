#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tools/cli/table.h"
#include "tools/top/keys.h"

namespace plexrl::top {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const Json kStatus = Json::parse(R"({
  "schema": 1, "simulated": true, "node": "n1",
  "manager": {"uptime_s": 90, "host_used_bytes": 1073741824, "host_budget_bytes": 8589934592},
  "gpus": [{"index": 0, "total_bytes": 1000, "used_by_plexrl_bytes": 750, "used_by_others_bytes": 250,
            "holder": "aa11", "queue": ["bb22"], "duty_ratio": 0.5, "out_bytes_s": 2048, "in_bytes_s": 0}],
  "jobs": [
    {"id": "aa11", "name": "ppo", "user": "ann", "priority": 50, "state": "running", "hbm_bytes": 500, "share_ratio": 0.75,
     "slowdown_ratio": 1.25, "wait_s": 1, "paused": false, "gangs": [{"id": "1", "state": "running", "gpus": [0]}]},
    {"id": "bb22", "name": "grpo", "user": "bob", "priority": 20, "state": "waiting", "hbm_bytes": 250, "share_ratio": 0.25,
     "slowdown_ratio": 3.5, "wait_s": 9, "paused": true,
     "gangs": [{"id": "2", "state": "waiting", "gpus": [0], "waits_for": "job 'ppo': holder busy"},
               {"id": "3", "state": "idle", "gpus": [1]}]}]})");
const Json kMemory = Json::parse(R"({"memory": [
  {"job": "aa11", "gpu": 0, "bytes": 500, "tier": "hbm"}, {"job": "bb22", "gpu": 0, "bytes": 250, "tier": "hbm"},
  {"job": "bb22", "gpu": 0, "bytes": 900, "tier": "host"}, {"job": "bb22", "gpu": 1, "bytes": 900, "tier": "hbm"}]})");

std::vector<std::string> texts(const std::vector<Line>& lines) {
  std::vector<std::string> texts;
  for (const Line& line : lines) {
    std::string& text = texts.emplace_back();
    for (const Span& span : line) text += span.text;
  }
  return texts;
}

std::string all_of(const std::vector<Line>& lines) {
  std::string all;
  for (const std::string& text : texts(lines)) all += text + "\n";
  return all;
}

std::vector<std::string> names(const View& view) {
  std::vector<std::string> names;
  for (const Json& job : jobs_shown(kStatus, view)) names.push_back(job["name"]);
  return names;
}

// The name of the job whose line is marked.
std::string marked(const std::vector<Line>& lines) {
  for (const Line& line : lines) {
    if (line.empty() || line[0].look != Look::kChosen) continue;
    for (const char* name : {"grpo", "ppo"}) {
      if (texts({line})[0].find(name) != std::string::npos) return name;
    }
  }
  return "";
}

TEST(Board, ShowsWhoHasAGpuWhoseMemoryIsThereAndWhoWaits) {
  const std::string shown = all_of(draw(kStatus, kMemory, {}, {.rows = 24, .columns = 160}));
  EXPECT_THAT(shown, HasSubstr("node n1 (simulated GPU)"));
  EXPECT_THAT(shown, HasSubstr("[||||||||||          ] 50.0 %"));
  EXPECT_THAT(shown, HasSubstr("[aaaaaaaaaabbbbb*****]"));
  EXPECT_THAT(shown, HasSubstr("2 KiB/s"));
  EXPECT_THAT(shown, HasSubstr("job 'ppo': holder busy"));
  EXPECT_THAT(shown, HasSubstr("gang 3"));
}

TEST(Board, ShowsWhatIsOnDiskWhereThereIsADiskTier) {
  EXPECT_THAT(all_of(draw(kStatus, kMemory, {}, {.rows = 24, .columns = 160})),
              Not(HasSubstr("DISK")));
  Json status = kStatus;
  status["manager"]["disk_dir"] = "/spill";
  status["manager"]["disk_used_bytes"] = 7340032;
  status["manager"]["disk_budget_bytes"] = 8388608;
  status["jobs"][1]["disk_bytes"] = 7340032;
  const std::string shown = all_of(draw(status, kMemory, {}, {.rows = 24, .columns = 160}));
  EXPECT_THAT(shown, HasSubstr("HOST  "));
  EXPECT_THAT(shown, HasSubstr(" DISK  "));
  EXPECT_THAT(shown, HasSubstr("disk 7 MiB of 8 MiB"));
  EXPECT_THAT(shown, HasSubstr("  7 MiB  "));
  EXPECT_THAT(shown, HasSubstr("gang 3")) << "which has no figure there";
  EXPECT_THAT(all_of(draw(status, kMemory, {}, {.rows = 24, .columns = 80})), HasSubstr("WHY"));
}

TEST(Board, FitsEveryTerminal) {
  for (const Size size : {Size{24, 80}, Size{10, 40}, Size{3, 20}, Size{1, 1}, Size{60, 200}}) {
    for (const bool shows_help : {false, true}) {
      const auto lines = draw(kStatus, kMemory, {.shows_help = shows_help}, size);
      EXPECT_LE(lines.size(), static_cast<std::size_t>(size.rows));
      for (const std::string& text : texts(lines)) {
        EXPECT_LE(cli::display_width(text), static_cast<std::size_t>(size.columns)) << text;
      }
    }
  }
}

TEST(Board, EightyColumnsHaveWhatMattersMost) {
  const std::string shown = all_of(draw(kStatus, kMemory, {}, {.rows = 24, .columns = 80}));
  for (const char* title :
       {"DUTY", "MEMORY", "HOLDER", "QUEUE", "JOB", "STATE", "HBM", "SHARE", "SLOW", "WHY"}) {
    EXPECT_THAT(shown, HasSubstr(title));
  }
  EXPECT_THAT(shown, HasSubstr("? help"));
  EXPECT_THAT(shown, Not(HasSubstr("USER")));
}

TEST(Board, TheMarkedJobIsOnTheScreenHoweverManyThereAre) {
  Json status = kStatus;
  for (int i = 0; i < 500; ++i) {
    status["jobs"].push_back({{"id", absl::StrCat("x", i)}, {"name", absl::StrCat("job", i)}});
  }
  const std::string shown =
      all_of(draw(status, kMemory, {.chosen = "x321"}, {.rows = 24, .columns = 80}));
  EXPECT_THAT(shown, HasSubstr("job321"));
  EXPECT_THAT(shown, HasSubstr("502 jobs"));
}

TEST(Board, ControlCharactersOfANameDoNotReachTheTerminal) {
  Json status = kStatus;
  status["jobs"][0]["name"] = "a\x1b[2Jb";
  status["node"] = "n\x1b]0;x";
  EXPECT_THAT(all_of(draw(status, kMemory, {}, {.rows = 24, .columns = 80})),
              Not(HasSubstr("\x1b")));
  EXPECT_THAT(draw_once(status, kMemory, {}), Not(HasSubstr("\x1b")));
}

TEST(Board, AnAnswerWithoutKeysIsDrawnToo) {
  EXPECT_THAT(all_of(draw(Json::object(), Json::object(), {}, {.rows = 24, .columns = 80})),
              HasSubstr("0 jobs"));
}

TEST(Jobs, AreSortedLargestFirstAndTextsByName) {
  EXPECT_THAT(names({}), ElementsAre("ppo", "grpo"));
  EXPECT_THAT(names({.order = Order::kName}), ElementsAre("grpo", "ppo"));
  EXPECT_THAT(names({.order = Order::kSlowdown}), ElementsAre("grpo", "ppo"));
  EXPECT_THAT(names({.order = Order::kHbm}), ElementsAre("ppo", "grpo"));
  EXPECT_THAT(names({.order = Order::kHbm, .is_reversed = true}), ElementsAre("grpo", "ppo"));
  for (const std::string& name : order_names()) EXPECT_EQ(order_name(order_named(name)), name);
}

TEST(Jobs, AreFilteredByNameUserAndState) {
  EXPECT_THAT(names({.filter = "bob"}), ElementsAre("grpo"));
  EXPECT_THAT(names({.filter = "running"}), ElementsAre("ppo"));
  EXPECT_THAT(names({.filter = "nobody"}), ElementsAre());
}

class KeyPresses : public ::testing::Test {
 protected:
  Wish type(const std::string& text) {
    Wish last;
    for (const char key : text) last = keys.press(key, kStatus, view);
    return last;
  }
  std::string marked_name() {
    return marked(draw(kStatus, kMemory, view, {.rows = 24, .columns = 80}));
  }

  Keys keys;
  View view;
};

TEST_F(KeyPresses, ArrowsMarkAJobAndStayOnIt) {
  EXPECT_EQ(marked_name(), "ppo");
  keys.press(kDown, kStatus, view);
  EXPECT_EQ(marked_name(), "grpo");
  keys.press(kDown, kStatus, view);
  EXPECT_EQ(marked_name(), "grpo");
  type("r");  // the order turns, the mark stays on the job
  EXPECT_EQ(marked_name(), "grpo");
  keys.press(kDown, kStatus, view);
  EXPECT_EQ(marked_name(), "ppo");
}

TEST_F(KeyPresses, PauseAndResumeGoByTheMarkedJobsState) {
  Wish wish = type("p");
  EXPECT_EQ(*wish.request, Json({{"verb", "pause"}, {"job", "aa11"}}));
  keys.press(kDown, kStatus, view);
  wish = type("p");
  EXPECT_EQ(*wish.request, Json({{"verb", "resume"}, {"job", "bb22"}}));
}

TEST_F(KeyPresses, APriorityIsTypedAndChecked) {
  EXPECT_FALSE(type("n8x0").request);
  EXPECT_THAT(view.prompt, HasSubstr("80"));
  const Wish wish = keys.press(kEnter, kStatus, view);
  EXPECT_EQ(*wish.request, Json({{"verb", "priority"}, {"job", "aa11"}, {"priority", 80}}));
  EXPECT_EQ(view.prompt, "");
  for (const char* wrong : {"n", "n101", "n99999999999"}) {
    type(wrong);
    EXPECT_FALSE(keys.press(kEnter, kStatus, view).request) << wrong;
    EXPECT_THAT(view.message, HasSubstr("0 (last) to 100 (first)"));
  }
  type("n5");
  EXPECT_FALSE(keys.press(kEscape, kStatus, view).request);
}

TEST_F(KeyPresses, AFilterIsTypedCorrectedAndTakenBack) {
  type("/bobx");
  keys.press(kBackspace, kStatus, view);
  keys.press(kEnter, kStatus, view);
  EXPECT_THAT(names(view), ElementsAre("grpo"));
  keys.press(kEscape, kStatus, view);
  EXPECT_THAT(names(view), ElementsAre("ppo", "grpo"));
}

TEST_F(KeyPresses, WithoutAJobThereIsNothingToPause) {
  view.filter = "nobody";
  EXPECT_FALSE(type("p").request);
  EXPECT_EQ(view.message, "no job is marked");
}

TEST_F(KeyPresses, SortGoesThroughAllOrdersAndHelpComesAndGoes) {
  for (std::size_t i = 0; i < order_names().size(); ++i) type("s");
  EXPECT_EQ(view.order, Order::kArrival);
  type("?");
  EXPECT_TRUE(view.shows_help);
  EXPECT_FALSE(type("q").quits);
  EXPECT_FALSE(view.shows_help);
  EXPECT_TRUE(type("q").quits);
}

}  // namespace
}  // namespace plexrl::top
