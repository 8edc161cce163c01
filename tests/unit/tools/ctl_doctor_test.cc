#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tools/ctl/doctor.h"

namespace plexrl::ctl {
namespace {

using State = Finding::State;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

DriverFacts good_driver() {
  DriverFacts driver;
  driver.version = 13000;
  driver.devices = {{"NVIDIA H100", 80 * kGiB, true, 0}};
  return driver;
}

Places with_driver() {
  Places places;
  places.driver = "/lib/libcuda.so.1";
  return places;
}

const Finding* find(const std::vector<Finding>& findings, const std::string& check) {
  for (const Finding& finding : findings) {
    if (finding.check == check) return &finding;
  }
  return nullptr;
}

TEST(DoctorObserver, SaysWhoTellsWhatJobsWaitForOrWhatIsMissing) {
  Places places;
  places.kernel_types = "/proc/self/exe";
  const Json with = {{"manager", {{"observer", {{"pid", 7}, {"lacks", Json::array()}}}}}};
  const Json poor = {{"manager", {{"observer", {{"pid", 7}, {"lacks", Json::array({"locks"})}}}}}};
  const Json without = {{"manager", {{"observer", nullptr}, {"socket", "/run/x.sock"}}}};
  EXPECT_EQ(check_observer(places, with).state, State::kOk);
  EXPECT_EQ(check_observer(places, poor).state, State::kNote);
  EXPECT_THAT(check_observer(places, poor).text, HasSubstr("locks"));
  EXPECT_EQ(check_observer(places, without).state, State::kNote);
  EXPECT_THAT(check_observer(places, without).remedy, HasSubstr("--socket /run/x.sock"));
  EXPECT_EQ(check_observer(places, absl::NotFoundError("none")).state, State::kOk);
  places.kernel_types = "/nothing";
  const Finding old = check_observer(places, with);
  EXPECT_EQ(old.state, State::kNote) << "jobs can share without";
  EXPECT_THAT(old.remedy, HasSubstr("CONFIG_DEBUG_INFO_BTF"));
}

TEST(DoctorDriver, AllIsWell) {
  const auto findings = check_driver(with_driver(), good_driver());
  EXPECT_FALSE(has_problem(findings));
  EXPECT_THAT(find(findings, "driver")->text, HasSubstr("CUDA 13.0"));
  EXPECT_THAT(find(findings, "GPU 0")->text, HasSubstr("80 GiB"));
  for (const Finding& finding : findings) EXPECT_THAT(finding.remedy, IsEmpty());
}

TEST(DoctorDriver, WhatKeepsJobsFromSharingHasARemedy) {
  DriverFacts old = good_driver();
  old.version = 11080;
  DriverFacts alone = good_driver();
  alone.devices[0].compute_mode = 3;
  DriverFacts plain = good_driver();
  plain.devices[0].has_vmm = false;
  DriverFacts none = good_driver();
  none.devices.clear();
  DriverFacts broken;
  broken.error = "cuInit answers CUDA_ERROR_NO_DEVICE";
  for (const DriverFacts& driver : {old, alone, plain, none, broken}) {
    const auto findings = check_driver(with_driver(), driver);
    EXPECT_TRUE(has_problem(findings));
    for (const Finding& finding : findings) {
      EXPECT_EQ(finding.state == State::kOk, finding.remedy.empty()) << finding.check;
    }
  }
  EXPECT_TRUE(has_problem(check_driver(Places{}, DriverFacts{})));
}

TEST(DoctorDriver, MigIsNoProblemButNamed) {
  DriverFacts driver = good_driver();
  driver.has_mig = true;
  const auto findings = check_driver(with_driver(), driver);
  EXPECT_FALSE(has_problem(findings));
  EXPECT_EQ(find(findings, "MIG")->state, State::kNote);
}

class DoctorMachine : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/plexrl-doctor-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    write("proc/meminfo", "MemTotal: 999 kB\nMemAvailable:  104857600 kB\nHugePages_Total: 0\n");
    write("proc/self/cgroup", "0::/jobs/mine\n");
    write("cgroup/jobs/memory.max", "max\n");
    write("cgroup/jobs/mine/memory.max", "max\n");
    write("libplexrl.so", "");
    places_ = with_driver();
    places_.proc = root_ + "/proc";
    places_.cgroup = root_ + "/cgroup";
    places_.lock_dir = root_ + "/locks";
    places_.state_dir = root_ + "/state/plexrl";
    places_.library = root_ + "/libplexrl.so";
    places_.mps_pipe = root_ + "/mps";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = root_ + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::vector<Finding> check() { return check_machine(places_, good_driver()); }

  std::string root_;
  Places places_;
};

TEST_F(DoctorMachine, FoldersThatAreNotThereYetAreWell) {
  const auto findings = check();
  EXPECT_FALSE(has_problem(findings)) << findings_json(findings).dump(1);
  EXPECT_EQ(find(findings, "locks")->state, State::kOk);
  EXPECT_EQ(find(findings, "host memory")->state, State::kOk);
  EXPECT_THAT(find(findings, "host memory")->text, Not(HasSubstr("cgroup")));
}

TEST_F(DoctorMachine, TheTightestLimitOfTheCgroupsCounts) {
  write("cgroup/jobs/memory.max", std::to_string(20 * kGiB) + "\n");
  const auto findings = check();
  const Finding* const memory = find(findings, "host memory");
  EXPECT_EQ(memory->state, State::kNote);
  EXPECT_THAT(memory->text, HasSubstr("20 GiB available, by the limit of this cgroup"));
  EXPECT_THAT(memory->remedy, HasSubstr("--memory"));
}

TEST_F(DoctorMachine, AnIncompleteInstallationIsAProblem) {
  std::filesystem::remove(places_.library);
  const auto findings = check();
  EXPECT_TRUE(has_problem(findings));
  EXPECT_THAT(find(findings, "installation")->text, HasSubstr("No such file"));
}

TEST_F(DoctorMachine, MpsIsNamed) {
  write("mps/control", "");
  EXPECT_EQ(find(check(), "MPS")->state, State::kNote);
  EXPECT_THAT(show_doctor(findings_json(check())), HasSubstr("What to do\nMPS: "));
}

}  // namespace
}  // namespace plexrl::ctl
