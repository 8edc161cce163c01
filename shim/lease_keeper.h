#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "shim/activity.h"
#include "shim/client.h"
#include "shim/devices.h"
#include "shim/drain.h"
#include "shim/gate.h"
#include "shim/idle_watch.h"
#include "shim/pager.h"
#include "shim/range_table.h"

namespace plexrl::shim {

/// This process's side of a lease: when its gate is open, and what it tells the manager.
///
///   kNone --kGrant--> kLoading --all backed, kLoaded--> kLoaded --kRun--> kHeld
///   kHeld --kWithdraw--> kDraining --at rest, kDrained--> kDrained --kRevoked--> kNone
///                           |                                |
///                           +--- kNotDrained, then kReopen --+--kReopen--> kHeld
///
/// In kHeld the gate is open, except while memory is missing (an allocation found no HBM) or a GPU
/// was attached that the lease does not cover. It opens only when every chunk is backed.
///
/// In kNone, at rest, memory may come back before there is a lease (kPrefetch): a run of chunks a
/// step, as fast as the manager allows. A grant, an eviction and the loss of the connection call
/// that off; what has come stays, and the manager is told.
///
/// When the manager goes away the holder goes on: a drain under way is called off, a load under way
/// is dropped and asked for again.
///
/// Threads: all of it on the agent's, except is_quiet and busy_again.
class LeaseKeeper {
 public:
  enum class State { kNone, kLoading, kLoaded, kHeld, kDraining, kDrained };

  struct Parts {
    Client& client;
    Devices& devices;
    RangeTable& ranges;
    Pager& pager;
    Gate& gate;
    Activity& activity;
    /// Called when nothing is outstanding.
    std::function<void()> on_quiet;
    /// Called when the process has come to rest: idle, or drained.
    std::function<void()> on_rest;
    /// Makes a process at rest, without memory in HBM, ready to be checkpointed: null, or why not.
    std::function<const char*(std::uint64_t quiet_ns)> leave_gpu;
    /// It is as before.
    std::function<void()> back_on_gpu;
  };

  explicit LeaseKeeper(Parts parts) : parts_(std::move(parts)) {}
  /// As the manager's welcome says; before the first step.
  void set_grace(std::uint64_t grace_ns) noexcept { watch_ = IdleWatch(grace_ns); }

  /// A message about leases; others are ignored.
  void handle(const Packet& packet);

  /// Does what is due and returns how long nothing is, in ns.
  std::uint64_t step();
  static constexpr std::uint64_t kForever = ~std::uint64_t{0};

  /// The gate was armed and a call has opened it. Any thread.
  void busy_again() noexcept;
  /// A driver call of the job found no HBM: tells the manager, if this process holds a lease. Any
  /// thread; the agent has to be woken.
  void say_lacking() noexcept { lacking_.store(true, std::memory_order_release); }
  /// True while nothing the job submitted can be running. Any thread.
  bool is_quiet() const noexcept { return quiet_.load(std::memory_order_acquire); }

  /// This process can't be cut from now on. Any thread; `reason` must live for ever.
  void set_exclusive(const char* reason) noexcept;

  void connection_lost();
  void connected();
  /// Without a manager for good: everything that is this process's own is backed, and the gate
  /// stays open.
  void go_alone();

  State state() const noexcept { return state_; }
  /// Agent: memory of other processes may be mapped here, and they may have ours.
  bool may_map() const noexcept {
    return state_ == State::kLoading || state_ == State::kLoaded || state_ == State::kHeld;
  }
  /// Agent: no lease, and nothing that was submitted is running.
  bool is_at_rest() const noexcept { return state_ == State::kNone && is_quiet(); }
  wire::Epoch held() const noexcept;

 private:
  void on_grant(const wire::Grant& grant);
  void on_withdraw(const wire::Withdraw& withdraw);
  void on_evict(const wire::Evict& evict, std::uint64_t request);
  void on_prefetch(const wire::Prefetch& prefetch);
  void on_revoked();
  void on_leave_gpu(const wire::LeaveGpu& leave);

  std::uint64_t step_state();
  std::uint64_t step_none();
  std::uint64_t step_prefetching();
  /// Tells the manager what has come.
  void end_prefetch();
  std::uint64_t step_loading();
  std::uint64_t step_held();
  std::uint64_t step_draining();
  std::uint64_t watch_idleness();

  bool load_some(std::uint64_t* pause);
  bool try_open();
  void end_drain();
  void want_lease();
  void lack_memory();
  void send_loaded();
  void edge(bool is_busy, std::uint64_t at_ns);
  void send_exclusive();
  /// Before the kPaged of the same.
  void say_disk(std::uint32_t is_load, std::uint64_t bytes, std::uint64_t wait_ns);
  void give_back_host();
  bool covers_all() const;
  /// Of what may leave: without pinned chunks.
  std::uint64_t resident_bytes(CUdevice device) const;
  Activity::Look look();

  Parts parts_;
  State state_ = State::kNone;
  wire::Epoch epoch_{};
  std::uint64_t held_mask_ = 0;
  std::uint64_t attempt_ = 0;
  std::optional<Drain> drain_;
  bool want_sent_ = false;
  std::uint64_t want_mask_ = 0;
  std::atomic<bool> quiet_{true};
  std::atomic<bool> lacking_{false};
  std::atomic<std::uint64_t> busy_since_ns_{0};

  IdleWatch watch_{5'000'000};
  bool is_busy_ = false;

  wire::Loaded loaded_{};
  Pager::LoadFigures load_figures_;
  std::uint64_t load_backoff_ns_ = 0;
  std::uint64_t lack_told_ns_ = 0;
  struct Prefetching {
    CUdevice device;
    std::uint64_t bytes;        ///< asked for
    std::uint64_t bytes_per_s;  ///< 0: no limit
    wire::Prefetched answer;
    Pager::LoadFigures figures;
  };
  std::optional<Prefetching> prefetching_;
  bool loaded_due_ = false;  ///< kLoaded is owed for the current epoch

  std::uint64_t owed_host_ = 0;  ///< bytes of slabs that others need

  std::atomic<const char*> exclusive_reason_{nullptr};
  bool exclusive_sent_ = false;
};

}  // namespace plexrl::shim
