#include "nodemgr/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "nodemgr/process_identity.h"

namespace plexrl::nodemgr {
namespace {

namespace fs = std::filesystem;

/// A /proc and /sys in a folder of their own.
class HostMemoryTest : public ::testing::Test {
 protected:
  HostMemoryTest() {
    std::string pattern = ::testing::TempDir() + "/hostXXXXXX";
    root_ = ::mkdtemp(pattern.data());
    put("/proc/meminfo", "MemTotal: 2000 kB\nMemAvailable: 1000 kB\n");
  }
  ~HostMemoryTest() override { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(HostMemoryTest, WithoutACgroupFourFifthsOfWhatIsAvailable) {
  EXPECT_EQ(default_host_budget(root_), 1000u * 1024 / 5 * 4);
}

TEST_F(HostMemoryTest, ACgroupV2LimitCounts) {
  put("/proc/self/cgroup", "0::/box\n");
  put("/sys/fs/cgroup/box/memory.max", "100000\n");
  put("/sys/fs/cgroup/box/memory.current", "50000\n");
  EXPECT_EQ(default_host_budget(root_), 40000u);
}

TEST_F(HostMemoryTest, ACgroupV1LimitCounts) {
  put("/proc/self/cgroup", "9:memory:/box\n1:cpu:/\n");
  put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "100000\n");
  put("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "90000\n");
  EXPECT_EQ(default_host_budget(root_), 8000u);
}

TEST_F(HostMemoryTest, TheLimitOfACgroupAroundItCountsToo) {
  put("/proc/self/cgroup", "0::/slice/inner/service\n");
  put("/sys/fs/cgroup/slice/memory.max", "100000\n");
  put("/sys/fs/cgroup/slice/memory.current", "70000\n");
  put("/sys/fs/cgroup/slice/inner/memory.max", "max\n");
  put("/sys/fs/cgroup/slice/inner/service/memory.max", "90000\n");
  put("/sys/fs/cgroup/slice/inner/service/memory.current", "1000\n");
  EXPECT_EQ(default_host_budget(root_), 24000u);
  put("/proc/self/cgroup", "9:memory:/box/service\n0::/\n");
  put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "50000\n");
  put("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "0\n");
  EXPECT_EQ(default_host_budget(root_), 40000u);
}

TEST_F(HostMemoryTest, WhatACgroupOnlyCachesIsLeft) {
  put("/proc/self/cgroup", "0::/box\n");
  put("/sys/fs/cgroup/box/memory.max", "100000\n");
  put("/sys/fs/cgroup/box/memory.current", "90000\n");
  put("/sys/fs/cgroup/box/memory.stat",
      "anon 20000\nfile 70000\nshmem 30000\ninactive_anon 1\ninactive_file 25000\n"
      "active_file 15000\n");
  EXPECT_EQ(host_bytes_left(root_), 50000u);
  put("/proc/self/cgroup", "9:memory:/box\n");
  put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "100000\n");
  put("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "90000\n");
  put("/sys/fs/cgroup/memory/box/memory.stat",
      "inactive_file 1\nactive_file 2\ntotal_inactive_file 3000\ntotal_active_file 4000\n");
  EXPECT_EQ(host_bytes_left(root_), 17000u);
}

TEST_F(HostMemoryTest, NoLimitIsNone) {
  put("/proc/self/cgroup", "0::/box\n");
  put("/sys/fs/cgroup/box/memory.max", "max\n");
  EXPECT_EQ(default_host_budget(root_), 1000u * 1024 / 5 * 4);
}

TEST_F(HostMemoryTest, SlabsThatAProcessHasMappedAreSeenFromOutside) {
  put("/proc/77/maps",
      "7f0000000000-7f0000200000 rw-s 00000000 00:01 9 /memfd:plexrl-slab (deleted)\n"
      "7f0000200000-7f0000400000 r--s 00200000 00:01 9 /memfd:plexrl-slab (deleted)\n"
      "7f0000400000-7f0000500000 rw-s 00000000 00:01 8 /memfd:plexrl-slabs (deleted)\n"
      "7f0000500000-7f0000600000 rw-p 00000000 00:00 0 \n");
  EXPECT_EQ(mapped_slab_bytes(77, root_), std::uint64_t{4} << 20);
  EXPECT_EQ(mapped_slab_bytes(78, root_), 0u);
}

TEST_F(HostMemoryTest, TheStartTimeIsReadBehindAnyCommandName) {
  put("/proc/77/stat", "77 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21\n");
  EXPECT_EQ(start_time_of(77, root_ + "/proc"), 4242u);
  EXPECT_FALSE(start_time_of(78, root_ + "/proc"));
}

TEST_F(HostMemoryTest, AThreadIsFoundByItsName) {
  put("/proc/77/task/77/comm", "python\n");
  put("/proc/77/task/79/comm", "plexrl-agent\n");
  EXPECT_TRUE(may_have_thread(77, "plexrl-agent", root_ + "/proc"));
  EXPECT_FALSE(may_have_thread(77, "plexrl", root_ + "/proc"));
  EXPECT_TRUE(may_have_thread(78, "plexrl-agent", root_ + "/proc")) << "not to be seen";
}

TEST(ProcessIdentity, AProcessOfAnotherStartTimeIsAnother) {
  std::uint64_t ticks = *start_time_of(::getpid());
  EXPECT_TRUE(open_process({::getpid(), ticks}).is_open());
  EXPECT_FALSE(open_process({::getpid(), ticks + 1}).is_open());
}

}  // namespace
}  // namespace plexrl::nodemgr
