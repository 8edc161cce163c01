#pragma once

#include <sys/types.h>

#include <compare>
#include <map>
#include <string>
#include <vector>

/// Processes that have opened GPUs' device files, whoever they belong to.
namespace plexrl::observer {

/// A GPU's device file, or one that the driver has beside them: "nvidia0", "nvidia-uvm".
using GpuFiles = std::map<dev_t, std::string>;

/// Those of a folder: names that begin with "nvidia", character devices.
GpuFiles gpu_files(const std::string& folder);

struct Opener {
  pid_t process = 0;
  uid_t user = 0;
  std::string command;
  std::vector<std::string> files;  ///< that it has open, each once, in order
  /// It is part of a job with our preload in it: it was loaded, and was not told to do nothing.
  bool is_preloaded = false;

  auto operator<=>(const Opener&) const = default;
};

/// By pid. `proc`: "/proc". Costs some microseconds for each descriptor of the machine's processes.
/// Not seen: who has opened and closed a file between two looks, and, without root, processes of
/// others.
std::vector<Opener> find_openers(const GpuFiles& files, const std::string& proc = "/proc");

}  // namespace plexrl::observer
