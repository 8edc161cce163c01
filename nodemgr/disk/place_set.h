#pragma once

#include <cstdint>
#include <map>

namespace plexrl::nodemgr::disk {

/// Which bytes of a file are in use.
class PlaceSet {
 public:
  void add(std::uint64_t offset, std::uint64_t bytes);
  void remove(std::uint64_t offset, std::uint64_t bytes);
  /// In all.
  std::uint64_t bytes() const { return bytes_; }
  /// How many of these are not in use yet.
  std::uint64_t missing(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  ///< by start; apart from each other
  std::uint64_t bytes_ = 0;
};

}  // namespace plexrl::nodemgr::disk
