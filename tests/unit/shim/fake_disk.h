#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shim/disk_link.h"
#include "shim/scoped_fd.h"

namespace plexrl::shim::testing {

/// The manager's disk: keeps bytes by place, and says nothing but what the test wants.
///
/// What it is asked for it does when somebody waits for it and not before, so that who uses the
/// slab again too early is found out.
class FakeDisk final : public DiskLink {
 public:
  bool is_on() const override { return on; }
  bool open_file() override {
    const std::lock_guard lock(mutex_);
    return !is_gone && !fails("open_file");
  }
  std::optional<SlabSource::Slab> staging(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (is_gone || fails("staging")) return std::nullopt;
    ++slabs;
    return SlabSource::Slab{1, bytes, ScopedFd(make_memory(bytes))};
  }
  Ticket begin(Way way, int memory, const wire::DiskMove& move) override {
    const std::lock_guard lock(mutex_);
    if (is_gone) return 0;
    if (fails("manager_dies")) under_way_.clear();  // and another one is there at once
    way == Way::kWrite ? ++writes : ++reads;
    under_way_[next_] = {way, ScopedFd(::dup(memory)), move};
    most_under_way = std::max(most_under_way, under_way_.size());
    if (dies_after != 0 && --dies_after == 0) is_gone = true;
    return next_++;
  }
  std::optional<wire::DiskMoved> finish(Ticket ticket) override {
    const std::lock_guard lock(mutex_);
    const auto found = under_way_.extract(ticket);
    if (found.empty() || is_gone) return std::nullopt;
    const Move& its = found.mapped();
    return its.way == Way::kWrite ? write(its) : read(its);
  }
  bool discard(std::uint64_t offset, std::uint64_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (is_gone || fails("discard")) return false;
    for (auto it = files.lower_bound(offset); it != files.end() && it->first < offset + bytes;) {
      it = files.erase(it);
    }
    return true;
  }

  /// The N-th passage of `step` from now on (1 is the next) goes wrong: one of open_file, staging,
  /// manager_dies, disk_full, write_fails, read_fails, damaged, discard.
  void fail(const std::string& step, int nth) {
    const std::lock_guard lock(mutex_);
    failing_ = {step, counts_[step] + nth};
  }
  int passages(const std::string& step) const {
    const std::lock_guard lock(mutex_);
    const auto it = counts_.find(step);
    return it == counts_.end() ? 0 : it->second;
  }
  bool is_empty() const {
    const std::lock_guard lock(mutex_);
    return files.empty();
  }

  bool on = true;
  bool is_gone = false;
  int dies_after = 0;  ///< requests; 0: never
  int reads_that_fail = 0;
  std::uint32_t write_outcome = wire::kDiskDone;
  std::uint32_t read_outcome = wire::kDiskDone;
  int slabs = 0, writes = 0, reads = 0;
  std::size_t most_under_way = 0;
  /// By offset: nonce and bytes.
  std::map<std::uint64_t, std::pair<std::uint8_t, std::vector<std::byte>>> files;

 private:
  struct Move {
    Way way = Way::kWrite;
    ScopedFd memory;
    wire::DiskMove move{};
  };

  static int make_memory(std::size_t bytes) {
    const int fd = ::memfd_create("staging", MFD_CLOEXEC);
    EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(bytes)), 0);
    return fd;
  }
  bool fails(const char* step) {
    return ++counts_[step] == failing_.second && failing_.first == step;
  }

  wire::DiskMoved write(const Move& its) {
    std::vector<std::byte> bytes(its.move.bytes);
    EXPECT_EQ(::pread(its.memory.get(), bytes.data(), bytes.size(),
                      static_cast<off_t>(its.move.memory_offset)),
              static_cast<ssize_t>(bytes.size()));
    wire::DiskMoved moved{};
    moved.outcome = write_outcome;
    if (fails("disk_full")) moved.outcome = wire::kDiskFull;
    if (fails("write_fails")) moved.outcome = wire::kDiskFailed;
    moved.nonce[0] = ++nonce_;
    if (moved.outcome == wire::kDiskDone) files[its.move.file_offset] = {moved.nonce[0], bytes};
    return moved;
  }

  wire::DiskMoved read(const Move& its) {
    wire::DiskMoved moved{};
    const auto found = files.find(its.move.file_offset);
    moved.outcome = found == files.end()                       ? wire::kDiskFailed
                    : found->second.first != its.move.nonce[0] ? wire::kDiskDamaged
                                                               : read_outcome;
    if (reads_that_fail != 0) {
      --reads_that_fail;
      moved.outcome = wire::kDiskFailed;
    }
    if (fails("read_fails")) moved.outcome = wire::kDiskFailed;
    if (fails("damaged")) moved.outcome = wire::kDiskDamaged;
    if (moved.outcome == wire::kDiskDone) {
      const auto& bytes = found->second.second;
      EXPECT_EQ(::pwrite(its.memory.get(), bytes.data(), bytes.size(),
                         static_cast<off_t>(its.move.memory_offset)),
                static_cast<ssize_t>(bytes.size()));
    }
    return moved;
  }

  mutable std::mutex mutex_;
  std::map<std::string, int> counts_;
  std::pair<std::string, int> failing_;
  std::map<Ticket, Move> under_way_;
  std::uint8_t nonce_ = 0;
  Ticket next_ = 1;
};

}  // namespace plexrl::shim::testing
