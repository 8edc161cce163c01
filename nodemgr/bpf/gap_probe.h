#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nodemgr/bpf/thread_times.h"

namespace plexrl::observer {

/// The kernel half, loaded into the kernel. One thread. Processes are named by their pids in the
/// initial pid namespace.
///
/// Its programs are attached while at least one process is watched, and until `rest`.
class GapProbe {
 public:
  /// Errors name what is missing: rights, BTF, a tracing feature.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<GapProbe>> load();
  ~GapProbe();

  /// From now on what the threads of these processes do is gathered, those that they have and those
  /// that come. Programs that can't be attached are an error, and nothing is watched then.
  [[nodiscard]] absl::Status watch(const std::vector<pid_t>& processes);
  /// What their threads did since `watch`, up to now.
  std::vector<ThreadTimes> read(const std::vector<pid_t>& processes);
  /// The same, and they are not watched any more.
  std::vector<ThreadTimes> read_and_forget(const std::vector<pid_t>& processes);
  /// Detaches; nothing may be watched. The next `watch` attaches again.
  void rest();
  bool is_attached() const;

  /// Character devices that are GPUs (st_rdev).
  void set_gpus(const std::vector<dev_t>& devices);
  /// What was not gathered because a table was full, since `load`.
  std::uint64_t lost() const;
  /// What this kernel does not offer and the observer does without, a line each.
  const std::vector<std::string>& lacks() const { return lacks_; }

 private:
  struct Parts;
  struct Tables;
  explicit GapProbe(std::unique_ptr<Parts> parts);
  absl::Status attach();
  void note_threads();
  Tables look(const std::set<std::uint32_t>& processes);
  static std::vector<ThreadTimes> times_of(const Tables& tables);

  std::unique_ptr<Parts> parts_;
  std::vector<std::string> lacks_;
};

}  // namespace plexrl::observer
