#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "shim/capability.h"
#include "shim/client.h"
#include "shim/device_memory.h"
#include "shim/devices.h"
#include "shim/host_store.h"
#include "shim/pager.h"
#include "shim/range_table.h"

namespace plexrl::shim {

/// Device memory that processes of one job share: what this one offers, and what it has from
/// others.
///
/// Memory has one owner, whose pager moves it as its own. An importer has addresses of its own for
/// it and maps the owner's handles there: it asks for them, through the node manager, as soon as
/// both hold their lease, and its gate opens when it has all. It keeps them until the owner says
/// that it has evicted the chunk; nothing of either is running then. An importer takes no part in
/// moving bytes, nor is it charged for them.
///
///   importer --kFetchHandles--> manager --> owner      when a chunk is missing here
///   importer <--kHandles+fds--- manager <-- owner      when the owner has it in HBM
///   importer <--kParked-------- manager <-- owner      the owner has evicted it: let it go
///
/// So at every moment the importer has a chunk mapped, or the manager knows where the owner put its
/// bytes: if the owner dies the manager names an heir, which keeps the former and gets the latter.
/// (The owner keeps the host copy of such a chunk until it evicts it again.)
///
/// Threads: job threads offer, import, close; everything below "agent" is the agent's. `mutex_` is
/// not held in driver calls, questions or waits.
class Sharing {
 public:
  struct Parts {
    Client& client;
    Devices& devices;
    RangeTable& ranges;
    Pager& pager;
    HostStore& store;
    DeviceMemory& memory;
    /// The gate has been closed because an import is not mapped yet.
    void (*memory_missing)() noexcept;
  };

  explicit Sharing(Parts parts);

  // ---- the owner's side, job threads

  /// A name for the range that begins at `range`; none when the manager does not answer.
  std::optional<Capability> offer(std::uint64_t range);
  /// The job frees the range: true when other processes still have it and it has to stay.
  bool still_shared(std::uint64_t range);
  /// The range that this process has offered under the name.
  std::optional<std::uint64_t> own_range(std::uint64_t id);

  // ---- the importer's side, job threads

  struct Imported {
    std::uint64_t range;
    CUdevice device;
    std::size_t bytes;
  };
  /// Addresses for the memory; one more use of them when they are there already. `access` of
  /// another device than its own, or of that one. Errors: INVALID_VALUE when there is no such
  /// memory in this job, OUT_OF_MEMORY without addresses, INVALID_DEVICE when the GPU is not
  /// visible here.
  CUresult import(const Capability& capability, CUdevice access, Imported* out);
  /// The visible device that is this GPU.
  std::optional<CUdevice> device_with(const wire::GpuUuid& uuid);
  /// One use less; the last one gives the addresses back.
  void close(std::uint64_t range);

  // ---- agent

  /// A message about shared memory; others are ignored.
  void handle(Packet& packet);
  /// Asks and answers what is due. `has_lease`: it is held or being loaded for. Returns after how
  /// many ns there is something to do again.
  std::uint64_t step(bool has_lease);
  /// After a restart of the manager, which has forgotten who shares what. `at_rest`: there is no
  /// lease; it may not have passed on that an owner has evicted something, so no gate opens before
  /// it has found the owner, or that there is none any more.
  void connected(bool at_rest);

 private:
  struct Offered {
    std::uint64_t range = 0;
    wire::Export what{};
    bool is_ended = false;
  };
  struct Import {
    std::uint64_t range = 0;
    wire::Import name{};
    CUdevice device = 0;
    std::size_t bytes = 0;
    std::uint64_t uses = 0;
    std::uint64_t asked_ns = 0;  ///< the fetch under way; 0: none
    bool is_own = false;         ///< inherited
  };

  void on_handles(Packet& packet, const wire::Handles& handles);
  void on_parked(Packet& packet, const wire::Parked& parked);
  void on_owner_gone(const wire::OwnerGone& gone);
  void on_owner_back(std::uint64_t id);
  void on_all_told();
  /// Whether all of an import whose owner died unseen is mapped here; if not it is given up.
  bool can_inherit(const Import& import);
  void on_unused(std::uint64_t id);
  void on_fetch(const wire::Handles& fetch);
  bool serve(const wire::Handles& fetch);
  /// Nobody can ever have the chunk.
  void tell_lost(std::uint64_t id, std::size_t chunk);

  Parts parts_;
  std::mutex mutex_;
  std::map<std::uint64_t, Offered> offered_;  ///< by id
  std::map<std::uint64_t, Import> imports_;   ///< by id
  // Agent only.
  std::deque<wire::Handles> to_serve_;
  std::map<std::uint64_t, std::map<std::size_t, HostSpan>> parked_;  ///< id -> chunk
  bool has_lease_ = false;
};

}  // namespace plexrl::shim
