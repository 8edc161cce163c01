#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "interpose/cuda_api.h"
#include "shim/contexts.h"
#include "shim/host_span.h"
#include "shim/scoped_fd.h"
#include "shim/va_arena.h"

namespace plexrl::shim {

/// Where host memory comes from: the node manager, which makes, seals and charges it.
class SlabSource {
 public:
  struct Slab {
    std::uint64_t id = 0;
    std::size_t bytes = 0;
    ScopedFd fd;  ///< a memfd; invalid: plain memory of this process
  };
  virtual ~SlabSource() = default;
  /// None: the host tier is full, or nobody answers. Any thread; may wait for the manager.
  virtual std::optional<Slab> request(std::size_t bytes) = 0;
  virtual void give_back(std::uint64_t id, std::size_t bytes) = 0;
};

/// One slab: mapped and registered once, then reused until it is given back or the process ends.
struct HostSlab {
  std::uint64_t id = 0;
  std::byte* address = nullptr;
  std::size_t bytes = 0;
  CUcontext registered_in = nullptr;  ///< null: pageable
  bool refused = false;               ///< registering failed once: not tried again
  VaArena free_space;
};

/// Host memory for evicted chunks, in slabs that hold several.
///
/// Pinning costs more than copying, so a slab is registered with the driver once and its space
/// reused. A slab that the driver won't register is used all the same, through pageable copies.
/// Slabs are not inherited by children.
///
/// `prepare` gets slabs before they are needed. A `take` that finds no space waits for one that is
/// being prepared rather than for another one.
///
/// Threads: `take` and `adopt` by the agent; `prepare` by SlabWorker's; `put` by any (frees).
/// Registrations change under `registering_`, which is held in driver calls; `mutex_` is not.
class HostStore {
 public:
  explicit HostStore(SlabSource* source) noexcept : source_(source) {}
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  /// Slabs are at least so large.
  void set_slab_bytes(std::size_t bytes) noexcept { slab_bytes_ = bytes; }

  /// Space for `bytes`, registered in the current context where possible. None: no host memory.
  std::optional<HostSpan> take(std::size_t bytes, CUcontext current);
  /// The same from slabs that are there.
  std::optional<HostSpan> take_free(std::size_t bytes);
  void put(const HostSpan& span);

  /// What the span holds can't be changed by accident from now on: a stray write of the job faults.
  /// False: the kernel refused (it keeps only so many pieces of address space apart).
  bool make_read_only(HostSpan* span) noexcept;
  /// Before it is copied into. False: the kernel refused, and the span can't be used.
  bool make_writable(HostSpan* span) noexcept;

  /// Gets one more slab, registered in one of `contexts`, if all of them together have less than
  /// `bytes`. False: they have enough, or there is no host memory.
  bool prepare(std::size_t bytes, const Contexts& contexts);

  /// Slabs that nothing is in go back to where they came from: so many bytes of them, or all there
  /// are. Returns how many. Their registration ends, which may wait for what runs on the GPU.
  /// Agent.
  std::size_t give_back_free(std::size_t bytes);

  /// Takes over a slab whose memory is all in use: of a process that is dead. Null: it can't be
  /// mapped. A slab that came before is the same one.
  HostSlab* adopt(SlabSource::Slab slab);

  /// Registers again what is registered nowhere (after forget_context). The context must be
  /// current.
  void ensure_registered(const HostSpan& span, CUcontext current);

  /// Before `context` ends, current in this thread: its registrations end with it.
  void forget_context(CUcontext context);

  /// Ends all registrations, and makes none before `allow_registering`: the process is about to be
  /// checkpointed. What is copied meanwhile is copied as pageable.
  void end_registrations();
  void allow_registering();

  /// Of all slabs that the manager has made for this process, from when one has arrived.
  std::size_t held_bytes() const;
  std::size_t bytes() const;       ///< of all slabs
  std::size_t used_bytes() const;  ///< of them taken

 private:
  bool add_slab(std::size_t bytes, CUcontext current);
  std::unique_ptr<HostSlab> map(const SlabSource::Slab& received, std::size_t least_bytes);
  void note_held(const SlabSource::Slab& slab, bool is_held);
  void register_slab(HostSlab& slab, CUcontext current);
  static bool unregister(HostSlab& slab);
  void publish(std::unique_ptr<HostSlab> slab);
  template <typename Visit>
  void each_slab(Visit visit);

  SlabSource* source_;
  std::size_t slab_bytes_ = std::size_t{32} << 20;
  std::mutex registering_;  ///< before mutex_
  bool may_register_ = true;
  mutable std::mutex mutex_;
  std::condition_variable prepared_;
  bool is_preparing_ = false;
  std::size_t bytes_ = 0;       ///< of all slabs
  std::size_t held_bytes_ = 0;  ///< of those of the manager's, and that are about to be mapped
  std::vector<std::unique_ptr<HostSlab>> slabs_;
};

}  // namespace plexrl::shim
