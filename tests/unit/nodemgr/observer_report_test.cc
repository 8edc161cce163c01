#include "nodemgr/observer_report.h"

#include <gtest/gtest.h>

namespace plexrl::nodemgr {
namespace {

using namespace std::chrono_literals;

TEST(ObserverReport, CausesAreRead) {
  const auto line = parse_observer_line(
      R"({"causes":{"gap":7,"final":true,"observed_ns":9,"causes":[
          {"cause":"network","detail":"10.0.0.3:80","time_ns":8},{"cause":"cpu","time_ns":1}]}})");
  ASSERT_TRUE(line.ok());
  const auto& causes = std::get<ObserverCauses>(*line);
  EXPECT_EQ(causes.gap, 7u);
  EXPECT_TRUE(causes.is_final);
  ASSERT_EQ(causes.causes.size(), 2u);
  EXPECT_EQ(causes.causes[0].cause, "network");
  EXPECT_EQ(causes.causes[0].detail, "10.0.0.3:80");
  EXPECT_EQ(causes.causes[0].time, 8ns);
  EXPECT_EQ(causes.causes[1].detail, "");
}

TEST(ObserverReport, OpenersAreRead) {
  const auto line = parse_observer_line(
      R"({"openers":[{"pid":7,"uid":1000,"command":"x","files":["nvidia0"],"preloaded":true}]})");
  ASSERT_TRUE(line.ok());
  const auto& openers = std::get<ObserverOpeners>(*line);
  ASSERT_EQ(openers.processes.size(), 1u);
  EXPECT_EQ(openers.processes[0].pid, 7);
  EXPECT_EQ(openers.processes[0].uid, 1000u);
  EXPECT_EQ(openers.processes[0].command, "x");
  EXPECT_EQ(openers.processes[0].files, std::vector<std::string>{"nvidia0"});
  EXPECT_TRUE(openers.processes[0].is_preloaded);
}

TEST(ObserverReport, HelloIsRead) {
  const auto line = parse_observer_line(R"({"hello":{"version":1,"lacks":["locks",5,"pipes"]}})");
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(std::get<ObserverHello>(*line).version, 1);
  EXPECT_EQ(std::get<ObserverHello>(*line).lacks, (std::vector<std::string>{"locks", "pipes"}));
}

TEST(ObserverReport, WhatALaterOneSendsIsPassedOver) {
  const auto line = parse_observer_line(R"({"news":{}})");
  ASSERT_TRUE(line.ok());
  EXPECT_TRUE(std::holds_alternative<ObserverUnknown>(*line));
}

TEST(ObserverReport, NonsenseIsRefused) {
  for (const char* line :
       {"", "7", "{", R"({"hello":7})", R"({"hello":{"version":-1}})", R"({"causes":[]})",
        R"({"openers":7})", R"({"openers":[7]})", R"({"openers":[{"pid":1}]})",
        R"({"openers":[{"pid":99999999999,"uid":0}]})", R"({"causes":{"gap":"7","causes":[]}})",
        R"({"causes":{"gap":7}})", R"({"causes":{"gap":7,"causes":[7]}})",
        R"({"causes":{"gap":7,"causes":[{"cause":"cpu","time_ns":-1}]}})",
        R"({"causes":{"gap":7,"causes":[{"time_ns":1}]}})"}) {
    EXPECT_FALSE(parse_observer_line(line).ok()) << line;
  }
}

TEST(ObserverReport, TextsAreCutAndPrintable) {
  const auto line = parse_observer_line(R"({"causes":{"gap":7,"causes":[{"cause":"disk","time_ns":1,
      "detail":"a\u001b[2J)" + std::string(1000, 'x') +
                                        R"("}]}})");
  ASSERT_TRUE(line.ok());
  const std::string& detail = std::get<ObserverCauses>(*line).causes[0].detail;
  EXPECT_EQ(detail.substr(0, 5), "a?[2J");
  EXPECT_LE(detail.size(), 128u);
}

TEST(MainCause, IsTheWordThatMostOfTheGapGoesTo) {
  EXPECT_EQ(main_cause({}), "");
  EXPECT_EQ(main_cause({{"cpu", "python", 4ns}, {"network", "a:1", 3ns}, {"network", "b:1", 3ns}}),
            "network");
}

}  // namespace
}  // namespace plexrl::nodemgr
