#include "nodemgr/daemon_settings.h"

#include <gtest/gtest.h>

namespace plexrl::nodemgr {
namespace {

TEST(DaemonSettings, LevelsByFileAreThePreloadsBusiness) {
  const char* const flags[] = {"plexrl-nodemgr"};
  const char* const by_file[] = {"PLEXRL_LOG=pager:debug", nullptr};
  EXPECT_TRUE(load_settings(1, flags, by_file).ok());
  const char* const unknown[] = {"PLEXRL_LOG=loud", nullptr};
  EXPECT_FALSE(load_settings(1, flags, unknown).ok());
}

}  // namespace
}  // namespace plexrl::nodemgr
