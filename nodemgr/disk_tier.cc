#include "nodemgr/disk_tier.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/values.h"

namespace plexrl::nodemgr {
namespace {

/// Left for what others write there: a 32nd of the file system, at most this.
constexpr std::uint64_t kMostSlack = std::uint64_t{1} << 30;

absl::Status check_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  struct stat found {};
  if (::stat(folder.c_str(), &found) != 0) {
    return failed("disk.dir ", folder,
                  " can't be had: ", error ? error.message() : std::strerror(errno),
                  ": choose another with [disk] dir");
  }
  if (!S_ISDIR(found.st_mode)) {
    return failed("disk.dir ", folder, " is no folder: choose another with [disk] dir");
  }
  if (found.st_uid != ::geteuid()) {
    return failed("disk.dir ", folder, " belongs to user ", found.st_uid,
                  ", not to the node manager's: chown it, or choose another with [disk] dir");
  }
  if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return failed("disk.dir ", folder, " can be written by others: chmod 700 ", folder);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DiskTier>> DiskTier::open(Options options) {
  const mode_t before = ::umask(077);
  absl::Status status = check_folder(options.folder);
  ::umask(before);
  if (!status.ok()) return status;
  std::unique_ptr<DiskTier> tier(new DiskTier(std::move(options)));
  disk::DiskStore::Options store;
  store.folder = tier->options_.folder;
  store.limit_bytes = tier->options_.budget;
  store.generation = tier->options_.generation;
  auto opened = disk::DiskStore::open(std::move(store));
  if (!opened.ok()) {
    return failed("disk.dir: ", message_of(opened.status()), ": choose another with [disk] dir");
  }
  tier->store_ = *std::move(opened);
  auto key = disk::ChunkKey::random();
  if (!key.ok()) return key.status();
  if (!(*key)->is_locked()) {
    tier->warning_ =
        "disk: keys can't be locked in memory and may reach swap: raise the limit on "
        "locked memory (ulimit -l, LimitMEMLOCK=)";
  }
  const std::uint64_t usable = tier->usable();
  if (usable < tier->options_.budget) {
    tier->warning_ =
        cat(tier->warning_, tier->warning_.empty() ? "" : "; ",
            "disk.budget = ", settings::format_bytes(tier->options_.budget), " is more than ",
            tier->options_.folder, " has: ", settings::format_bytes(usable), " are used");
  }
  return tier;
}

void DiskTier::set_budget(std::uint64_t bytes) {
  options_.budget = bytes;
  store_->set_limit(bytes);
}

std::uint64_t DiskTier::usable() const {
  struct statvfs now {};
  if (::statvfs(options_.folder.c_str(), &now) != 0) return 0;
  const std::uint64_t in_use = store_->bytes_in_use();
  const std::uint64_t room = std::uint64_t{now.f_bavail} * now.f_frsize + in_use;
  const std::uint64_t slack = std::min(kMostSlack, std::uint64_t{now.f_blocks} * now.f_frsize / 32);
  return std::min(options_.budget, room - std::min(room, slack));
}

}  // namespace plexrl::nodemgr
