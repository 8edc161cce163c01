#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace plexrl::simgpu {

/// One injected failure: the `nth` call (from 1) of `call` answers `code`.
struct InjectedFailure {
  std::string call;
  std::uint64_t nth = 0;
  int code = 0;
};

/// What PLEXRL_SIMGPU describes: comma-separated `key=value`. Rates are bytes/s, times ns; 0 means
/// "costs nothing". Processes that name the same `name` share the devices, so the fields that
/// describe the devices must agree; `log`, `order`, `seed`, `stagger`, `slow`,
/// `fail` and `hang` are a process's own.
struct Spec {
  std::string name = "default";
  int gpus = 1;
  std::uint64_t memory_bytes = 1ull << 30;         ///< per device, rounded up to 2 MiB
  std::uint64_t link_bytes_per_s = 1'000'000'000;  ///< each way, per device
  double duplex = 0.7;  ///< share of the rate that each direction keeps while both are busy
  std::uint64_t hbm_bytes_per_s = 8'000'000'000;  ///< reads plus writes
  int sms = 4;                                    ///< multiprocessors: kernel time and occupancy
  std::uint64_t context_bytes = 16ull << 20;      ///< device memory of each context
  std::uint64_t vmm_ns =
      193'000;  ///< cost of cuMemCreate; map, set-access and unmap cost 1/129, 1/5 and 1/7 of it
  std::uint64_t free_delay_ns = 20'000'000;  ///< from a process's death until its memory is free
  std::uint64_t queue_depth = 1024;  ///< outstanding items of a stream before a launch blocks
  int sm = 75;                       ///< architecture: 75, 80 or 90
  std::uint64_t seed = 0;  ///< draws the order in which the blocks of a kernel begin; 0: by number
  std::uint64_t stagger_ns = 0;  ///< each item of a stream begins later by up to this, by `seed`
  double slow = 1.0;             ///< modelled times are multiplied by it
  bool fixed_order =
      false;  ///< one kernel at a time in a process, so that float atomics are reproducible
  std::string log_path;  ///< device log, appended to; empty: none
  InjectedFailure failure;
  std::uint64_t hang_kernel = 0;  ///< the n-th kernel of this process never ends; 0: none

  /// The fields that processes sharing `name` must agree on, as text.
  std::string device_part() const;
};

/// Parses PLEXRL_SIMGPU's text. On an error returns false and *error says which key or value and
/// what is possible.
bool parse_spec(std::string_view text, Spec* spec, std::string* error);

/// The state folder of a simulated machine: $XDG_RUNTIME_DIR/plexrl-simgpu/NAME or
/// /tmp/plexrl-UID/simgpu/NAME.
std::string state_folder(const Spec& spec);

}  // namespace plexrl::simgpu
