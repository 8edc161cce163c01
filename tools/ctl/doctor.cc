#include "tools/ctl/doctor.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "nodemgr/settings/cat.h"
#include "tools/cli/format.h"
#include "tools/cli/table.h"
#include "tools/ctl/answer.h"

namespace plexrl::ctl {
namespace {

using nodemgr::cat;
using State = Finding::State;

/// Traces and the journal of a few days.
constexpr std::uint64_t kLeastDiskBytes = std::uint64_t{1} << 30;
/// A process of a job needs a descriptor for each slab of host memory that it uses, and its own.
constexpr rlim_t kLeastFiles = 1024;
/// cuda.h: CU_COMPUTEMODE_PROHIBITED and CU_COMPUTEMODE_EXCLUSIVE_PROCESS.
constexpr int kProhibited = 2;
constexpr int kExclusiveProcess = 3;

const char* state_word(State state) {
  return state == State::kOk ? "ok" : state == State::kNote ? "note" : "problem";
}

std::optional<std::uint64_t> meminfo(const std::string& proc, const std::string& key) {
  std::ifstream file(proc + "/meminfo");
  std::string name;
  std::uint64_t kib = 0;
  std::string unit;
  while (file >> name >> kib) {
    std::getline(file, unit);
    if (name == key + ":") return kib * 1024;
  }
  return std::nullopt;
}

/// The tightest memory.max from the process's own cgroup (version 2) up.
std::optional<std::uint64_t> cgroup_limit(const Places& places) {
  std::ifstream file(places.proc + "/self/cgroup");
  std::optional<std::uint64_t> least;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::")) continue;
    for (std::filesystem::path at = line.substr(3);; at = at.parent_path()) {
      std::ifstream limit(places.cgroup + at.string() + "/memory.max");
      std::uint64_t bytes = 0;
      if (limit >> bytes) least = std::min(least.value_or(bytes), bytes);
      if (at == at.root_path() || at.empty()) break;
    }
  }
  return least;
}

Finding check_kernel() {
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
  const bool has_pidfd = process >= 0;
  if (has_pidfd) ::close(process);
  const int memory = ::memfd_create("plexrl-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const bool has_seals = memory >= 0 && ::fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0;
  if (memory >= 0) ::close(memory);
  if (has_pidfd && has_seals) return {"kernel", State::kOk, "has pidfds and sealed memfds", ""};
  return {"kernel", State::kProblem,
          cat("has no ", has_pidfd ? "sealed memfds" : "pidfds (pidfd_open, Linux 5.3)"),
          "use a newer kernel, or a container whose seccomp profile allows these calls"};
}

Finding check_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string text = cat("at most ", limit.rlim_cur, " open files for each process");
  if (limit.rlim_cur >= kLeastFiles) return {"files", State::kOk, text, ""};
  return {"files", State::kNote, text, cat("ulimit -n ", kLeastFiles, " or more")};
}

Finding check_host_memory(const Places& places, const DriverFacts& driver) {
  const auto available = meminfo(places.proc, "MemAvailable");
  if (!available) {
    return {"host memory", State::kNote, cat("can't read ", places.proc, "/meminfo"),
            "set [host] budget in nodemgr.toml"};
  }
  const auto limit = cgroup_limit(places);
  const std::uint64_t bytes = std::min(*available, limit.value_or(*available));
  const std::uint64_t largest =
      std::accumulate(driver.devices.begin(), driver.devices.end(), std::uint64_t{0},
                      [](std::uint64_t most, const DeviceFacts& device) {
                        return std::max(most, device.memory_bytes);
                      });
  std::string text = cat(cli::format_bytes(static_cast<double>(bytes)), " available");
  if (limit && *limit < *available) text += ", by the limit of this cgroup";
  if (bytes >= largest) return {"host memory", State::kOk, text, ""};
  return {
      "host memory", State::kNote,
      cat(text, ": less than the largest GPU's ", cli::format_bytes(static_cast<double>(largest))),
      "jobs are admitted only as far as their memory fits GPU and host: give them --memory, or "
      "the machine more memory"};
}

/// The folder or, where it is not there yet, the nearest above it.
std::string existing(const std::string& folder) {
  std::filesystem::path at = folder;
  std::error_code error;
  while (!at.empty() && at != at.root_path() && !std::filesystem::exists(at, error)) {
    at = at.parent_path();
  }
  return at.string();
}

Finding check_lock_dir(const Places& places) {
  const std::string there = existing(places.lock_dir);
  if (::access(there.c_str(), W_OK | X_OK) == 0) {
    return {"locks", State::kOk, places.lock_dir, ""};
  }
  return {
      "locks", State::kProblem, cat(there, ": ", std::strerror(errno)),
      cat("let this user write there, or name another folder with PLEXRL_LOCK_DIR (the same for "
          "all users of a GPU)")};
}

Finding check_state_dir(const Places& places) {
  const std::string there = existing(places.state_dir);
  if (::access(there.c_str(), W_OK | X_OK) != 0) {
    return {"state", State::kProblem, cat(there, ": ", std::strerror(errno)),
            "let this user write there, or name another folder with PLEXRL_DATA"};
  }
  struct statvfs disk {};
  if (::statvfs(there.c_str(), &disk) == 0) {
    const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
    const std::string text =
        cat(places.state_dir, ", ", cli::format_bytes(static_cast<double>(free)), " free");
    if (free < kLeastDiskBytes) {
      return {"state", State::kNote, text, "make room, or lower [trace] max_bytes in nodemgr.toml"};
    }
    return {"state", State::kOk, text, ""};
  }
  return {"state", State::kOk, places.state_dir, ""};
}

Finding check_library(const Places& places) {
  if (::access(places.library.c_str(), R_OK) == 0) {
    return {"installation", State::kOk, places.library, ""};
  }
  return {"installation", State::kProblem, cat(places.library, ": ", std::strerror(errno)),
          "install PlexRL again: plexrl-run preloads this library"};
}

Finding check_mps(const Places& places) {
  if (::access((places.mps_pipe + "/control").c_str(), F_OK) != 0) {
    return {"MPS", State::kOk, "no control daemon seen", ""};
  }
  return {"MPS", State::kNote, cat("a control daemon's pipe is in ", places.mps_pipe),
          "PlexRL was not tried with MPS: stop it (echo quit | nvidia-cuda-mps-control)"};
}

Finding check_device(std::size_t index, const DeviceFacts& device) {
  Finding finding{
      cat("GPU ", index), State::kOk,
      cat(device.name, ", ", cli::format_bytes(static_cast<double>(device.memory_bytes))), ""};
  const auto wrong = [&](State state, const char* text, const char* remedy) {
    finding.state = state;
    finding.text += cat(": ", text);
    finding.remedy = remedy;
  };
  if (device.compute_mode == kProhibited) {
    wrong(State::kProblem, "its compute mode prohibits CUDA", "nvidia-smi -c DEFAULT");
  } else if (device.compute_mode == kExclusiveProcess) {
    wrong(State::kProblem, "its compute mode lets one process use it", "nvidia-smi -c DEFAULT");
  } else if (!device.has_vmm) {
    wrong(State::kProblem, "it has no virtual memory management, so nothing can be paged",
          "share another GPU; jobs on this one run unshared");
  }
  return finding;
}

}  // namespace

