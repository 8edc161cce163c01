#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/nearest.h"
#include "nodemgr/settings/table.h"
#include "nodemgr/settings/utf8.h"
#include "nodemgr/settings/values.h"

namespace plexrl::nodemgr::settings {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

const std::vector<Row> kTable = {
    {"trace.max_bytes", Kind::kBytes, "1GiB", "size of all segments"},
    {"policy.grace", Kind::kDuration, "5ms", "idle after"},
    {"policy.hang_action", Kind::kText, "wait", "what to do", true, {"wait", "warn", "kill"}},
    {"policy.quantum_factor", Kind::kNumber, "10", "multiple"},
    {"exit_when_idle", Kind::kSwitch, "false", "end with the last job", false},
};

/// A file in a folder of its own, removed at the end.
class SettingsFile : public ::testing::Test {
 protected:
  SettingsFile() {
    std::string pattern = ::testing::TempDir() + "/settingsXXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~SettingsFile() override { std::filesystem::remove_all(folder_); }
  absl::Status apply(const std::string& text) {
    std::ofstream(path()) << text;
    return apply_file(values, path(), others);
  }
  std::string path() const { return folder_ + "/nodemgr.toml"; }

  Values values{kTable};
  std::vector<std::string> others = {"team"};
  std::string folder_;
};

TEST(SettingsText, WhatIsNoCharacterBecomesAQuestionMark) {
  EXPECT_EQ(as_utf8("plain"), "plain");
  const std::string all =
      "\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf";
  EXPECT_EQ(as_utf8(all), all);
  EXPECT_EQ(as_utf8("tr\xe4ning"), "tr?ning");
  EXPECT_EQ(as_utf8("\xc3"), "?") << "cut off";
  EXPECT_EQ(as_utf8("\xc0\xaf \xe0\x9f\xbf \xf0\x8f\xbf\xbf"), "?? ??? ????") << "too long";
  EXPECT_EQ(as_utf8("\xed\xa0\x80 \xf4\x90\x80\x80 \xf5"), "??? ???? ?") << "no character";
  EXPECT_EQ(as_utf8("a\xc3\xa4", 2), "a") << "a whole character or none of it";
  EXPECT_EQ(as_utf8("a\xc3\xa4", 3), "a\xc3\xa4");
}

TEST(SettingsValues, SizesAreReadInBothKindsOfUnits) {
  EXPECT_EQ(*parse_bytes("8GiB"), 8ull << 30);
  EXPECT_EQ(*parse_bytes("1.5 MiB"), 3ull << 19);
  EXPECT_EQ(*parse_bytes("2GB"), 2'000'000'000u);
  EXPECT_EQ(*parse_bytes("17B"), 17u);
  EXPECT_EQ(*parse_bytes("0"), 0u);
  EXPECT_EQ(*parse_bytes("8589934592"), 8ull << 30);
}

TEST(SettingsValues, WhatIsNoSizeIsRefusedWithTheText) {
  for (const char* text : {"", "8Gi", "GiB", "-1GiB", "1e99TiB", "nan", "99999999TiB", "8 GiBs"}) {
    absl::StatusOr<std::uint64_t> bytes = parse_bytes(text);
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_THAT(message_of(bytes.status()), HasSubstr(text));
  }
}

TEST(SettingsValues, ASizeWhoseUnitWasForgottenIsRefusedWithTheUnits) {
  EXPECT_THAT(
      message_of(parse_bytes("64").status()),
      HasSubstr("'64' is 64 bytes, less than 2MiB: write a size with its unit, as in 64GiB"));
  Values values(kTable);
  const absl::Status status = values.set("trace.max_bytes", "5", "test");
  EXPECT_THAT(message_of(status), HasSubstr("as in 5GiB"));
}

TEST(SettingsValues, TimesNeedAUnit) {
  EXPECT_EQ(*parse_duration("5ms"), 5ms);
  EXPECT_EQ(*parse_duration("2h"), 2h);
  EXPECT_EQ(*parse_duration("0"), 0ns);
  EXPECT_FALSE(parse_duration("5").ok());
  EXPECT_FALSE(parse_duration("5 minutes").ok());
}

TEST(SettingsValues, RatesNeedPerSecond) {
  EXPECT_EQ(*parse_rate("4GB/s"), 4'000'000'000u);
  EXPECT_FALSE(parse_rate("4GB").ok());
}

TEST(SettingsValues, FormattedValuesReadBackEqual) {
  for (std::uint64_t bytes : {0ull, 513ull, 1ull << 20, 3ull << 29}) {
    EXPECT_EQ(*parse_bytes(format_bytes(bytes)), bytes);
  }
  for (std::chrono::nanoseconds time : {5'000'000ns, std::chrono::nanoseconds(2h)}) {
    EXPECT_EQ(*parse_duration(format_duration(time)), time);
  }
}

TEST(Nearest, FindsAMisspeltNameAndNothingForAStrangeOne) {
  std::vector<std::string> names = {"max_bytes", "max_age", "dir"};
  EXPECT_EQ(nearest_name("max_byte", names), "max_bytes");
  EXPECT_EQ(nearest_name("colour", names), "");
}

TEST(Settings, FlagsBeatTheEnvironmentWhichBeatsTheDefault) {
  Values values(kTable);
  const char* environment[] = {"PLEXRL_POLICY_GRACE=7ms", "PLEXRL_TRACE_MAX_BYTES=2GiB", "X=1",
                               nullptr};
  ASSERT_TRUE(apply_environment(values, environment).ok());
  const char* argv[] = {"nodemgr", "--policy-grace", "9ms", "--exit-when-idle", "rest"};
  auto line = apply_flags(values, 5, argv);
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(values.duration("policy.grace"), 9ms);
  EXPECT_EQ(values.bytes("trace.max_bytes"), 2ull << 30);
  EXPECT_TRUE(values.is_on("exit_when_idle"));
  EXPECT_EQ(values.number("policy.quantum_factor"), 10);
  EXPECT_THAT(line->arguments, ::testing::ElementsAre("rest"));
}

TEST(Settings, ARowMayHaveAFlagOfItsOwn) {
  const Row row{"cluster.manager", Kind::kText, "", "", true, {}, "cluster"};
  EXPECT_EQ(flag_name(row), "cluster");
  EXPECT_EQ(environment_name(row), "PLEXRL_CLUSTER_MANAGER");
}

TEST(Settings, AnUnknownFlagNamesTheNearest) {
  Values values(kTable);
  const char* argv[] = {"nodemgr", "--trace-max-byte=1"};
  auto line = apply_flags(values, 2, argv);
  EXPECT_THAT(message_of(line.status()), HasSubstr("--trace-max-bytes"));
}

TEST(Settings, ABadEnvironmentValueNamesTheVariable) {
  Values values(kTable);
  const char* environment[] = {"PLEXRL_POLICY_GRACE=soon", nullptr};
  absl::Status status = apply_environment(values, environment);
  EXPECT_THAT(message_of(status), HasSubstr("PLEXRL_POLICY_GRACE"));
  EXPECT_EQ(values.duration("policy.grace"), 5ms);
}

TEST_F(SettingsFile, KeysAreReadFromTheirSections) {
  ASSERT_TRUE(apply("[trace]\nmax_bytes = '3GiB'\n[policy]\nquantum_factor = 4.5\n"
                    "hang_action = 'kill'\n[[team]]\nname = 'a'\n")
                  .ok());
  EXPECT_EQ(values.bytes("trace.max_bytes"), 3ull << 30);
  EXPECT_EQ(values.number("policy.quantum_factor"), 4.5);
  EXPECT_EQ(values.text("policy.hang_action"), "kill");
}

TEST_F(SettingsFile, AnUnknownKeyNamesLineAndNearest) {
  absl::Status status = apply("[trace]\n\nmax_byte = '3GiB'\n");
  EXPECT_THAT(message_of(status), HasSubstr(path() + ":3"));
  EXPECT_THAT(message_of(status), HasSubstr("did you mean 'max_bytes'"));
}

TEST_F(SettingsFile, AnUnknownSectionNamesTheNearest) {
  EXPECT_THAT(message_of(apply("[polic]\ngrace = '1ms'\n")), HasSubstr("did you mean 'policy'"));
}

TEST_F(SettingsFile, ABadFileChangesNothing) {
  absl::Status status = apply("[policy]\ngrace = '1ms'\n[trace]\nmax_bytes = 'much'\n");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(values.duration("policy.grace"), 5ms);
}

TEST_F(SettingsFile, AFileThatIsNoTomlNamesTheLine) {
  EXPECT_THAT(message_of(apply("[policy]\ngrace =\n")), HasSubstr(path() + ":2"));
}

TEST_F(SettingsFile, AFileThatCantBeReadSaysWhyAndNoLine) {
  const std::string message =
      message_of(apply_file(values, "/proc/self/mem", others));  // opens, and reading fails
  EXPECT_THAT(message, HasSubstr("/proc/self/mem: can't be read: "));
  EXPECT_THAT(message, ::testing::Not(HasSubstr(":0")));
  EXPECT_THAT(message_of(apply_file(values, "/proc", others)), HasSubstr("/proc: is a folder"));
}

TEST_F(SettingsFile, AWordOutsideTheListIsRefused) {
  EXPECT_THAT(message_of(apply("[policy]\nhang_action = 'pray'\n")), HasSubstr("wait warn kill"));
}

TEST_F(SettingsFile, AMissingFileIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(apply_file(values, path() + ".none", others)));
}

}  // namespace
}  // namespace plexrl::nodemgr::settings
