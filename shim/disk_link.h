#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "shim/host_store.h"
#include "shim/wire.h"

namespace plexrl::shim {

/// The node manager's disk tier: it writes memory of this process to a file of this process, and
/// reads it back. Offsets and sizes are multiples of wire::kDiskUnit. Threads: the agent, unless it
/// says otherwise.
class DiskLink {
 public:
  enum class Way { kWrite, kRead };
  using Ticket = std::uint64_t;  ///< 0: none

  virtual ~DiskLink() = default;
  /// The manager has a disk tier. Any thread.
  virtual bool is_on() const = 0;
  /// Has the file made, unless it is there. False: not now.
  virtual bool open_file() = 0;
  /// A slab for what is on its way. None: not now.
  virtual std::optional<SlabSource::Slab> staging(std::size_t bytes) = 0;
  /// Asks for one move; `memory` is the slab's descriptor. None: there is no manager.
  virtual Ticket begin(Way way, int memory, const wire::DiskMove& move) = 0;
  /// Waits for its outcome. None: the manager has gone, and nobody knows whether it was done.
  virtual std::optional<wire::DiskMoved> finish(Ticket ticket) = 0;
  /// What is there is not needed any more. False: there is no manager to tell. Any thread.
  virtual bool discard(std::uint64_t file_offset, std::uint64_t bytes) = 0;
};

}  // namespace plexrl::shim
