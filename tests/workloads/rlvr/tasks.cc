#include "tests/workloads/rlvr/tasks.h"

#include <cmath>

namespace plexrl::workloads::rlvr {
namespace {

std::uint64_t mix64(std::uint64_t x) {  // the finaliser of SplitMix64
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

}  // namespace

std::vector<Prompt> make_prompts(int modulus, int count, std::uint64_t seed, std::uint64_t step) {
  std::vector<Prompt> prompts(count);
  const std::uint64_t key = mix64(mix64(seed) ^ step);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t random = mix64(key ^ static_cast<std::uint64_t>(i) << 20);
    prompts[i] = {static_cast<int>((random >> 8) % modulus),
                  static_cast<int>((random >> 40) % modulus)};
  }
  return prompts;
}

Scores verify(int modulus, const std::vector<Prompt>& prompts, const std::vector<int>& answers,
              int samples) {
  Scores scores;
  scores.advantages.resize(answers.size());
  int right = 0;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const int expected = (prompts[p].a + prompts[p].b) % modulus;
    int right_here = 0;
    for (int g = 0; g < samples; ++g) right_here += answers[p * samples + g] == expected;
    const float mean = static_cast<float>(right_here) / static_cast<float>(samples);
    const float deviation = std::sqrt(mean * (1.0f - mean)) + 1e-4f;
    for (int g = 0; g < samples; ++g) {
      const float reward = answers[p * samples + g] == expected ? 1.0f : 0.0f;
      scores.advantages[p * samples + g] = (reward - mean) / deviation;
    }
    right += right_here;
  }
  scores.mean_reward = static_cast<double>(right) / static_cast<double>(answers.size());
  return scores;
}

}  // namespace plexrl::workloads::rlvr
