#include "clustermgr/cluster_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "clustermgr/host_port.h"
#include "tests/unit/own_folder.h"

namespace plexrl::clustermgr {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(std::vector<const char*> flags) {
  const char* const none[] = {nullptr};
  flags.insert(flags.begin(), "plexrl-clustermgr");
  const auto loaded = load_cluster_settings(static_cast<int>(flags.size()), flags.data(), none);
  return std::string(loaded.status().message());
}

TEST(ClusterSettings, AnUnknownKeyNamesLineAndNearest) {
  const OwnFolder folder;
  const std::string path = folder.file("clustermgr.toml");
  std::ofstream(path) << "[network]\nlisen = \"0.0.0.0:7460\"\n";
  EXPECT_THAT(
      error_of({"--config", path.c_str()}),
      AllOf(HasSubstr(path + ":2"), HasSubstr("unknown key 'lisen', did you mean 'listen'?")));
  std::ofstream(path) << "[policy]\ngrace = \"5ms\"\n";
  EXPECT_THAT(error_of({"--config", path.c_str()}), HasSubstr("unknown section 'policy'"));
  std::ofstream(path) << "[network]\nlisten = \"127.0.0.1:1\"\n[metrics]\nlisten = \"off\"\n";
  EXPECT_EQ(error_of({"--config", path.c_str()}), "");
}

TEST(ClusterSettings, WithoutCertificatesItListensOnlyToThisMachine) {
  EXPECT_THAT(error_of({"--network-insecure-loopback"}), HasSubstr("others than this machine"));
  EXPECT_EQ(error_of({"--network-insecure-loopback", "--network-listen", "127.0.0.1:7460"}), "");
  EXPECT_EQ(error_of({"--network-insecure-loopback", "--network-listen", "[::1]:0"}), "");
}

TEST(ClusterSettings, WhatIsOutOfRangeIsRefused) {
  EXPECT_THAT(error_of({"--network-max-message", "1GiB"}), HasSubstr("between 64KiB and 64MiB"));
  EXPECT_THAT(error_of({"--network-max-threads", "1"}), HasSubstr("between 4 and 4096"));
  EXPECT_THAT(error_of({"--nodes-lost-after", "3s"}), HasSubstr("less than two"));
  EXPECT_THAT(error_of({"--metrics-listen", "yes"}), HasSubstr("'yes' is no HOST:PORT"));
}

TEST(HostPort, BothPartsAreNeeded) {
  EXPECT_EQ(parse_host_port("[::1]:80")->host, "::1");
  EXPECT_EQ(text_of(parse_host_port("[::1]:80").value()), "[::1]:80");
  EXPECT_EQ(text_of(parse_host_port("a.b:0").value()), "a.b:0");
  for (const char* text : {"a", "a:", ":1", "a:65536", "a:-1", "::1:80", "a:1x", ""}) {
    EXPECT_FALSE(parse_host_port(text).ok()) << text;
  }
}

TEST(HostPort, LoopbackIsWhatOnlyThisMachineReaches) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "localhost.evil.org", "127.0.0.1.org"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

}  // namespace
}  // namespace plexrl::clustermgr
