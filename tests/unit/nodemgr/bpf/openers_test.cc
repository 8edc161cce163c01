#include "nodemgr/bpf/openers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "nodemgr/scoped_fd.h"

namespace plexrl::observer {
namespace {

class OpenersTest : public ::testing::Test {
 protected:
  OpenersTest() {
    std::string pattern = ::testing::TempDir() + "openers-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~OpenersTest() override { std::filesystem::remove_all(folder_); }
  /// A stand-in for a GPU's file; false where this user may not make one.
  bool make_device(const std::string& name, dev_t device) {
    return ::mknod((folder_ + "/" + name).c_str(), S_IFCHR | 0600, device) == 0;
  }
  /// What is seen of this process.
  static std::optional<Opener> own(const GpuFiles& files) {
    for (Opener& opener : find_openers(files)) {
      if (opener.process == ::getpid()) return std::move(opener);
    }
    return std::nullopt;
  }
  std::string folder_;
};

TEST_F(OpenersTest, FilesAreFoundByTheirNamesAndTheirKind) {
  if (!make_device("nvidia0", makedev(1, 7))) GTEST_SKIP() << "only root may make device files";
  ASSERT_TRUE(make_device("other", makedev(1, 5)));
  nodemgr::ScopedFd plain(::open((folder_ + "/nvidia-plain").c_str(), O_CREAT | O_CLOEXEC, 0600));
  EXPECT_EQ(gpu_files(folder_), (GpuFiles{{makedev(1, 7), "nvidia0"}}));
  EXPECT_TRUE(gpu_files(folder_ + "/nothing").empty());
}

TEST_F(OpenersTest, WhoHasAFileOpenIsSeenAsLongAsItHas) {
  // By the device, not the name: /dev/full is the stand-in's device too.
  const GpuFiles files = {{makedev(1, 7), "nvidia0"}};
  EXPECT_EQ(own(files), std::nullopt);
  {
    const nodemgr::ScopedFd open(::open("/dev/full", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(open.is_open());
    const std::optional<Opener> seen = own(files);
    ASSERT_TRUE(seen.has_value());
    EXPECT_EQ(seen->user, ::getuid());
    EXPECT_EQ(seen->files, std::vector<std::string>{"nvidia0"});
    EXPECT_FALSE(seen->command.empty());
    EXPECT_FALSE(seen->is_preloaded);
  }
  EXPECT_EQ(own(files), std::nullopt);
}

TEST_F(OpenersTest, WithoutGpusNobodyIsLookedAt) { EXPECT_TRUE(find_openers({}).empty()); }

}  // namespace
}  // namespace plexrl::observer
