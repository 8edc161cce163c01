#pragma once

#include <functional>

#include "shim/client.h"
#include "shim/disk_link.h"
#include "shim/scoped_fd.h"

namespace plexrl::shim {

/// DiskLink by messages to the node manager.
///
/// The process keeps what a manager that was restarted needs: the key, in a page of its own that is
/// locked, left out of core dumps and of children, and a descriptor that only names the file.
class ManagerDisk final : public DiskLink {
 public:
  explicit ManagerDisk(Client& client) noexcept : client_(client) {}

  bool is_on() const override;
  bool open_file() override;
  std::optional<SlabSource::Slab> staging(std::size_t bytes) override;
  Ticket begin(Way way, int memory, const wire::DiskMove& move) override;
  std::optional<wire::DiskMoved> finish(Ticket ticket) override;
  bool discard(std::uint64_t file_offset, std::uint64_t bytes) override;

  /// Says to a manager that is new what the process has on disk: the first that it is told.
  /// `each_free` calls its argument for the places that are free.
  using EachFree = std::function<void(const std::function<void(std::uint64_t, std::uint64_t)>&)>;
  void resume(Connection& fresh, const EachFree& each_free);

 private:
  bool keep(Packet& answer);

  Client& client_;
  ScopedFd name_;                   ///< O_PATH
  wire::DiskFile* file_ = nullptr;  ///< the locked page; null: there is no file yet
};

}  // namespace plexrl::shim
