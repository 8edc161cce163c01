#pragma once

#include <array>
#include <functional>
#include <vector>

#include "tests/workloads/rlvr/nccl.h"

namespace plexrl::workloads::rlvr {

/// What the processes of a job share from before they begin.
class Rendezvous {
 public:
  /// Of so many processes. `pairs` of them, i and count / 2 + i, get a pipe from the second to the
  /// first.
  Rendezvous(int count, int pairs);

  enum Group { kTrainers, kAll, kGroups };
  /// The first to ask for its own makes it; the others wait until it has.
  UniqueId unique_id(Group group, bool is_first);

  /// Through the pipe of a pair. Error: DriverError when the other side has ended.
  void send(int pair, const void* bytes, std::size_t count) const;
  void receive(int pair, void* bytes, std::size_t count) const;

 private:
  struct Page;
  Page* page_;  ///< shared with children
  std::vector<std::array<int, 2>> pipes_;
};

/// Runs `body` in `count` processes, each with its number, and prints what each has printed, one
/// process after the other. Returns the exit status: 0 when all of them returned 0; when one did
/// not, the others are killed. The calling process must not have used the driver.
int run_in_processes(int count, const std::function<int(int)>& body);

}  // namespace plexrl::workloads::rlvr
