#include "shim/connection.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <string>

namespace plexrl::shim {
namespace {

/// As long as it lives no descriptor can be made.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(ConnectionTest, ItIsKnownWhenDescriptorsLack) {
  EXPECT_FALSE(lacks_descriptors());
  {
    const NoDescriptors none;
    EXPECT_TRUE(lacks_descriptors());
  }
  EXPECT_FALSE(lacks_descriptors());
}

TEST(ConnectionTest, WhatComesWithoutItsDescriptorsIsSaidOnceWithTheRemedy) {
  const ScopedFd sent(eventfd(0, EFD_CLOEXEC));
  std::string said;
  for (int turn = 0; turn < 2; ++turn) {
    int ends[2] = {-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    Connection here, there;
    here.attach(ScopedFd(ends[0]));
    there.attach(ScopedFd(ends[1]));
    const int raw = sent.get();
    const wire::Slab body{1, 4096};
    ASSERT_TRUE(there.send_with_fds(wire::Type::kSlab, &body, sizeof body, &raw, 1));
    Packet packet;
    ::testing::internal::CaptureStderr();
    {
      const NoDescriptors none;
      EXPECT_EQ(here.receive(&packet), Connection::Received::kClosed);
    }
    said += ::testing::internal::GetCapturedStderr();
  }
  EXPECT_NE(said.find("ulimit -n"), std::string::npos) << said;
  EXPECT_EQ(said.find("ulimit -n"), said.rfind("ulimit -n")) << said;
}

}  // namespace
}  // namespace plexrl::shim
