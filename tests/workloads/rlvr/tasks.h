#pragma once

#include <cstdint>
#include <vector>

/// The tasks and their verifier: "what is (a + b) mod P?". A right answer has reward 1, any other
/// 0.
namespace plexrl::workloads::rlvr {

/// Two operands, laid out as the kernels' int2.
struct Prompt {
  int a;
  int b;
};

/// `count` prompts, the same for the same (seed, step).
std::vector<Prompt> make_prompts(int modulus, int count, std::uint64_t seed, std::uint64_t step);

struct Scores {
  std::vector<float> advantages;  ///< one for each answer: its reward, normalised over the answers
                                  ///< to the same prompt
  double mean_reward = 0;
};

/// Checks `answers` (`samples` for each prompt, in order) on the CPU.
Scores verify(int modulus, const std::vector<Prompt>& prompts, const std::vector<int>& answers,
              int samples);

}  // namespace plexrl::workloads::rlvr