std::vector<Finding> check_driver(const Places& places, const DriverFacts& driver) {
  if (places.driver.empty()) {
    return {{"driver", State::kProblem, "libcuda.so.1 not found",
             "install NVIDIA's driver, or try PlexRL with the simulated GPU (--simgpu)"}};
  }
  if (!driver.error.empty()) {
    return {{"driver", State::kProblem, cat(places.driver, ": ", driver.error),
             "see that nvidia-smi works for this user"}};
  }
  const std::string what =
      cat(places.is_simulated ? "simulated, " : "", "CUDA ", driver.version / 1000, ".",
          driver.version % 1000 / 10, ", ", places.driver);
  std::vector<Finding> findings;
  if (driver.version < 12000) {
    findings.push_back({"driver", State::kProblem, what, "PlexRL needs a driver of CUDA 12 or 13"});
  } else {
    findings.push_back({"driver", State::kOk, what, ""});
  }
  for (std::size_t i = 0; i < driver.devices.size(); ++i) {
    findings.push_back(check_device(i, driver.devices[i]));
  }
  if (driver.has_mig) {
    findings.push_back({"MIG", State::kNote, "a GPU here is cut into instances",
                        "PlexRL was not tried with MIG: turn it off for GPUs that jobs share "
                        "(nvidia-smi -mig 0)"});
  }
  if (driver.devices.empty()) {
    findings.push_back(
        {"GPU 0", State::kProblem, "the driver has no GPU", "look at CUDA_VISIBLE_DEVICES"});
  }
  return findings;
}

