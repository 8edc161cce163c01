#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nodemgr/disk/disk_store.h"

namespace plexrl::nodemgr {

/// The disk tier's folder and how much of it evicted bytes may take. Bytes.
class DiskTier {
 public:
  struct Options {
    std::string folder;
    std::uint64_t budget = 0;
    std::uint32_t generation = 0;  ///< of the manager (disk::DiskStore)
  };

  /// Makes the folder where it is missing, and files in it. Errors say what is wrong with the
  /// folder and what to do.
  static absl::StatusOr<std::unique_ptr<DiskTier>> open(Options options);

  disk::DiskStore& store() { return *store_; }
  const disk::DiskStore& store() const { return *store_; }
  const std::string& folder() const { return options_.folder; }
  std::uint64_t budget() const { return options_.budget; }
  void set_budget(std::uint64_t bytes);

  /// What promises may count on now: the budget or what the file system has free beside what is in
  /// use here, whichever is less, without a slack for what others write there.
  std::uint64_t usable() const;
  /// What the administrator has to know; "": nothing.
  const std::string& warning() const { return warning_; }

 private:
  explicit DiskTier(Options options) : options_(std::move(options)) {}

  Options options_;
  std::unique_ptr<disk::DiskStore> store_;
  std::string warning_;
};

}  // namespace plexrl::nodemgr
