#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

namespace plexrl {

/// An empty folder that no other test and no other run has, and that goes with this object.
class OwnFolder {
 public:
  OwnFolder() : path_(::testing::TempDir() + "/plexrl-unit-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) {
      throw std::filesystem::filesystem_error("no folder for a test", path_,
                                              std::error_code(errno, std::generic_category()));
    }
  }
  ~OwnFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;

  const std::string& path() const { return path_; }
  /// Of a file in it that need not be there.
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace plexrl
