#pragma once

#include <cstddef>
#include <string>

#include "tests/workloads/rlvr/device.h"

namespace plexrl::workloads::rlvr {

/// What NCCL's calls need to make a communicator; one rank gets it and hands it to the others.
struct UniqueId {
  char bytes[128];
};
UniqueId make_unique_id();

/// One rank of an NCCL communicator, whose collectives go to the device's one stream.
/// libnccl.so.2 is found as frameworks find it, by dlopen. Errors: DriverError.
class Communicator {
 public:
  /// Returns when all ranks have come.
  Communicator(Device& device, const UniqueId& id, int ranks, int rank);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Of floats; all ranks get the mean.
  void average(const Buffer& buffer);
  /// All ranks get what rank 0 has.
  void broadcast(const Buffer& buffer);

 private:
  Device& device_;
  struct ncclComm* comm_ = nullptr;
};

}  // namespace plexrl::workloads::rlvr
