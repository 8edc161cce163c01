#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "shim/client.h"
#include "shim/communicators.h"
#include "shim/devices.h"
#include "shim/lease_keeper.h"
#include "shim/manager_disk.h"
#include "shim/memory_report.h"
#include "shim/scoped_fd.h"
#include "shim/sharing.h"
#include "shim/slab_worker.h"
#include "shim/spill_store.h"

namespace plexrl::shim {

/// The thread of the shim in a job's process that does all but one thing (slab_worker.h),
/// `plexrl-agent`: it receives the manager's
/// messages, keeps the lease, sends reports, and connects again when the manager was restarted.
///
/// It blocks all signals, and sleeps without a time limit while nothing may be outstanding.
class Agent {
 public:
  struct Parts {
    Client& client;
    Devices& devices;
    LeaseKeeper& keeper;
    MemoryReporter& reporter;
    RangeTable& ranges;
    Sharing& sharing;
    const HostStore& store;
    Communicators& communicators;
    SlabWorker& slab_worker;
    const SpillStore& spill;
    ManagerDisk& disk;
  };

  explicit Agent(Parts parts) noexcept : parts_(parts) {}

  /// False when the thread could not be made.
  bool start();

  /// Something changed that the agent should look at. Any thread, signal handlers too.
  void notify() noexcept;
  /// exit() was entered: the process goes to the front of the queue.
  void say_exiting() noexcept;

  /// Tests only: ends the thread and waits for it. In a job it runs until the process is gone.
  void stop() noexcept;

  /// The body of the thread.
  void run();

 private:
  void receive();
  void lose_connection();
  void reconnect();
  void resume(Connection& fresh);
  void say_waiting(std::uint64_t now);
  void sleep(std::uint64_t pause_ns);
  std::uint64_t report();
  std::uint64_t share();

  Parts parts_;
  ScopedFd wake_;
  pthread_t thread_{};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> exiting_{false};
  bool exiting_sent_ = false;
  std::uint64_t next_dial_ns_ = 0;
  std::uint64_t dial_pause_ns_ = 0;
  bool gave_up_ = false;
  std::uint64_t lost_ns_ = 0;
  bool said_waiting_ = false;  ///< since the connection was lost
};

}  // namespace plexrl::shim
