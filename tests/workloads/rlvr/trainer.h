#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tests/workloads/rlvr/device.h"
#include "tests/workloads/rlvr/tasks.h"

namespace plexrl::workloads::rlvr {

/// Sizes of the policy and of a step. The first three are the kernels' `Shape`.
struct Sizes {
  int modulus = 11;   ///< P
  int hidden = 64;    ///< H, a multiple of 32
  int samples = 32;   ///< G, answers for each prompt
  int prompts = 512;  ///< in a step; a multiple of minibatches
  int minibatches = 8;
};

/// What a rollout leaves for training.
struct Experience {
  std::vector<Prompt> prompts;
  std::vector<int> answers;
  std::vector<float> chosen;  ///< of each answer, its probability when it was sampled
  std::vector<float> advantages;
};

/// The policy, its optimizer and its padding on a device: what a step of the job does there.
/// Errors: DriverError.
class Trainer {
 public:
  /// `state_bytes` of padding stand for the weights and optimizer state of a large model; cut into
  /// blocks of 64 MiB.
  Trainer(Device& device, const Sizes& sizes, std::uint64_t seed, std::size_t state_bytes);

  /// Samples `sizes.samples` answers for each prompt. `hold_ns` of device time stand for the
  /// decoding.
  std::vector<int> rollout(const std::vector<Prompt>& prompts, std::uint64_t step,
                           std::uint64_t hold_ns);

  /// One update for each minibatch of what `rollout` sampled last, and one of the padding: a
  /// rotating eighth of it is rewritten whole, of the rest a word in each 4 KiB. `hold_ns` of
  /// device time stand for the backward passes.
  void train(const std::vector<float>& advantages, std::uint64_t step, std::uint64_t hold_ns);

  /// Of the last rollout, without advantages.
  Experience experience(const std::vector<Prompt>& prompts, const std::vector<int>& answers);
  /// Another trainer's rollout takes the place of the last one.
  void set_experience(const Experience& experience);

  /// Called in each update when the gradients are there, before the policy follows them; what it
  /// does to them goes to the device's stream.
  void set_combine(std::function<void(const Buffer& grads)> combine) {
    combine_ = std::move(combine);
  }

  const Buffer& params() const { return params_; }

 private:
  void update(int minibatch);
  void update_state(std::uint64_t step);

  Device& device_;
  Sizes sizes_;
  std::uint64_t seed_;
  int param_count_;
  int updates_ = 0;
  std::function<void(const Buffer&)> combine_;
  Buffer params_, grads_, adam_m_, adam_v_;
  Buffer prompts_, hidden_, probs_, answers_, chosen_, advantages_, dlogits_, dhidden_;
  std::vector<Buffer> state_;
};

}  // namespace plexrl::workloads::rlvr
