#pragma once

#include <atomic>
#include <cstdint>

namespace plexrl::integration {

/// A page that a program, its antagonist and the runner map from one file (native endian). Each
/// word has one writer (`program_pauses`: the program and its children).
struct Peer {
  std::atomic<std::uint64_t> antagonist_rounds;  ///< whole rounds on the GPU so far
  std::atomic<std::uint64_t> program_pauses;     ///< pauses that the program has ended
  std::atomic<std::uint64_t> stop;               ///< the runner: the antagonist shall end
  /// A runner that looks where the program's memory is, as the manager says: 1; else the words
  /// below stay 0, and a pause ends after the antagonist's rounds.
  std::atomic<std::uint64_t> is_watched;
  std::atomic<std::uint64_t> looks;         ///< that the runner has begun
  std::atomic<std::uint64_t> evicted_look;  ///< the last one that saw bytes out of HBM
};

/// Maps the file that PLEXRL_TEST_PEER names; nullptr when the variable is not set. Ends the
/// process when the file can't be mapped.
Peer* map_peer();
/// The same, for a program that is nothing without it: ends with 2 when the variable is not set.
Peer* require_peer();

}  // namespace plexrl::integration
