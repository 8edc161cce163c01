#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/ctl/admin_client.h"

/// `plexrl-ctl doctor`: can jobs share GPUs here, and what would keep them from it? Looks at this
/// machine itself; a manager is asked only whether it answers.
namespace plexrl::ctl {

/// What one check found.
struct Finding {
  enum class State {
    kOk,
    kNote,     ///< sharing works, with less than it could have
    kProblem,  ///< jobs would run unshared, or not at all
  };
  std::string check;  ///< a stable word
  State state = State::kOk;
  std::string text;
  std::string remedy;  ///< what to do; empty when it is well
};

/// What the checks of the machine look at. The defaults are this machine; tests pass folders.
struct Places {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
  std::string kernel_types = "/sys/kernel/btf/vmlinux";
  std::string lock_dir = "/run/lock/plexrl";
  std::string state_dir;                     ///< journal and traces
  std::string library;                       ///< libplexrl.so
  std::string driver;                        ///< libcuda.so.1; empty: none was found
  std::string nvml;                          ///< as dlopen takes it
  std::string mps_pipe = "/tmp/nvidia-mps";  ///< $CUDA_MPS_PIPE_DIRECTORY
  bool is_simulated = false;
};

/// One of the driver's GPUs, as far as sharing it depends on it.
struct DeviceFacts {
  std::string name;
  std::uint64_t memory_bytes = 0;
  bool has_vmm = false;  ///< CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
  int compute_mode = 0;  ///< CUcomputemode: 0 default, 2 prohibited, 3 one process only
};

struct DriverFacts {
  std::string error;  ///< why there is nothing more to say
  int version = 0;    ///< of CUDA, 1000 major + 10 minor (cuDriverGetVersion)
  std::vector<DeviceFacts> devices;
  bool has_mig = false;  ///< NVML says that a GPU of this machine is cut into MIG instances
};

/// Loads the driver into this process and asks it. Creates no context.
DriverFacts ask_driver(const Places& places);

std::vector<Finding> check_driver(const Places& places, const DriverFacts& driver);
std::vector<Finding> check_machine(const Places& places, const DriverFacts& driver);
/// `answer` of the verb status, if a manager gave one.
Finding check_manager(const absl::StatusOr<Json>& answer);
/// Whether somebody tells what jobs wait for; sharing does not need it.
Finding check_observer(const Places& places, const absl::StatusOr<Json>& answer);

/// `doctor[]{check state text remedy}`; state is ok, note or problem.
Json findings_json(const std::vector<Finding>& findings);
/// A table, and what to do.
std::string show_doctor(const Json& answer);
bool has_problem(const std::vector<Finding>& findings);

}  // namespace plexrl::ctl
