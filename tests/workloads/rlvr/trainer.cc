#include "tests/workloads/rlvr/trainer.h"

#include <algorithm>
#include <cmath>

namespace plexrl::workloads::rlvr {
namespace {

struct Shape {  // as in kernels.cu
  int modulus;
  int hidden;
  int samples;
};

constexpr float kLearningRate = 0.03f;
constexpr float kInitialScale = 0.5f;
constexpr std::size_t kStateBlock = 64 << 20;
constexpr int kStateSlices = 8;
constexpr unsigned kTouchStrideWords = 1024;
constexpr unsigned kThreads = 256;

Shape shape(const Sizes& s) { return {s.modulus, s.hidden, s.samples}; }

unsigned blocks_for(std::size_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

CUdeviceptr offset(const Buffer& buffer, std::size_t elements) {
  return buffer.address + 4 * elements;
}

}  // namespace

Trainer::Trainer(Device& device, const Sizes& sizes, std::uint64_t seed, std::size_t state_bytes)
    : device_(device), sizes_(sizes), seed_(seed) {
  const std::size_t p = sizes.modulus, h = sizes.hidden, answers = sizes.prompts * sizes.samples;
  param_count_ = static_cast<int>(3 * p * h + h + p);
  for (Buffer* buffer : {&params_, &grads_, &adam_m_, &adam_v_})
    *buffer = device_.allocate(4 * param_count_);
  prompts_ = device_.allocate(sizeof(Prompt) * sizes.prompts);
  hidden_ = device_.allocate(4 * sizes.prompts * h);
  dhidden_ = device_.allocate(4 * sizes.prompts * h);
  probs_ = device_.allocate(4 * sizes.prompts * p);
  dlogits_ = device_.allocate(4 * sizes.prompts * p);
  for (Buffer* buffer : {&answers_, &chosen_, &advantages_})
    *buffer = device_.allocate(4 * answers);
  device_.launch("init_params", blocks_for(param_count_), kThreads, 0, params_.address,
                 param_count_, seed_, kInitialScale);
  for (std::size_t at = 0; at < state_bytes; at += kStateBlock) {
    state_.push_back(device_.allocate(std::min(kStateBlock, state_bytes - at)));
    const unsigned long long vectors = state_.back().bytes / 16;
    if (vectors == 0) continue;
    device_.launch("fill_state", blocks_for(vectors), kThreads, 0, state_.back().address, vectors,
                   seed_ + at + 1);
  }
}

std::vector<int> Trainer::rollout(const std::vector<Prompt>& prompts, std::uint64_t step,
                                  std::uint64_t hold_ns) {
  device_.write(prompts_, prompts.data(), prompts.size() * sizeof(Prompt));
  const unsigned shared = 4 * (sizes_.hidden + sizes_.modulus);
  device_.launch("forward", sizes_.prompts, sizes_.hidden, shared, shape(sizes_), params_.address,
                 prompts_.address, hidden_.address, probs_.address);
  device_.hold(hold_ns);
  const unsigned long long key = seed_ * 0x9E3779B97F4A7C15u + (step + 1) * 0xD1B54A32D192ED03u;
  device_.launch("sample", sizes_.prompts, sizes_.samples, 0, shape(sizes_), probs_.address, key,
                 answers_.address, chosen_.address);
  std::vector<int> answers(sizes_.prompts * sizes_.samples);
  device_.read(answers.data(), answers_, 4 * answers.size());
  return answers;
}

Experience Trainer::experience(const std::vector<Prompt>& prompts,
                               const std::vector<int>& answers) {
  Experience all{prompts, answers, std::vector<float>(answers.size()), {}};
  device_.read(all.chosen.data(), chosen_, 4 * all.chosen.size());
  return all;
}

void Trainer::set_experience(const Experience& experience) {
  device_.write(prompts_, experience.prompts.data(), experience.prompts.size() * sizeof(Prompt));
  device_.write(answers_, experience.answers.data(), 4 * experience.answers.size());
  device_.write(chosen_, experience.chosen.data(), 4 * experience.chosen.size());
}

void Trainer::train(const std::vector<float>& advantages, std::uint64_t step,
                    std::uint64_t hold_ns) {
  device_.write(advantages_, advantages.data(), 4 * advantages.size());
  for (int i = 0; i < sizes_.minibatches; ++i) {
    update(i);
    device_.hold(hold_ns / sizes_.minibatches);
  }
  update_state(step);
  device_.synchronize();
}

void Trainer::update(int minibatch) {
  const Shape s = shape(sizes_);
  const int count = sizes_.prompts / sizes_.minibatches;
  const std::size_t first = static_cast<std::size_t>(minibatch) * count;
  const CUdeviceptr prompts = prompts_.address + first * sizeof(Prompt);
  const CUdeviceptr hidden = offset(hidden_, first * s.hidden),
                    dhidden = offset(dhidden_, first * s.hidden);
  const CUdeviceptr probs = offset(probs_, first * s.modulus),
                    dlogits = offset(dlogits_, first * s.modulus);
  const std::size_t answer = first * s.samples;
  const unsigned shared = 4 * (s.hidden + s.modulus);
  device_.launch("forward", count, s.hidden, shared, s, params_.address, prompts, hidden, probs);
  device_.launch("grad_logits", count, s.modulus, 0, s, probs, offset(answers_, answer),
                 offset(chosen_, answer), offset(advantages_, answer),
                 1.0f / static_cast<float>(count * s.samples), dlogits);
  device_.launch("grad_hidden", count, s.hidden, 0, s, params_.address, hidden, dlogits, dhidden);
  device_.launch("grad_output", s.modulus, s.hidden, 0, s, hidden, dlogits, count, grads_.address);
  device_.launch("grad_input", 2 * s.modulus + 1, s.hidden, 0, s, prompts, dhidden, count,
                 grads_.address);
  if (combine_) combine_(grads_);
  ++updates_;
  const float correct1 = static_cast<float>(1.0 / (1.0 - std::pow(0.9, updates_)));
  const float correct2 = static_cast<float>(1.0 / (1.0 - std::pow(0.99, updates_)));
  device_.launch("adam", blocks_for(param_count_), kThreads, 0, params_.address, grads_.address,
                 adam_m_.address, adam_v_.address, param_count_, kLearningRate, correct1, correct2);
}

void Trainer::update_state(std::uint64_t step) {
  const auto step32 = static_cast<unsigned>(step);
  for (const Buffer& block : state_) {
    const unsigned long long vectors = block.bytes / 16, words = block.bytes / 4;
    const unsigned long long slice = (vectors + kStateSlices - 1) / kStateSlices;
    const unsigned long long first =
        std::min<unsigned long long>(slice * (step % kStateSlices), vectors);
    const unsigned long long count = std::min(slice, vectors - first);
    if (count > 0) {
      device_.launch("stir_state", blocks_for(count), kThreads, 0, block.address + 16 * first,
                     count, grads_.address, param_count_, step32);
    }
    if (words > 0) {
      device_.launch("touch_state", blocks_for((words + kTouchStrideWords - 1) / kTouchStrideWords),
                     kThreads, 0, block.address, words, kTouchStrideWords, step32);
    }
  }
}

}  // namespace plexrl::workloads::rlvr
