#include "tests/workloads/rlvr/ranks.h"

#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <thread>

#include "tests/workloads/rlvr/device.h"
#include "tests/workloads/rlvr/nccl.h"
#include "tests/workloads/rlvr/processes.h"
#include "tests/workloads/rlvr/tasks.h"
#include "tests/workloads/rlvr/trainer.h"

namespace plexrl::workloads::rlvr {
namespace {

constexpr double kBusyMs = 10;  // of device time between two looks for --until's file

/// One process of the job.
class Rank {
 public:
  Rank(const Options& options, Rendezvous& rendezvous, int number)
      : options_(options),
        rendezvous_(rendezvous),
        number_(number),
        device_(options.device + number),
        trainer_(device_, sizes_, options.seed, options.state_bytes) {
    if (trains()) {
      const UniqueId id = rendezvous.unique_id(Rendezvous::kTrainers, number == 0);
      trainers_.emplace(device_, id, options.ranks, number);
      trainer_.set_combine([this](const Buffer& grads) { trainers_->average(grads); });
    }
    if (options.disaggregated) {
      const UniqueId id = rendezvous.unique_id(Rendezvous::kAll, number == 0);
      all_.emplace(device_, id, 2 * options.ranks, number);
    }
  }

  void run() {
    for (int step = 0; step < options_.steps; ++step) {
      double reward = 0;
      if (samples()) {
        const Experience experience = sample(step, &reward);
        if (options_.disaggregated) {
          send(experience);
        } else {
          trainer_.train(experience.advantages, step, to_ns(options_.train_ms));
        }
      } else {
        const Experience experience = receive();
        trainer_.set_experience(experience);
        trainer_.train(experience.advantages, step, to_ns(options_.train_ms));
      }
      if (all_) all_->broadcast(trainer_.params());
      std::printf("%s.%d: step %d/%d reward %.3f policy %s\n", options_.name.c_str(), number_,
                  step + 1, options_.steps, reward,
                  device_.digest(trainer_.params()).substr(0, 16).c_str());
      while (!options_.until.empty() && !std::filesystem::exists(options_.until))
        device_.hold(to_ns(kBusyMs));
    }
    std::printf("digest: %s\n", device_.digest().c_str());
  }

 private:
  bool trains() const { return number_ < options_.ranks; }
  bool samples() const { return !options_.disaggregated || !trains(); }
  int pair() const { return number_ % options_.ranks; }
  std::size_t answers() const {
    return static_cast<std::size_t>(sizes_.prompts) * static_cast<std::size_t>(sizes_.samples);
  }

  Experience sample(int step, double* reward) {
    // Each rank has tasks of its own.
    const auto own_step = static_cast<std::uint64_t>(step * options_.ranks + pair());
    const std::vector<Prompt> prompts =
        make_prompts(sizes_.modulus, sizes_.prompts, options_.seed, own_step);
    const std::vector<int> answers =
        trainer_.rollout(prompts, own_step, to_ns(options_.rollout_ms));
    Experience experience = trainer_.experience(prompts, answers);
    Scores scores = verify(sizes_.modulus, prompts, answers, sizes_.samples);
    std::this_thread::sleep_for(std::chrono::nanoseconds(to_ns(options_.tool_ms)));
    experience.advantages = std::move(scores.advantages);
    *reward = scores.mean_reward;
    return experience;
  }

  void send(const Experience& e) {
    rendezvous_.send(pair(), e.prompts.data(), e.prompts.size() * sizeof(Prompt));
    rendezvous_.send(pair(), e.answers.data(), 4 * e.answers.size());
    rendezvous_.send(pair(), e.chosen.data(), 4 * e.chosen.size());
    rendezvous_.send(pair(), e.advantages.data(), 4 * e.advantages.size());
  }

  Experience receive() {
    Experience e{std::vector<Prompt>(static_cast<std::size_t>(sizes_.prompts)),
                 std::vector<int>(answers()), std::vector<float>(answers()),
                 std::vector<float>(answers())};
    rendezvous_.receive(pair(), e.prompts.data(), e.prompts.size() * sizeof(Prompt));
    rendezvous_.receive(pair(), e.answers.data(), 4 * e.answers.size());
    rendezvous_.receive(pair(), e.chosen.data(), 4 * e.chosen.size());
    rendezvous_.receive(pair(), e.advantages.data(), 4 * e.advantages.size());
    return e;
  }

  const Options& options_;
  Rendezvous& rendezvous_;
  const int number_;
  const Sizes sizes_;
  Device device_;
  Trainer trainer_;
  std::optional<Communicator> trainers_, all_;
};

}  // namespace

int run_in_ranks(const Options& options) {
  const int count = options.ranks * (options.disaggregated ? 2 : 1);
  Rendezvous rendezvous(count, options.disaggregated ? options.ranks : 0);
  return run_in_processes(count, [&](int number) {
    try {
      Rank rank(options, rendezvous, number);
      rank.run();
      return 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rlvr: rank %d: %s\n", number, error.what());
      return 1;
    }
  });
}

}  // namespace plexrl::workloads::rlvr
