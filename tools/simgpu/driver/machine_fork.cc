// What becomes of a machine in a child of fork: the child has none of it, and must not keep its
// parent's share of it alive.

#include <unistd.h>

#include "tools/simgpu/driver/machine.h"

namespace plexrl::simgpu {

void Machine::become_child() {
  lock_.become_child();
  slot_ = -1;
  for (int& fd : pool_fds_) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  pools_.clear();  // not inherited (MADV_DONTFORK)
}

}  // namespace plexrl::simgpu
