#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "interpose/cuda_api.h"
#include "shim/client.h"
#include "shim/wire.h"

namespace plexrl::shim {

/// The GPUs this process uses, as the manager knows them, and what the job was promised on each.
///
/// A GPU is attached when the process first has a context on it. Charges go through here: they are
/// the manager's decision while it is there, and ours by what it last said while it is away.
///
/// Threads: any. Its lock is not held while the manager is asked.
class Devices {
 public:
  /// Gives back what the job holds on `device` only for later, and what is being given back.
  /// False: there was nothing.
  using MakeRoom = bool (*)(CUdevice device) noexcept;

  Devices(Client& client, MakeRoom make_room) noexcept : client_(client), make_room_(make_room) {}

  struct Attached {
    CUdevice device = 0;
    wire::GpuUuid uuid{};
    std::uint64_t total_bytes = 0;
    std::uint32_t gpu = 0;  ///< the manager's index
    std::uint64_t promised_bytes = 0;
    std::uint64_t charged_bytes = 0;     ///< by this process, pageable
    std::uint64_t unpageable_bytes = 0;  ///< by this process
    bool has_vmm = false;  ///< the device can do what paging needs; else all passes through
  };

  enum class Attach { kAttached, kUnknown, kDriverFailed };

  /// Makes sure that `device` is attached; asks the manager the first time and waits for it.
  /// kUnknown: the manager does not manage this GPU.
  Attach attach(CUdevice device);
  /// Agent, after a restart of the manager: attaches what was attached under its new index.
  void attach_again();

  std::optional<Attached> find(CUdevice device) const;
  std::optional<CUdevice> device_of(std::uint32_t gpu) const;
  std::vector<Attached> all() const;
  std::uint64_t mask() const;  ///< of the manager's indices
  std::vector<CUdevice> devices_in(std::uint64_t mask) const;

  /// Takes `bytes` from the promise; makes room in it before it says no. False: beyond it;
  /// `says_why`: the user is told where free memory does not help. Not the agent, and not under a
  /// lock of the pools.
  bool charge(CUdevice device, std::uint64_t bytes, bool unpageable, bool says_why = true);
  /// The same for what is taken already: no room is made for it.
  bool charge_taken(CUdevice device, std::uint64_t bytes, bool unpageable);
  /// Tells the user, once for each reason, why a call is answered OUT_OF_MEMORY that asked for
  /// `bytes`. Nothing is said of more than the GPU has: no promise would help.
  void explain_refusal(CUdevice device, std::uint64_t bytes, bool unpageable = false);
  void uncharge(CUdevice device, std::uint64_t bytes, bool unpageable);
  /// Bytes that are charged as pageable become unpageable. False: they can't be, because others
  /// have been promised the HBM.
  bool pin(CUdevice device, std::uint64_t bytes);
  /// And back: told, without waiting for anybody.
  void unpin(CUdevice device, std::uint64_t bytes);

  struct Figures {
    std::uint64_t promised_bytes;
    std::uint64_t used_bytes;  ///< by the whole job
  };
  /// What cuMemGetInfo answers from; none where the device isn't attached.
  std::optional<Figures> figures(CUdevice device);

 private:
  bool describe(CUdevice device, Attached* attached);
  void add_to_sums(CUdevice device, std::int64_t bytes, bool unpageable);

  Client& client_;
  const MakeRoom make_room_;
  mutable std::mutex mutex_;
  std::vector<Attached> attached_;
  std::atomic<bool> has_said_promise_{false};  ///< explain_refusal: each reason once
  std::atomic<bool> has_said_others_{false};
};

}  // namespace plexrl::shim
