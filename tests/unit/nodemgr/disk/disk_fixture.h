#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "nodemgr/disk/disk_store.h"

namespace plexrl::nodemgr::disk {

/// A store in a folder of its own, and a memfd that chunks come from and go to.
class DiskTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  static constexpr DiskStore::Owner kOwner = 7;

  DiskTest() {
    // Not TempDir: that is often memory.
    std::string pattern = std::filesystem::current_path() / "diskXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~DiskTest() override {
    store_.reset();
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
    std::filesystem::remove_all(folder_);
  }

  void open(DiskStore::Options options) {
    options.folder = folder_;
    if (options.limit_bytes == 0) options.limit_bytes = 256 * kMiB;
    auto opened = DiskStore::open(std::move(options));
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    store_ = *std::move(opened);
  }

  /// Of random bytes, the same for the same seed.
  static ScopedFd memory(std::uint64_t bytes, unsigned seed) {
    ScopedFd fd(::memfd_create("chunk", MFD_CLOEXEC));
    std::mt19937_64 random(seed);
    std::vector<std::uint64_t> words(bytes / sizeof(std::uint64_t));
    for (auto& word : words) word = random();
    EXPECT_EQ(::pwrite(fd.get(), words.data(), bytes, 0), static_cast<ssize_t>(bytes));
    return fd;
  }
  static ScopedFd same(const ScopedFd& fd) { return ScopedFd(::dup(fd.get())); }
  static std::string bytes_of(const ScopedFd& fd, std::uint64_t offset, std::uint64_t bytes) {
    std::string read(bytes, '\0');
    EXPECT_EQ(::pread(fd.get(), read.data(), bytes, static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes));
    return read;
  }

  /// Of `count` moves, by request.
  std::map<std::uint64_t, DiskStore::Result> results(std::size_t count) {
    std::map<std::uint64_t, DiskStore::Result> by_request;
    while (by_request.size() < count) {
      pollfd wait{store_->event_fd(), POLLIN, 0};
      ::poll(&wait, 1, -1);
      for (auto& result : store_->finished()) by_request[result.request] = result;
    }
    return by_request;
  }
  DiskStore::Result write(const ScopedFd& from, const DiskStore::Place& place) {
    store_->write(kOwner, 1, same(from), place);
    return results(1).at(1);
  }
  DiskStore::Result read(const ScopedFd& to, const DiskStore::Place& place, const Seal& seal) {
    store_->read(kOwner, 2, same(to), place, seal);
    return results(1).at(2);
  }

  std::string folder_;
  std::unique_ptr<DiskStore> store_;
};

}  // namespace plexrl::nodemgr::disk
