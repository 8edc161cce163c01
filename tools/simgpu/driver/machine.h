#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tools/simgpu/driver/alive_marks.h"
#include "tools/simgpu/driver/fork_watch.h"
#include "tools/simgpu/driver/spec.h"
#include "tools/simgpu/driver/table_lock.h"

namespace plexrl::simgpu {

inline constexpr std::uint64_t kFrameBytes = 2ull
                                             << 20;  ///< physical memory is handed out in frames
inline constexpr int kMaxDevices = 16;

enum class Direction { kToDevice = 0, kToHost = 1 };

/// What one process may ask of another's driver, and where that stands (checkpoint.h).
enum class ProcessOrder : std::uint32_t { kNothing, kLock, kCheckpoint, kRestore, kUnlock };
enum class ProcessState : std::uint32_t { kRunning, kLocked, kCheckpointed, kFailed };

struct Allocation;
struct MachineState;  // the layout of the shared file; see machine_state.h
struct MulticastObject;

/// The simulated machine that processes with the same `name=` share: for each device a pool of
/// physical frames, who holds them, the links' timelines, and counters.
///
/// It lives in files under `state_folder(spec)` (the pools in /dev/shm where that has room). The
/// tables change under a lock that goes with its holder (table_lock.h); a process found dead loses
/// what it held after `free_delay`, and so does a program that its process replaced by exec. The
/// last process to leave removes the files. A child of fork has no part of its parent's machine: it
/// may observe and look, take and hold nothing.
///
/// Threads: every function may be called from any thread.
class Machine {
 public:
  /// Joins the machine, or makes it. Returns nullptr and says why in *error when the spec disagrees
  /// with that of the processes already there, or a file can't be made.
  static std::unique_ptr<Machine> open(const Spec& spec, std::string* error);
  /// Looks at the machine called `name` without joining it: no memory of it can be taken, and it
  /// goes when its last process does. Only spec, device_of, bytes_of, *_bytes, usage, counters,
  /// driver_ns, uuid and is_gone may be called. Returns nullptr with an empty *error when no
  /// process has the machine.
  static std::unique_ptr<Machine> observe(const std::string& name, std::string* error);
  ~Machine();
  /// Gives back all that this process holds and its place, now. The memory stays mapped, since
  /// threads may still look at it; nothing else may be called afterwards.
  void leave();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const Spec& spec() const { return spec_; }

  /// Takes ceil(bytes / kFrameBytes) zeroed frames; this process holds them once. False when there
  /// are not so many.
  bool allocate(int device, std::uint64_t bytes, std::uint32_t* id);
  /// One more hold of this process.
  void hold(std::uint32_t id);
  /// One hold less; the frames are free when no process holds them and no exported descriptor is
  /// open.
  void release(std::uint32_t id);
  /// Host addresses of the frames, in order.
  std::vector<std::byte*> frames(std::uint32_t id);
  /// Maps the frames, in order, at `address` too (whole frames, replacing what is mapped there),
  /// for the host to read and write. False when the host has no room for it; part may then be
  /// mapped.
  bool map_for_host(std::uint32_t id, void* address);
  int device_of(std::uint32_t id) const;
  std::uint64_t bytes_of(std::uint32_t id) const;

  /// A descriptor that stands for the allocation in other processes and keeps it alive. -1 on
  /// failure.
  int export_descriptor(std::uint32_t id);
  /// Holds the allocation that `descriptor` stands for. False when it is none of this machine's.
  bool import_descriptor(int descriptor, std::uint32_t* id);
  /// As import, by id alone (legacy IPC handles). `tag` guards against a handle that outlived its
  /// allocation. What only a name stands for can't be imported while it is parked: false.
  bool import_id(std::uint32_t id, std::uint64_t tag);
  std::uint64_t tag_of(std::uint32_t id) const;

  /// Multicast objects (machine_multicast.cc) have ids as allocations have, and are held, exported
  /// and imported as those are, but they have no frames.
  struct MulticastProperties {
    std::uint64_t bytes;
    unsigned team;          ///< devices that it is made for
    unsigned handle_types;  ///< CUmemAllocationHandleType bits
  };
  bool create_multicast(const MulticastProperties& properties, std::uint32_t* id);
  /// None: `id` is memory.
  std::optional<MulticastProperties> multicast(std::uint32_t id) const;
  /// False when the device is there already or the team is full.
  bool add_to_multicast(std::uint32_t id, int device);
  bool is_complete(std::uint32_t id);  ///< all of its team have been added
  bool is_in_team(std::uint32_t id, int device);
  /// Binds `bytes` of an allocation at `offset` of the object, and holds the allocation until it is
  /// unbound or this process gives the object up. kTaken: memory of the device is there already.
  enum class Bound { kDone, kTaken, kNoRoom };
  Bound bind_multicast(std::uint32_t id, std::uint64_t offset, std::uint32_t allocation,
                       std::uint64_t memory_offset, std::uint64_t bytes);
  /// Exactly what was bound there by this process. False: it was not.
  bool unbind_multicast(std::uint32_t id, int device, std::uint64_t offset, std::uint64_t bytes);
  /// Host addresses of the byte at `offset` of the object in the memory of each device, into `out`
  /// (kMaxDevices); how many.
  std::size_t multicast_replicas(std::uint32_t id, std::uint64_t offset, std::byte** out);

