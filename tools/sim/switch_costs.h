#pragma once

#include "clustermgr/placement/virtual_node.h"
#include "nodemgr/policy/config.h"

/// The costs and settings that the reproductions charge. None is fitted to a result.
namespace plexrl::sim {

/// What a raw pinned copy does over PCIe 5.0 x16 (63 GB/s before protocol), a round figure below
/// what NVIDIA's nvbandwidth shows on H100 (about 55 GB/s).
inline constexpr double kLinkBytesPerS = 50e9;
/// What our pager reaches of a raw pinned copy (benchmark row "evict and restore", measured on the
/// simulated GPU).
inline constexpr double kPagerShare = 0.95;

/// Out and in at the same time, as the pager does (benchmark row "exchange", measured on the
/// simulated GPU against two raw copies in opposite directions).
inline clustermgr::placement::MoveModel our_moves() {
  clustermgr::placement::MoveModel moves;
  moves.out_bytes_per_s = moves.in_bytes_per_s = kLinkBytesPerS * kPagerShare;
  return moves;
}

/// Medians of the recorded llm-d run (veRL sync, 0.5B): 21.3 s to snapshot, 2.5 s to restore,
/// whatever the size.
inline clustermgr::placement::MoveModel peer_moves() {
  clustermgr::placement::MoveModel moves;
  moves.out_bytes_per_s = moves.in_bytes_per_s = 1e15;
  moves.out_fixed = std::chrono::milliseconds(21268);
  moves.in_fixed = std::chrono::milliseconds(2536);
  moves.at_once = false;
  return moves;
}

/// `[policy]` for jobs whose phases take minutes: a phase is not cut for another one, and a wait
/// stays below the shortest watchdog of frameworks (480 s).
inline nodemgr::policy::Config phase_settings() {
  nodemgr::policy::Config config;
  config.min_quantum = std::chrono::minutes(30);
  config.max_wait = std::chrono::seconds(470);
  return config;
}
inline const char* phase_settings_text() {
  return "[policy] min_quantum = 30m, max_wait = 470s, else the daemon's defaults";
}
inline const char* our_moves_text() {
  return "switch: 47.5 GB/s each way, both at once: 0.95 (pager benchmark, simulated GPU) of a 50 "
         "GB/s pinned copy over PCIe 5.0 x16";
}

}  // namespace plexrl::sim
