#pragma once

#include <atomic>
#include <cstdint>

namespace plexrl::integration {

/// A page that a program, its antagonist and the runner map from one file (native endian). Each
/// word has one writer.
struct Peer {
  std::atomic<std::uint64_t> antagonist_rounds;  ///< whole rounds on the GPU so far
  std::atomic<std::uint64_t> program_pauses;     ///< pauses that the program has ended
  std::atomic<std::uint64_t> stop;               ///< the runner: the antagonist shall end
};

/// Maps the file that PLEXRL_TEST_PEER names; nullptr when the variable is not set. Ends the
/// process when the file can't be mapped.
Peer* map_peer();

}  // namespace plexrl::integration
