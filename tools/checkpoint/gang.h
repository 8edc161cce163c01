#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tools/checkpoint/driver_library.h"

namespace plexrl::checkpoint {

/// A process by pid and start (field 22 of /proc/PID/stat), so that no later one is taken for it.
struct Target {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;
};

/// "PID:START". False: it is not that.
bool parse_target(const std::string& text, Target* target);

/// The processes of a gang, all of which go off the GPU, or none.
class Gang {
 public:
  Gang(const DriverLibrary& driver, std::vector<Target> targets)
      : driver_(driver), targets_(std::move(targets)) {}

  /// Locks all within `lock_timeout_ms` each, then checkpoints all. Empty: done. Otherwise why not;
  /// what was done is undone as far as the driver can.
  std::string leave(unsigned lock_timeout_ms);

  /// Whatever state each is in: restored and unlocked. Those that have ended are left out, and
  /// those that the driver has given up (FAILED), whose calls answer errors. Empty: done.
  std::string come_back();
  /// Which those were, one line; empty: none.
  const std::string& lost() const { return lost_; }

 private:
  std::string text(const Target& target, const char* call, CUresult result) const;
  std::string bring_back(const Target& target);

  const DriverLibrary& driver_;
  std::vector<Target> targets_;
  std::string lost_;
};

}  // namespace plexrl::checkpoint
