#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "shim/client.h"
#include "shim/devices.h"
#include "shim/range_table.h"
#include "shim/unpageable.h"

namespace plexrl::shim {

/// Tells the manager what memory this process has and where, when that has changed, at most every
/// 100 ms a GPU. Agent only.
class MemoryReporter {
 public:
  MemoryReporter(Client& client, Devices& devices, RangeTable& ranges,
                 Unpageable& unpageable) noexcept
      : client_(client), devices_(devices), ranges_(ranges), unpageable_(unpageable) {}

  /// Sends what is due; returns in how many ns something will be (~0: nothing changed).
  std::uint64_t step(std::uint64_t now_ns);
  /// After a reconnect: everything is news.
  void forget() { sent_.clear(); }

 private:
  struct Sent {
    wire::MemoryReport report;
    wire::Kinds kinds;
    wire::DiskReport disk;
    std::uint64_t at_ns;
  };
  wire::MemoryReport compose(const Devices::Attached& attached) const;
  wire::Kinds compose_kinds(const Devices::Attached& attached) const;
  wire::DiskReport compose_disk(const Devices::Attached& attached) const;

  Client& client_;
  Devices& devices_;
  RangeTable& ranges_;
  Unpageable& unpageable_;
  std::map<CUdevice, Sent> sent_;
};

}  // namespace plexrl::shim