  std::uint64_t total_bytes(int device) const;
  std::uint64_t free_bytes(int device);
  struct Usage {
    pid_t pid;
    std::uint64_t bytes;
  };
  std::vector<Usage> usage(int device);

  /// Books `bytes` on a link from `earliest` on, after what is booked already. Returns when the
  /// transfer ends.
  std::uint64_t book_transfer(int device, Direction direction, std::uint64_t bytes,
                              std::uint64_t earliest);
  /// Runs `ns` of driver time under the lock that all processes' memory calls share.
  void spend_driver_time(std::uint64_t ns);
  /// What all processes have spent so since the machine was made.
  std::uint64_t driver_ns() const;

  /// `lag_ns` is how much longer work took on this host than the model says; see
  /// Operation::run.
  struct Counters {
    std::atomic<std::uint64_t> busy_ns, lag_ns, kernels, to_device_bytes, to_host_bytes;
  };
  Counters& counters(int device);

  /// Has the process carry out an order and returns its answer, a CUresult, or kNoProcess: none of
  /// this machine has that pid, or it ended without an answer. An order that a process has not
  /// begun within `timeout_ms` (0: no limit) is taken back: kLate. One order a process at a time;
  /// the next waits.
  static constexpr int kNoProcess = -1;
  static constexpr int kLate = -2;
  int order(pid_t pid, ProcessOrder what, std::uint32_t timeout_ms);
  struct ProcessInfo {
    ProcessState state;
    pid_t thread;  ///< that carries orders out
  };
  /// False: no process of this machine has that pid.
  bool process_info(pid_t pid, ProcessInfo* info);
  struct Order {
    std::uint32_t number;
    ProcessOrder what;
    std::uint32_t timeout_ms;
    ProcessState state;
  };
  /// For the one thread of this process that carries orders out: from now on others may give some.
  void begin_orders(pid_t thread);
  /// Waits for the next. False: this process has left.
  bool next_order(Order* order);
  void answer_order(const Order& order, int result, ProcessState state);

  struct Parked {
    std::uint32_t id;
    int device;
    std::vector<std::byte*> frames;  ///< as they were
    std::vector<std::byte> content;
  };
  /// Takes all that this process holds off the devices: its contents, to be given back to `unpark`.
  /// False, and nothing has changed: another process holds some of it, or a descriptor could bring
  /// some to another; multicast objects count as such.
  bool park(std::vector<Parked>* parked);
  /// Brings it back; `moved` gets the new address of each frame by its old one. False, and nothing
  /// has changed: a device has no room for it.
  bool unpark(const std::vector<Parked>& parked, std::map<std::byte*, std::byte*>* moved);

  std::array<std::uint8_t, 16> uuid(int device) const;
  /// Whether all its processes have left, so that others of its name make another machine.
  bool is_gone();

 private:
  Machine() = default;
  using Lock = std::lock_guard<TableLock>;
  void become_child();
  bool join(std::string* error);
  bool attach(std::string* error);
  bool is_in_use() const;
  bool has_pools() const;
  bool initialise(std::string* error);
  bool make_pools(std::string* error);
  bool map_pools(std::string* error);
  void reap();
  void collect();
  void drop_holder(std::uint32_t id, int slot);
  void free_if_unheld(std::uint32_t id);
  void take_frames(std::uint32_t id, Allocation& allocation);
  void give_frames(Allocation& allocation);
  bool shares_memory() const;
  int living_slot(pid_t pid) const;
  void reset_orders(int slot);
  bool is_slot_of(int slot, std::uint32_t incarnation) const;
  std::uint32_t free_id() const;
  void drop_hold(std::uint32_t id);
  MulticastObject& multicast_object(std::uint32_t id);
  void drop_binds(MulticastObject& object, int slot);
  bool descriptor_is_open(std::uint32_t id) const;
  std::string token_path(std::uint32_t id) const;

  Spec spec_;
  std::string folder_;
  TableLock lock_;
  AliveMarks alive_;  ///< by slot
  MachineState* state_ = nullptr;
  int slot_ = -1;
  std::vector<int> pool_fds_;  // each with a shared flock; see pool_file.h
  std::vector<std::byte*> pools_;
  std::vector<std::uint32_t> local_holds_;
  ForkWatch forks_{[this] { become_child(); }};
};

/// The UUID of a machine's device: the same wherever its name is the same.
std::array<std::uint8_t, 16> device_uuid(const std::string& name, int device);

/// "GPU-xxxxxxxx-xxxx-…", as NVML and CUDA_VISIBLE_DEVICES spell it.
std::string uuid_text(const std::array<std::uint8_t, 16>& uuid);

}  // namespace plexrl::simgpu
