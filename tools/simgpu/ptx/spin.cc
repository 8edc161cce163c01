#include "tools/simgpu/ptx/spin.h"

#include <algorithm>
#include <cstring>

#include "tools/simgpu/ptx/launch.h"

namespace plexrl::simgpu::ptx {
namespace {

constexpr std::uint32_t kFirstInterval = 32;
constexpr std::uint32_t kLastInterval = 1 << 16;
constexpr std::uint32_t kProbeBranches =
    16;  ///< loops with more inner branches than this are not recognised
constexpr std::uint32_t kTurn =
    1024;  ///< backward branches before other lanes of the warp get a turn

std::uint64_t hash_bytes(const std::byte* from, std::size_t bytes, std::uint64_t seed) {
  std::uint64_t hash[4] = {seed, seed + 1, seed + 2, seed + 3};
  std::size_t i = 0;
  for (; i + 32 <= bytes; i += 32) {
    for (int k = 0; k < 4; ++k) {
      std::uint64_t word;
      std::memcpy(&word, from + i + 8 * k, 8);
      hash[k] = (hash[k] ^ word) * 0x9e3779b97f4a7c15ull;
      hash[k] ^= hash[k] >> 29;
    }
  }
  for (; i < bytes; ++i)
    hash[0] = (hash[0] ^ static_cast<std::uint64_t>(from[i])) * 0x9e3779b97f4a7c15ull;
  return ((hash[0] * 31 + hash[1]) * 31 + hash[2]) * 31 + hash[3];
}

std::uint64_t hash_state(const Warp& warp) {
  const Frame& frame = *warp.frame;
  std::uint64_t hash = hash_bytes(frame.registers, frame.code->register_bytes, warp.active);
  hash = hash_bytes(frame.params, std::size_t{frame.code->param_bytes} * kLanes, hash);
  return hash ^ warp.living;
}

void grant(Warp& warp, std::uint32_t branches) {
  warp.granted = branches;
  warp.backward_left = branches;
}

void freeze_clock(Warp& warp) {
  warp.frozen_ns = clock_ns(warp);
  warp.clock_is_frozen = true;
}

void start_probe(Warp& warp, const Op* op) {
  warp.is_probing = true;
  warp.has_changed = false;
  warp.probe_hash = hash_state(warp);
  warp.probe_op = op;
  warp.probe_left = kProbeBranches;
  freeze_clock(warp);
  grant(warp, 1);
}

void stop_probe(Warp& warp) {
  warp.is_probing = false;
  warp.clock_is_frozen = false;
  warp.since_probe = 0;
  warp.probe_interval = std::min(kLastInterval, warp.probe_interval * 2);
}

/// Lanes that could run if the active ones did not.
std::uint32_t others(const Warp& warp) {
  return warp.living & ~(warp.active | warp.barred | warp.parked);
}

void grant_until_probe(Warp& warp) {
  const std::uint32_t left =
      warp.probe_interval - std::min(warp.probe_interval - 1, warp.since_probe);
  grant(warp, others(warp) != 0 ? std::min(left, kTurn) : left);
}

}  // namespace

void after_backward_branches(Warp& warp, const Op* op) {
  warp.since_switch += warp.granted;
  if (warp.is_probing) {
    const std::uint64_t hash = hash_state(warp);
    if (!warp.has_changed && op == warp.probe_op && hash == warp.probe_hash) {
      resume_spinning(warp);
      warp.spinning |= warp.active;
      warp.since_switch = 0;
      return;
    }
    if (--warp.probe_left == 0) {
      stop_probe(warp);
      grant_until_probe(warp);
    } else {
      if (warp.has_changed || warp.probe_op == nullptr) {
        // Compare with the state after the change, which may be the last.
        warp.has_changed = false;
        warp.probe_hash = hash;
        warp.probe_op = op;
        freeze_clock(warp);
      }
      grant(warp, 1);
    }
  } else {
    warp.since_probe += warp.granted;
    if (warp.since_probe >= warp.probe_interval) {
      start_probe(warp, op);
    } else {
      grant_until_probe(warp);
    }
  }
  if (warp.since_switch >= kTurn && others(warp) != 0) {
    if (warp.is_probing) stop_probe(warp);
    warp.stalled = warp.active;
    warp.spinning = 0;
    warp.since_switch = 0;
    grant(warp, kFirstInterval);
  }
}

void start_counting(Warp& warp) {
  warp.probe_interval = kFirstInterval;
  grant(warp, kFirstInterval);
}

void resume_spinning(Warp& warp) {
  // Probing from the start, so that what is written before the next backward branch is seen too.
  warp.is_probing = true;
  warp.has_changed = false;
  warp.probe_op = nullptr;
  warp.probe_left = kProbeBranches;
  warp.clock_is_frozen = false;
  warp.probe_interval = kFirstInterval;
  warp.since_probe = 0;
  grant(warp, 1);
}

}  // namespace plexrl::simgpu::ptx
