#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "interpose/nccl_api.h"
#include "shim/pins.h"

namespace plexrl::shim {

class Process;

/// What a NIC or NCCL has registered of our memory, or an attribute was set of, by what ends it,
/// and the holds that last as long.
///
/// Each registration has holds of its own: memory that was registered twice, or by NCCL with a NIC
/// inside of a registration with NCCL, stays until the last of them ends. Threads: any.
class Registrations {
 public:
  enum class Kind : std::uint8_t { kNic, kNcclBuffer, kNcclWindow, kNcclMemory, kSyncMemops };

  /// What the job gives back to end it: the memory region, the handle or window, the pointer. Of an
  /// attribute the address where the job has the memory.
  struct Key {
    Kind kind;
    const void* owner;  ///< NCCL's communicator, which ends all of its own; else null
    const void* handle;
    std::strong_ordering operator<=>(const Key&) const = default;
  };

  using Holds = std::vector<Pins::Held>;

  /// NCCL counts the registrations of one buffer and gives out the same handle: each is kept. Where
  /// the host has no memory left the holds last as long as their memory.
  void add(const Key& key, Holds holds) noexcept;
  /// The holds of one registration of that name; none: nothing of ours was in it.
  Holds take(const Key& key);
  struct Taken {
    Key key;
    Holds holds;
  };
  /// Of all that `owner` has.
  std::vector<Taken> take_all(const void* owner);

  /// A window that was registered in a group of calls: NCCL writes what it is called to `*out` when
  /// the group ends.
  struct Window {
    ncclComm_t comm;
    const ncclWindow_t* out;
    Holds holds;
  };
  void add_pending(std::uint64_t thread, Window window);
  std::vector<Window> take_pending(std::uint64_t thread);

 private:
  std::mutex mutex_;
  std::multimap<Key, Holds> kept_;
  std::multimap<std::uint64_t, Window> pending_;
};

/// Backs what of the bytes at `address` is ours and holds it in HBM; waits for a lease for that.
/// Memory of the host, and of others, is passed over without a wait. What another process of the
/// job moves makes this one exclusive instead. None: there is no HBM for it that others were not
/// promised. errno stays as it is.
std::optional<Registrations::Holds> hold_registered(Process& process, std::uint64_t address,
                                                    std::size_t bytes, const PinReason& reason);
/// Never waits for a lease. errno stays as it is.
void let_go(Process& process, const Registrations::Holds& holds) noexcept;

}  // namespace plexrl::shim
