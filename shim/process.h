#pragma once

#include "interpose/cuda_api.h"
#include "shim/agent.h"
#include "shim/client.h"
#include "shim/communicators.h"
#include "shim/device_memory.h"
#include "shim/devices.h"
#include "shim/graph_memory.h"
#include "shim/host_store.h"
#include "shim/ipc_mappings.h"
#include "shim/lease_keeper.h"
#include "shim/manager_disk.h"
#include "shim/memory_report.h"
#include "shim/multicast_binds.h"
#include "shim/pager.h"
#include "shim/pins.h"
#include "shim/pools.h"
#include "shim/registrations.h"
#include "shim/sharing.h"
#include "shim/slab_worker.h"
#include "shim/spill_store.h"
#include "shim/unpageable.h"
#include "shim/vmm.h"

namespace plexrl::shim {

/// What this process is to PlexRL, and all parts that a shared process has.
///
/// Nothing exists before the first context, allocation or launch (invariant 12). Then the
/// environment is read, the manager asked, and the process is shared or, with one line on stderr,
/// unshared: then every call goes to the driver and the gate stands open. A child of fork is
/// unshared without a word; it never touches the parent's socket, thread or memory.
class Process {
 public:
  /// The shared process, started if need be; null when the process is unshared or can't start yet.
  static Process* start() noexcept;
  /// The shared process if it has been started.
  static Process* started() noexcept;

  /// Start, and attach the device of the current context. Null also when there is no current
  /// context or its device is not managed: the call is the driver's.
  static Process* start_with_current(CUcontext* context, CUdevice* device) noexcept;

  /// Notes a living context and attaches its device.
  Devices::Attach use(CUcontext context, CUdevice device);

  /// The allocation of ours that `address` lies in, of whatever kind.
  std::optional<DeviceMemory::Allocation> find(std::uint64_t address);

  /// Where the pager has the memory that the job sees at `address`, in what way ever it got it.
  struct Backing {
    CUdevice device;
    std::uint64_t address;
    std::uint64_t start;  ///< of the allocation or mapping there
    std::size_t bytes;
  };
  std::optional<Backing> backing(std::uint64_t address);

  Process(Identity identity, Client::Dial dial);

  /// Asks the manager once and, when admitted, becomes the shared process of this process, with its
  /// agent. start() does so; tests do with a manager of their own.
  Client::Handshake join(wire::Error* why);
  /// Tests only: as if none had been started. The agent must have been stopped.
  static void forget() noexcept;

  /// Keeps the job out of the driver, and ends what the shim has registered there, for a
  /// checkpoint; null, or why not. Then back. Agent.
  const char* leave_gpu(std::uint64_t quiet_ns);
  void back_on_gpu();

  /// --export=real: what the job exports are the driver's handles, for anybody. Set before use.
  bool exports_are_real = false;

  Client client;
  Devices devices;
  HostStore store;
  SlabWorker slab_worker;
  ManagerDisk disk;
  SpillStore spill;
  Pager pager;
  Unpageable unpageable;
  GraphMemory graph_memory;
  DeviceMemory memory;
  Pools pools;
  Sharing sharing;
  IpcMappings ipc;
  Vmm vmm;
  Pins pins;
  MulticastBinds multicast;
  Registrations registrations;
  Communicators communicators;
  LeaseKeeper keeper;
  MemoryReporter reporter;
  Agent agent;
};

/// This process submits work that PlexRL can't see. Any thread, at any time; `reason` must live for
/// ever.
void note_exclusive(const char* reason) noexcept;

}  // namespace plexrl::shim