std::vector<Finding> check_machine(const Places& places, const DriverFacts& driver) {
  std::vector<Finding> findings = {check_library(places),  check_kernel(),
                                   check_files(),          check_host_memory(places, driver),
                                   check_lock_dir(places), check_state_dir(places)};
  if (!places.is_simulated) findings.push_back(check_mps(places));
  return findings;
}

Finding check_manager(const absl::StatusOr<Json>& answer) {
  if (!answer.ok()) {
    return {"manager", State::kOk, "none answers; plexrl-run starts one when a job needs it", ""};
  }
  const auto manager = answer->find("manager");
  const Json none = Json::object();
  const Json& about = manager == answer->end() ? none : *manager;
  return {"manager", State::kOk, cat("answers, pid ", count_of(about, "pid")), ""};
}

Finding check_observer(const Places& places, const absl::StatusOr<Json>& answer) {
  const char* const name = "observer";
  if (::access(places.kernel_types.c_str(), R_OK) != 0) {
    return {name, State::kNote,
            cat(places.kernel_types, ": ", std::strerror(errno),
                ": nothing can tell what jobs wait for"),
            "use a kernel built with CONFIG_DEBUG_INFO_BTF, if you want to know"};
  }
  if (!answer.ok())
    return {name, State::kOk, "the kernel lets one find out what jobs wait for", ""};
  const Json none = Json::object();
  const auto manager = answer->find("manager");
  const Json& about = manager != answer->end() ? *manager : none;
  const auto observer = about.find("observer");
  if (observer == about.end() || !observer->is_object()) {
    return {name, State::kNote, "none: nothing tells what jobs wait for",
            cat("as root: plexrl-observer --socket ", text_of(about, "socket"))};
  }
  std::string lacks;
  for (const Json& lack : array_of(*observer, "lacks")) {
    if (lack.is_string()) lacks += cat(lacks.empty() ? "" : "; ", lack.get<std::string>());
  }
  const std::string text = cat("observes, pid ", count_of(*observer, "pid"));
  if (lacks.empty()) return {name, State::kOk, text, ""};
  return {name, State::kNote, cat(text, ", without ", lacks), "use a newer kernel"};
}

bool has_problem(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.state == State::kProblem; });
}

Json findings_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"check", finding.check},
                    {"state", state_word(finding.state)},
                    {"text", finding.text},
                    {"remedy", finding.remedy}});
  }
  return {{"doctor", std::move(list)}};
}

std::string show_doctor(const Json& answer) {
  cli::Table table({{"CHECK"}, {"STATE"}, {"FOUND"}});
  std::string remedies;
  for (const Json& finding : array_of(answer, "doctor")) {
    table.add_row({text_of(finding, "check"), text_of(finding, "state"), text_of(finding, "text")});
    const std::string remedy = text_of(finding, "remedy");
    if (!remedy.empty()) remedies += cat(text_of(finding, "check"), ": ", remedy, "\n");
  }
  return cat(table.str(), remedies.empty() ? "\nnothing keeps jobs from sharing here\n"
                                           : cat("\nWhat to do\n", remedies));
}

}  // namespace plexrl::ctl
